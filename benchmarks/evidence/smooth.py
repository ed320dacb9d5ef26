"""Smooth and skewed targets with one mode, or nearly so; most have closed forms."""

from __future__ import annotations

import math

import torch
from scipy import special
from torch import Tensor

from evidence.case import Case, Truth, closed, start
from evidence.densities import LOG_2PI
from evidence.truths import line

D = torch.float64
RHO, EQUAL = 0.7, 0.9
SHAPES = torch.tensor([0.5, 0.8, 1.2, 2.0, 3.0, 4.0, 6.0, 8.0], dtype=D)
SLANT = torch.linspace(-2.0, 4.0, 10, dtype=D)
ALPHA = torch.linspace(0.6, 6.0, 10, dtype=D)
ORDERS = torch.tensor([-1.5, 0.0, 0.5, 2.0], dtype=D)
SHARPNESS = torch.tensor([0.3, 1.0, 2.0, 0.5], dtype=D)
SPREAD = torch.logspace(math.log10(0.5), math.log10(2.0), 50, dtype=D)


def autoregressive(x: Tensor) -> Tensor:
    """A stationary AR(1) path with standard deviation 1 and correlation .7."""
    steps = x[:, 1:] - RHO * x[:, :-1]
    return -0.5 * (x[:, 0].square() + steps.square().sum(-1) / (1 - RHO**2))


def equicorrelated(x: Tensor) -> Tensor:
    """Standard deviations 1 and all correlations .9; the inverse is of Sherman and Morrison."""
    inside, d = 1 - EQUAL, x.shape[-1]
    common = EQUAL / (inside + d * EQUAL) * x.sum(-1).square()
    return -0.5 * (x.square().sum(-1) - common) / inside


def shifted(x: Tensor) -> Tensor:
    """Independent, around 1, with standard deviations .5 to 2."""
    return -0.5 * ((x - 1) / SPREAD.to(x)).square().sum(-1)


def log_gamma(x: Tensor) -> Tensor:
    """Logarithms of gamma variables."""
    return (SHAPES.to(x) * x - x.exp()).sum(-1)


def gumbel(x: Tensor) -> Tensor:
    """Gumbel's extreme values."""
    return -(x + (-x).exp()).sum(-1)


def dirichlet(x: Tensor) -> Tensor:
    """Dirichlet probabilities p, with x_i = log(p_i / p_10)."""
    logits = torch.cat([x, torch.zeros_like(x[:, :1])], -1)
    return (ALPHA.to(x) * logits.log_softmax(-1)).sum(-1)


def skew_normal(x: Tensor) -> Tensor:
    """Azzalini's skew-normal in ten dimensions."""
    slanted = torch.special.log_ndtr(x @ SLANT.to(x))
    return -0.5 * x.square().sum(-1) - 0.5 * x.shape[-1] * LOG_2PI + math.log(2) + slanted


def quartic(x: Tensor) -> Tensor:
    """Tails lighter than a Gaussian's."""
    return -0.25 * x.pow(4).sum(-1)


def inverse_gaussian(x: Tensor) -> Tensor:
    """Logarithms of generalised inverse Gaussian variables."""
    return (ORDERS.to(x) * x - SHARPNESS.to(x) * x.cosh()).sum(-1)


def _tilted(x: Tensor) -> Tensor:
    return -0.25 * x.pow(4) + 0.5 * x.square() + 0.6 * x


def lopsided(x: Tensor) -> Tensor:
    """Tilted along x₁, bent along x₂."""
    return _tilted(x[:, 0]) - 0.5 * ((x[:, 1] - 0.4 * x[:, 0].square()) / 0.6).square()


def _lopsided_truth() -> Truth:
    first = line(_tilted, -8, 8)
    return Truth(first + math.log(0.6) + 0.5 * LOG_2PI, 1e-9, "quadrature")


def _bessel() -> float:
    values = special.kv(ORDERS.numpy(), SHARPNESS.numpy())
    return float(sum(math.log(2 * value) for value in values))


def _ar_log_z(d: int) -> float:
    return 0.5 * (d * LOG_2PI + (d - 1) * math.log(1 - RHO**2))


def _equal_log_z(d: int) -> float:
    inside = 1 - EQUAL
    return 0.5 * (d * LOG_2PI + (d - 1) * math.log(inside) + math.log(inside + d * EQUAL))


_dirichlet = float(torch.lgamma(ALPHA).sum() - torch.lgamma(ALPHA.sum()))
_textbook = "textbook density"

CASES = (
    Case(
        "gaussian-1",
        "smooth",
        1,
        lambda x: -0.5 * x[:, 0].square(),
        closed(0.5 * LOG_2PI),
        _textbook,
    ),
    Case("gaussian-ar-100", "smooth", 100, autoregressive, closed(_ar_log_z(100)), _textbook),
    Case("gaussian-equal-10", "smooth", 10, equicorrelated, closed(_equal_log_z(10)), _textbook),
    Case(
        "gaussian-shifted-50",
        "smooth",
        50,
        shifted,
        closed(float(SPREAD.log().sum()) + 25 * LOG_2PI),
        _textbook,
    ),
    Case(
        "log-gamma-8", "smooth", 8, log_gamma, closed(float(torch.lgamma(SHAPES).sum())), _textbook
    ),
    Case("gumbel-20", "smooth", 20, gumbel, closed(0.0), _textbook, start(0.0, 2.0, 20)),
    Case("dirichlet-9", "smooth", 9, dirichlet, closed(_dirichlet), _textbook),
    Case("skew-normal-10", "smooth", 10, skew_normal, closed(0.0), "Azzalini 1985"),
    Case(
        "quartic-6",
        "smooth",
        6,
        quartic,
        closed(6 * (math.lgamma(0.25) - 0.5 * math.log(2))),
        _textbook,
    ),
    Case("inverse-gaussian-4", "smooth", 4, inverse_gaussian, closed(_bessel()), "Jørgensen 1982"),
    Case("lopsided-2", "smooth", 2, lopsided, _lopsided_truth, "this repository's tests"),
)
