"""Models of time series, of simulated data."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from evidence.case import Case, Truth, start
from evidence.cube import logistic
from evidence.datasets import noise
from evidence.densities import LOG_2PI, half_cauchy_log, half_normal_log, logit_uniform, normal
from evidence.marginals import regression
from evidence.truths import line, long_run

D = torch.float64
LAGS = 5


def _series() -> Tensor:
    y, e = [0.5] * LAGS, noise(200, 24)
    for i in range(200):
        past = y[-1:-4:-1]
        y.append(0.2 + 0.5 * past[0] + 0.2 * past[1] - 0.1 * past[2] + 0.15 * float(e[i]))
    return torch.tensor(y, dtype=D)


SERIES = _series()
AR_DESIGN = torch.stack(
    [torch.ones(200, dtype=D), *(SERIES[LAGS - k : -k] for k in range(1, LAGS + 1))], -1
)
AR_PRIOR = torch.full((LAGS + 1,), 10.0, dtype=D)


def autoregression(x: Tensor) -> Tensor:
    """An intercept, five lags and log σ, with wide priors (arK)."""
    b, log_sd = x[:, : LAGS + 1], x[:, LAGS + 1 :]
    likelihood = normal(SERIES[LAGS:].to(x), b @ AR_DESIGN.to(x).mT, log_sd.exp()).sum(-1)
    return likelihood + normal(b, 0.0, 10.0).sum(-1) + half_cauchy_log(log_sd, 2.5)[:, 0]


def autoregression_truth() -> Truth:
    """Coefficients in closed form, log σ by quadrature."""

    def marginal(t: Tensor) -> Tensor:
        return regression(SERIES[LAGS:], AR_DESIGN, t.exp(), AR_PRIOR) + half_cauchy_log(t, 2.5)

    return Truth(line(marginal, -3.5, 0, 1000), 1e-9, "quadrature")


def _returns() -> Tensor:
    e, y, variance = noise(200, 25), [], 1.0
    for i in range(200):
        y.append(5.0 + math.sqrt(variance) * float(e[i]))
        variance = 0.6 + 0.35 * (y[-1] - 5.0) ** 2 + 0.3 * variance
    return torch.tensor(y, dtype=D)


RETURNS = _returns()


def garch(x: Tensor) -> Tensor:
    """GARCH(1, 1): mean, log α₀, and logits of α₁ in (0, 1) and of β₁ / (1 - α₁)."""
    mean, log_floor = x[:, 0], x[:, 1]
    shock = x[:, 2].sigmoid()
    memory = (1 - shock) * x[:, 3].sigmoid()
    variance, total = torch.ones_like(mean), torch.zeros_like(mean)
    for y in RETURNS.to(x):
        total = total - 0.5 * ((y - mean).square() / variance + variance.log() + LOG_2PI)
        variance = log_floor.exp() + shock * (y - mean).square() + memory * variance
    prior = normal(mean, 0.0, 10.0) + half_normal_log(log_floor, 5.0)
    return total + prior + logit_uniform(x[:, 2]) + logit_uniform(x[:, 3])


_wide_ar = start([0.5] + 5 * [0.0] + [-1.0], 7 * [1.0])
_garch_q0 = start([5.0, -0.5, -1.0, 0.0], [1.0, 1.0, 1.5, 1.5])

CASES = (
    Case(
        "ark-simulated-7",
        "models",
        7,
        autoregression,
        autoregression_truth,
        "after posteriordb, simulated data",
        _wide_ar,
    ),
    Case(
        "garch-simulated-4",
        "models",
        4,
        garch,
        long_run("garch-simulated-4"),
        "after posteriordb, simulated data",
        _garch_q0,
        logistic(_garch_q0),
    ),
)
