"""Flat targets: those with an infinite integral, and proper ones whose top is flat."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from evidence.case import Case, LogDensity, closed, start
from evidence.datasets import LAUNCH_TEMPERATURE, SCHOOL_ERRORS, SCHOOLS, noise
from evidence.densities import bernoulli_logit, logit_uniform, normal
from steinis_lib import Gaussian

D = torch.float64


def ridge(x: Tensor) -> Tensor:
    """Normal in x₁ + x₂, and constant along the other diagonal."""
    return -0.5 * x.sum(-1).square()


def slow_tails(x: Tensor) -> Tensor:
    """1 / √(1 + x²): the integral grows with the logarithm of the range."""
    return -0.5 * x[:, 0].square().log1p()


def separated(x: Tensor) -> Tensor:
    """Logistic regression with a flat prior on data that a threshold separates."""
    warm = LAUNCH_TEMPERATURE.to(x)
    t = (warm - 65) / 7
    return bernoulli_logit((t > 0).to(x), x[:, :1] + x[:, 1:] * t).sum(-1)


def collinear(x: Tensor) -> Tensor:
    """Regression with a flat prior on three columns, of which one is the sum of the others."""
    a, b, e = noise(30, 11).to(x), noise(30, 12).to(x), noise(30, 13).to(x)
    fit = x[:, :1] * a + x[:, 1:2] * b + x[:, 2:] * (a + b)
    return normal(a - b + e, fit, 1.0).sum(-1)


def schools_flat_log_scale(x: Tensor) -> Tensor:
    """Eight schools with p(μ, log τ) constant: the integral diverges at τ = 0."""
    mu, tau = x[:, :1], x[:, 1:].exp()
    spread = (SCHOOL_ERRORS.to(x).square() + tau.square()).sqrt()
    return normal(SCHOOLS.to(x), mu, spread).sum(-1)


def uniform_in_logits(x: Tensor) -> Tensor:
    """Uniform on the unit cube, in logits."""
    return logit_uniform(x).sum(-1)


def plateau(x: Tensor) -> Tensor:
    """exp(-(x / 3)⁸): flat on top, with steep sides."""
    return -(x / 3).pow(8).sum(-1)


def smooth_box(x: Tensor) -> Tensor:
    """1 on [-5, 5] in each coordinate, with logistic edges of width .1."""
    return (logsigmoid((x + 5) / 0.1) + logsigmoid((5 - x) / 0.1)).sum(-1)


def _box_log_z(d: int) -> float:
    """∫ σ((x + c) / s) σ((c - x) / s) dx = 2c / (1 - exp(-2c / s))."""
    return d * math.log(10 / -math.expm1(-100))


def _improper(
    name: str, d: int, f: LogDensity, notes: str, source: str, q0: Gaussian | None = None
) -> Case:
    return Case(name, "flat", d, f, closed(math.inf), source, q0, expected="flagged", notes=notes)


_textbook = "textbook density"

CASES = (
    _improper("constant-1", 1, lambda x: 0 * x[:, 0], "no decay at all", _textbook),
    _improper("exponential-1", 1, lambda x: x[:, 0], "grows without a bound", _textbook),
    _improper("ridge-2", 2, ridge, "constant along a line", _textbook),
    _improper("slow-tails-1", 1, slow_tails, "diverges as slowly as it can", _textbook),
    _improper(
        "separated-2", 2, separated, "no finite maximum", "logistic regression, simulated data"
    ),
    _improper("collinear-3", 3, collinear, "constant along a line", "regression, simulated data"),
    _improper(
        "eight-schools-flat-2",
        2,
        schools_flat_log_scale,
        "constant as log τ → -∞",
        "Gelman 2006",
        start([5.0, 1.0], [10.0, 2.0]),
    ),
    Case("uniform-logits-10", "flat", 10, uniform_in_logits, closed(0.0), _textbook),
    Case(
        "plateau-5",
        "flat",
        5,
        plateau,
        closed(5 * (math.log(6) + math.lgamma(9 / 8))),
        _textbook,
        start(0.0, 3.0, 5),
    ),
    Case(
        "box-3",
        "flat",
        3,
        smooth_box,
        closed(_box_log_z(3)),
        _textbook,
        start(0.0, 5.0, 3),
        notes="gradients vanish inside",
    ),
)
