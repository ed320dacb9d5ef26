"""Models of real data and their simulated likes, with normal errors: regressions and a t-test."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from evidence.case import Case, Truth, start
from evidence.datasets import ADJUSTED, DENSITY, SLEEP, STRENGTH, column, noise, uniform
from evidence.densities import gamma_log, half_cauchy_log, half_normal_log, normal
from evidence.marginals import random_intercepts, regression
from evidence.truths import line, on_grid

D = torch.float64

# ------------------------------------------------------------------------------- radiata pine

CENTRE, SPREAD = torch.tensor([3000.0, 185.0], dtype=D), torch.tensor([1000.0, 100.0], dtype=D)
SHAPE, RATE = 3.0, 180_000.0


def pine(x: Tensor, predictor: Tensor) -> Tensor:
    """Strength by density: intercept, slope and log precision, independent a priori."""
    log_tau, z = x[:, 2:], (predictor - predictor.mean()).to(x)
    likelihood = normal(STRENGTH.to(x), x[:, :1] + x[:, 1:2] * z, (-0.5 * log_tau).exp()).sum(-1)
    prior = normal(x[:, :2], CENTRE.to(x), SPREAD.to(x)).sum(-1)
    return likelihood + prior + gamma_log(log_tau, SHAPE, RATE)[:, 0]


def pine_truth(predictor: Tensor) -> Truth:
    """Intercept and slope in closed form, log precision by quadrature."""
    z = predictor - predictor.mean()
    design = torch.stack([torch.ones_like(z), z], -1)
    residual = STRENGTH - design @ CENTRE

    def marginal(t: Tensor) -> Tensor:
        data = regression(residual, design, (-0.5 * t).exp(), SPREAD)
        return data + gamma_log(t, SHAPE, RATE)

    return Truth(line(marginal, -14, -9, 400), 1e-9, "quadrature")


def _pine(name: str, predictor: Tensor) -> Case:
    return Case(
        name,
        "models",
        3,
        lambda x: pine(x, predictor),
        lambda: pine_truth(predictor),
        "Williams 1959, Green & O'Hagan 1998",
        start([3000.0, 185.0, -11.1], [1000.0, 100.0, 0.7]),
        notes="units of the data; q0 is about the prior; exact Bayes factor 4862",
    )


# ----------------------------------------------------------------------------------- kidscore


def _kids() -> tuple[Tensor, Tensor, Tensor]:
    school = (uniform(434, 21) < 0.79).to(D)
    iq = 100 + 15 * noise(434, 22)
    score = -11.0 + 51.0 * school + 1.1 * iq - 0.48 * school * iq + 18 * noise(434, 23)
    return school, iq, score


SCHOOL, IQ, SCORE = _kids()
KID_DESIGN = torch.stack([torch.ones_like(IQ), SCHOOL, IQ, SCHOOL * IQ], -1)
KID_PRIOR = torch.tensor([100.0, 100.0, 10.0, 10.0], dtype=D)


def kidscore(x: Tensor) -> Tensor:
    """Score by mother's school, IQ and their product, nothing centred, and log σ."""
    b, log_sd = x[:, :4], x[:, 4:]
    likelihood = normal(SCORE.to(x), b @ KID_DESIGN.to(x).mT, log_sd.exp()).sum(-1)
    return (
        likelihood + normal(b, 0.0, KID_PRIOR.to(x)).sum(-1) + half_cauchy_log(log_sd, 25.0)[:, 0]
    )


def kidscore_truth() -> Truth:
    """Coefficients in closed form, log σ by quadrature."""

    def marginal(t: Tensor) -> Tensor:
        return regression(SCORE, KID_DESIGN, t.exp(), KID_PRIOR) + half_cauchy_log(t, 25.0)

    return Truth(line(marginal, 2, 4.5, 1000), 1e-9, "quadrature")


# -------------------------------------------------------------------------------------- radon

COUNTY, FLOOR, RADON = column("radon", "county", "floor", "log_radon")
COUNTY = COUNTY.long() - 1
N_COUNTIES = int(COUNTY.max()) + 1


def radon(x: Tensor, centred: bool) -> Tensor:
    """County intercepts (or their scores), their mean, the effect of the floor, two log scales."""
    inner, mean, effect = x[:, :N_COUNTIES], x[:, -4:-3], x[:, -3:-2]
    log_between, log_within = x[:, -2:-1], x[:, -1:]
    between = log_between.exp()
    if centred:
        intercepts, prior = inner, normal(inner, mean, between)
    else:
        intercepts, prior = mean + between * inner, normal(inner, 0.0, 1.0)
    fit = intercepts[:, COUNTY] + effect * FLOOR.to(x)
    scales = half_normal_log(log_between, 1.0) + half_normal_log(log_within, 1.0)
    top = normal(mean, 0.0, 10.0) + normal(effect, 0.0, 10.0) + scales
    return normal(RADON.to(x), fit, log_within.exp()).sum(-1) + prior.sum(-1) + top[:, 0]


def radon_truth() -> Truth:
    """Intercepts, mean and effect in closed form, both log scales by quadrature."""
    design, sd = torch.stack([torch.ones_like(RADON), FLOOR], -1), torch.tensor([10.0, 10.0])

    def marginal(t: Tensor) -> Tensor:
        data = random_intercepts(RADON, COUNTY, design, t[:, 0].exp(), t[:, 1].exp(), sd.to(D))
        return data + half_normal_log(t[:, 0], 1.0) + half_normal_log(t[:, 1], 1.0)

    return on_grid(marginal, [(-3, 1), (-0.6, 0.1)], [80, 60])


def _radon(name: str, centred: bool) -> Case:
    mean, scale = ([1.0], [1.0]) if centred else ([0.0], [1.0])
    q0 = start(N_COUNTIES * mean + [1.0, 0.0, -0.5, -0.5], N_COUNTIES * scale + 4 * [1.0])
    source = "Gelman & Hill 2007"
    return Case(
        name, "models", N_COUNTIES + 4, lambda x: radon(x, centred), radon_truth, source, q0
    )


# ------------------------------------------------------------------------------------- t-test

WIDTH = math.sqrt(0.5)


def t_test(x: Tensor) -> Tensor:
    """H1 of the Bayesian t-test: effect size δ ~ Cauchy(.707), and log σ, p(σ²) = 1 / σ²."""
    delta, sd = x[:, :1], x[:, 1:].exp()
    prior = -math.log(math.pi * WIDTH) - (delta[:, 0] / WIDTH).square().log1p() + math.log(2)
    return normal(SLEEP.to(x), sd * delta, sd).sum(-1) + prior


def t_test_null() -> float:
    """log Z under δ = 0."""
    n, square = len(SLEEP), float(SLEEP.square().sum())
    return math.lgamma(n / 2) - 0.5 * n * math.log(math.pi * square)


def t_test_truth() -> Truth:
    """Both parameters by quadrature."""
    return on_grid(t_test, [(-2, 5), (-1.5, 2.5)], 300)


CASES = (
    _pine("radiata-density-3", DENSITY),
    _pine("radiata-adjusted-3", ADJUSTED),
    Case(
        "kidscore-simulated-5",
        "models",
        5,
        kidscore,
        kidscore_truth,
        "after Gelman & Hill 2007, simulated data",
        start([0.0, 0.0, 0.0, 0.0, 3.0], [100.0, 100.0, 10.0, 10.0, 1.0]),
        notes="coefficients of a product, not centred; q0 is the prior",
    ),
    _radon("radon-centred-89", True),
    _radon("radon-non-centred-89", False),
    Case(
        "sleep-t-test-2",
        "models",
        2,
        t_test,
        t_test_truth,
        "Student 1908, Rouder et al. 2009",
        start([0.0, 0.5], [2.0, 1.0]),
        notes="published Bayes factor against δ = 0: 17.26",
    ),
)
