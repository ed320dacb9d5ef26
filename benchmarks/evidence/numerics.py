"""Targets that try the arithmetic: single precision, offsets, cancellation, many observations."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from evidence.case import Case, Truth, closed, start
from evidence.datasets import noise, uniform
from evidence.densities import (
    LOG_2PI,
    bernoulli_logit,
    half_normal_log,
    logit_uniform,
    normal,
    poisson_log,
)
from evidence.heavy import student, student_log_z
from evidence.marginals import regression
from evidence.truths import line, long_run

D, F = torch.float64, torch.float32
N = 10_000


def gaussian(x: Tensor) -> Tensor:
    """N(1, .5²) in each coordinate, without the constant."""
    return -2 * (x - 1).square().sum(-1)


def gaussian_log_z(d: int) -> float:
    """log Z of `gaussian`."""
    return d * (math.log(0.5) + 0.5 * LOG_2PI)


OFFSET = 1e6
TRIALS, SUCCESSES = 5_000_000, 3849


def rare(x: Tensor) -> Tensor:
    """3849 successes of 5·10⁶ with a uniform probability, as a logit."""
    p = x[:, 0]
    likelihood = SUCCESSES * logsigmoid(p) + (TRIALS - SUCCESSES) * logsigmoid(-p)
    return likelihood + logit_uniform(p)


def _rare_log_z() -> float:
    a, b = SUCCESSES + 1, TRIALS - SUCCESSES + 1
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


HUNDREDS = 100 + noise(N, 31)


def expanded_square(x: Tensor) -> Tensor:
    """The mean of 10⁴ numbers around 100 by Σy² - 2μΣy + nμ², which cancels."""
    y, mean = HUNDREDS.to(x), x[:, 0]
    return -0.5 * (y.square().sum() - 2 * mean * y.sum() + N * mean.square())


def _expanded_log_z() -> float:
    spread = float((HUNDREDS - HUNDREDS.mean()).square().sum())
    return 0.5 * (LOG_2PI - math.log(N)) - 0.5 * spread


LEVELS = 3 + 0.7 * noise(N, 32)


def location_scale(x: Tensor) -> Tensor:
    """Mean and log scale of 10⁴ normal observations."""
    mean, log_sd = x[:, :1], x[:, 1:]
    prior = normal(mean, 0.0, 10.0) + half_normal_log(log_sd, 5.0)
    return normal(LEVELS.to(x), mean, log_sd.exp()).sum(-1) + prior[:, 0]


def location_scale_truth() -> Truth:
    """The mean in closed form, the log scale by quadrature."""
    ones, sd = torch.ones(N, 1, dtype=D), torch.tensor([10.0], dtype=D)

    def marginal(t: Tensor) -> Tensor:
        return regression(LEVELS, ones, t.exp(), sd) + half_normal_log(t, 5.0)

    return Truth(line(marginal, -0.5, -0.2, 400), 1e-9, "quadrature")


def _design(d: int, seed: int) -> Tensor:
    columns = [noise(N, seed + i) for i in range(d - 1)]
    return torch.stack([torch.ones(N, dtype=D), *columns], -1)


BINARY_DESIGN, BINARY_EFFECTS = _design(6, 41), torch.tensor([-1.0, 0.5, -0.3, 0.8, 0.0, 0.2])
BINARY = (uniform(N, 40) < (BINARY_DESIGN @ BINARY_EFFECTS.to(D)).sigmoid()).to(D)


def logistic_regression(x: Tensor) -> Tensor:
    """10⁴ binary outcomes, intercept and five effects, prior N(0, 2²)."""
    likelihood = bernoulli_logit(BINARY.to(x), x @ BINARY_DESIGN.to(x).mT).sum(-1)
    return likelihood + normal(x, 0.0, 2.0).sum(-1)


COUNT_DESIGN, COUNT_EFFECTS = _design(4, 51), torch.tensor([0.5, 0.3, -0.2, 0.1])


def _counts() -> Tensor:
    """Poisson counts by inverting their distribution function at uniform numbers."""
    rate, u = (COUNT_DESIGN @ COUNT_EFFECTS.to(D)).exp(), uniform(N, 50)
    k = torch.arange(40, dtype=D)
    below = (k * rate.log()[:, None] - rate[:, None] - torch.lgamma(k + 1)).exp().cumsum(-1)
    return (u[:, None] > below).sum(-1).to(D)


COUNTS = _counts()


def poisson_regression(x: Tensor) -> Tensor:
    """10⁴ counts, intercept and three effects, prior N(0, 2²)."""
    likelihood = poisson_log(COUNTS.to(x), x @ COUNT_DESIGN.to(x).mT).sum(-1)
    return likelihood + normal(x, 0.0, 2.0).sum(-1)


_textbook, _simulated = "textbook density", "simulated data"

CASES = (
    Case(
        "float32-gaussian-10",
        "numerics",
        10,
        gaussian,
        closed(gaussian_log_z(10)),
        _textbook,
        start(0.0, 1.5, 10, F),
        dtype=F,
    ),
    Case(
        "float32-t5-5",
        "numerics",
        5,
        student(5),
        closed(student_log_z(5, 5)),
        _textbook,
        start(0.0, 1.5, 5, F),
        dtype=F,
    ),
    Case(
        "float32-offset-5",
        "numerics",
        5,
        lambda x: gaussian(x) + OFFSET,
        closed(gaussian_log_z(5) + OFFSET),
        "a constant of 10⁶ left in",
        start(0.0, 1.5, 5, F),
        notes="rounding noise of about .02 nats",
        dtype=F,
    ),
    Case(
        "float32-binomial-1",
        "numerics",
        1,
        rare,
        closed(_rare_log_z()),
        "a user's report",
        start(-6.0, 3.0, 1, F),
        expected="flagged",
        notes="rounding noise of several nats",
        dtype=F,
    ),
    Case(
        "float32-cancelled-1",
        "numerics",
        1,
        expanded_square,
        closed(_expanded_log_z()),
        "a sum of squares, expanded",
        start(100.0, 1.0, 1, F),
        expected="flagged",
        notes="rounding noise of several nats",
        dtype=F,
    ),
    Case(
        "float32-logistic-regression-6",
        "numerics",
        6,
        logistic_regression,
        long_run("logistic-regression-6"),
        _simulated,
        start(0.0, 2.0, 6, F),
        notes="10⁴ observations in single precision",
        dtype=F,
    ),
    Case(
        "offset-5",
        "numerics",
        5,
        lambda x: gaussian(x) + OFFSET,
        closed(gaussian_log_z(5) + OFFSET),
        "a constant of 10⁶ left in",
    ),
    Case(
        "logistic-regression-6",
        "numerics",
        6,
        logistic_regression,
        long_run("logistic-regression-6"),
        _simulated,
        start(0.0, 2.0, 6),
        notes="10⁴ observations",
    ),
    Case(
        "poisson-regression-4",
        "numerics",
        4,
        poisson_regression,
        long_run("poisson-regression-4"),
        _simulated,
        start(0.0, 2.0, 4),
        notes="10⁴ observations",
    ),
    Case(
        "location-scale-2",
        "numerics",
        2,
        location_scale,
        location_scale_truth,
        _simulated,
        start([0.0, 0.0], [10.0, 1.5]),
        notes="10⁴ observations",
    ),
)
