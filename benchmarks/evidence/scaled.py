"""Targets whose coordinates have very different scales, or that are far from where one starts."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from evidence.case import Case, LogDensity, closed, start
from evidence.densities import LOG_2PI

D = torch.float64


def gaussian(mean: Tensor | float, scale: Tensor) -> LogDensity:
    """Independent normal coordinates, without the constant."""
    return lambda x: -0.5 * ((x - torch.as_tensor(mean).to(x)) / scale.to(x)).square().sum(-1)


def log_z(scale: Tensor) -> float:
    """log Z of `gaussian`."""
    return float(scale.log().sum()) + 0.5 * len(scale) * LOG_2PI


def _spread(low: float, high: float, d: int) -> Tensor:
    return torch.logspace(math.log10(low), math.log10(high), d, dtype=D)


def _rotation(d: int, seed: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(d, d, generator=g, dtype=D)).Q


THREE, ELEVEN, SEVEN = _spread(1e-6, 1e4, 3), _spread(1e-6, 1e4, 11), _spread(1e-3, 1e3, 7)
THREE[1] = 1.0
AXES, LENGTHS = _rotation(5, 1), _spread(1e-4, 1.0, 5)
SHAPES, UNITS = torch.tensor([1.0, 2.0, 0.7, 5.0], dtype=D), _spread(1e-4, 1e4, 4)
FAR = torch.full((5,), 1.0, dtype=D)
TIGHT = torch.full((10,), 0.01, dtype=D)
YEARS = torch.arange(1960.0, 2001.0, dtype=D)
NOISE, INTERCEPT, SLOPE = 0.3, 1e3, 10.0


def rotated(x: Tensor) -> Tensor:
    """Standard deviations 10⁻⁴ to 1 along axes that are not the coordinates'."""
    return -0.5 * ((x @ AXES.to(x)) / LENGTHS.to(x)).square().sum(-1)


def skewed(x: Tensor) -> Tensor:
    """Logarithms of gamma variables in units from 10⁻⁴ to 10⁴."""
    z = x / UNITS.to(x)
    return (SHAPES.to(x) * z - z.exp()).sum(-1)


def _levels() -> Tensor:
    g = torch.Generator().manual_seed(2)
    return -38.0 + 0.02 * YEARS + NOISE * torch.randn(len(YEARS), generator=g, dtype=D)


LEVELS = _levels()


def calendar(x: Tensor) -> Tensor:
    """A line through 41 annual values; years are not centred, so that a and b are nearly one."""
    a, b = x[:, :1], x[:, 1:]
    residual = (LEVELS.to(x) - a - b * YEARS.to(x)) / NOISE
    prior = (a[:, 0] / INTERCEPT).square() + (b[:, 0] / SLOPE).square()
    constants = len(YEARS) * math.log(NOISE) + math.log(INTERCEPT * SLOPE)
    count = len(YEARS) + 2
    return -0.5 * (residual.square().sum(-1) + prior + count * LOG_2PI) - constants


def _calendar_log_z() -> float:
    design = torch.stack([torch.ones_like(YEARS), YEARS], -1) * torch.tensor([INTERCEPT, SLOPE])
    covariance = design @ design.mT + NOISE**2 * torch.eye(len(YEARS), dtype=D)
    of_data = torch.distributions.MultivariateNormal(torch.zeros_like(YEARS), covariance)
    return float(of_data.log_prob(LEVELS))


_textbook = "textbook density"

CASES = (
    Case(
        "scales-3",
        "scaled",
        3,
        gaussian(0.0, THREE),
        closed(log_z(THREE)),
        "a user's units: 1e-6, 1 and 1e4",
        start(0.0, 2 * THREE),
    ),
    Case(
        "scales-11",
        "scaled",
        11,
        gaussian(0.0, ELEVEN),
        closed(log_z(ELEVEN)),
        _textbook,
        start(0.0, 3 * ELEVEN),
    ),
    Case(
        "scales-unknown-7",
        "scaled",
        7,
        gaussian(0.0, SEVEN),
        closed(log_z(SEVEN)),
        _textbook,
        start(0.0, 1e3, 7),
        notes="q0 is as wide as the widest coordinate everywhere",
    ),
    Case(
        "scales-offset-3",
        "scaled",
        3,
        gaussian(5 * THREE, THREE),
        closed(log_z(THREE)),
        _textbook,
        start(0.0, 10 * THREE),
    ),
    Case(
        "rotated-5",
        "scaled",
        5,
        rotated,
        closed(log_z(LENGTHS)),
        _textbook,
        notes="condition number 10⁸, not along the coordinates",
    ),
    Case(
        "far-5",
        "scaled",
        5,
        gaussian(50.0, FAR),
        closed(log_z(FAR)),
        _textbook,
        start(0.0, 30.0, 5),
        notes="1.7 standard deviations of q0 from its mean in each coordinate",
    ),
    Case(
        "far-default-5",
        "scaled",
        5,
        gaussian(50.0, FAR),
        closed(log_z(FAR)),
        _textbook,
        notes="50 standard deviations of the default q0 from its mean in each coordinate",
    ),
    Case(
        "tight-10",
        "scaled",
        10,
        gaussian(3.0, TIGHT),
        closed(log_z(TIGHT)),
        _textbook,
        start(0.0, 10.0, 10),
        notes="a thousandth of q0's width",
    ),
    Case(
        "skewed-scales-4",
        "scaled",
        4,
        skewed,
        closed(float(torch.lgamma(SHAPES).sum() + UNITS.log().sum())),
        _textbook,
        start(0.0, 3 * UNITS),
    ),
    Case(
        "calendar-2",
        "scaled",
        2,
        calendar,
        closed(_calendar_log_z()),
        "regression on the year, simulated data",
        start(0.0, [INTERCEPT, SLOPE]),
        notes="q0 is the prior; correlation of intercept and slope -.99998",
    ),
)
