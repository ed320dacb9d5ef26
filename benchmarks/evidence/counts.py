"""Models of real data and their simulated likes: binary and count data, change points, mixtures."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from evidence.case import Case, Truth, closed, start
from evidence.cube import cauchy
from evidence.datasets import (
    ANIMALS,
    DEATHS,
    DOSES,
    LAUNCH_FAILURE,
    LAUNCH_TEMPERATURE,
    column,
    standardised,
)
from evidence.densities import (
    bernoulli_logit,
    gamma_log,
    half_normal_log,
    logit_uniform,
    normal,
    poisson_log,
)
from evidence.truths import long_run, on_grid

D = torch.float64


def beta_binomial(x: Tensor) -> Tensor:
    """A probability with prior Beta(2, 3) and 7 successes of 20, as a logit."""
    p = x[:, 0]
    constant = math.lgamma(5) - math.lgamma(2) - math.lgamma(3) + math.log(math.comb(20, 7))
    return 9 * logsigmoid(p) + 16 * logsigmoid(-p) + constant


def _beta_binomial_log_z() -> float:
    prior = math.lgamma(5) - math.lgamma(2) - math.lgamma(3)
    late = math.lgamma(9) + math.lgamma(16) - math.lgamma(25)
    return prior + late + math.log(math.comb(20, 7))


LAUNCHES = standardised(LAUNCH_TEMPERATURE)


def o_rings(x: Tensor) -> Tensor:
    """Failure by temperature, prior N(0, 5²)."""
    likelihood = bernoulli_logit(LAUNCH_FAILURE.to(x), x @ LAUNCHES.to(x).mT)
    return likelihood.sum(-1) + normal(x, 0.0, 5.0).sum(-1)


def bioassay(x: Tensor) -> Tensor:
    """Deaths by log-dose, with a flat prior."""
    logits = x[:, :1] + x[:, 1:] * DOSES.to(x)
    deaths = DEATHS.to(x)
    return (deaths * logsigmoid(logits) + (ANIMALS - deaths) * logsigmoid(-logits)).sum(-1)


SIGNS = torch.tensor([-1.5, -1.0, -0.7, -0.2, 0.3, 0.4, 0.9, 1.6], dtype=D)


def separable(x: Tensor) -> Tensor:
    """Separable data under Cauchy priors of scales 10 and 2.5: tails as heavy as the priors'."""
    scales = torch.tensor([10.0, 2.5]).to(x)
    prior = -(math.pi * scales).log() - (x / scales).square().log1p()
    logits = x[:, :1] + x[:, 1:] * SIGNS.to(x)
    return bernoulli_logit((SIGNS > 0).to(x), logits).sum(-1) + prior.sum(-1)


def separable_truth() -> Truth:
    """Both coordinates by quadrature after x = sinh t."""

    def in_sinh(t: Tensor) -> Tensor:
        return separable(t.sinh()) + t.cosh().log().sum(-1)

    return on_grid(in_sinh, [(-22, 22), (-22, 24)], [1760, 1840])


PIMA = column("pima", "npreg", "glu", "bp", "skin", "bmi", "ped", "age")
DIABETES = column("pima", "diabetes")[0]
PIMA_DESIGN = standardised(*PIMA)


def pima(x: Tensor) -> Tensor:
    """Diabetes by seven standardised predictors, prior N(0, 10²)."""
    likelihood = bernoulli_logit(DIABETES.to(x), x @ PIMA_DESIGN.to(x).mT).sum(-1)
    return likelihood + normal(x, 0.0, 10.0).sum(-1)


SWITCHED, *WELLS = column("wells", "switched", "arsenic", "distance", "education")
WELL_DESIGN = standardised(*WELLS)


def wells(x: Tensor) -> Tensor:
    """3020 households: change of well by arsenic, distance and education, prior N(0, 2.5²)."""
    likelihood = bernoulli_logit(SWITCHED.to(x), x @ WELL_DESIGN.to(x).mT).sum(-1)
    return likelihood + normal(x, 0.0, 2.5).sum(-1)


(DISASTERS,) = column("coal", "disasters")
YEARS = len(DISASTERS)
EARLY = torch.tril(torch.ones(YEARS - 1, YEARS, dtype=D))


def coal(x: Tensor) -> Tensor:
    """Log rates before and after a change point, Gamma(1, 1), summed over its 111 places."""
    before, after = (poisson_log(DISASTERS.to(x), x[:, i : i + 1]) for i in range(2))
    places = before @ EARLY.to(x).mT + after @ (1 - EARLY).to(x).mT
    return torch.logsumexp(places, -1) - math.log(YEARS - 1) + gamma_log(x, 1.0, 1.0).sum(-1)


def coal_truth() -> Truth:
    """A sum over change points of gamma integrals."""

    def side(share: Tensor) -> Tensor:
        count = share @ DISASTERS
        return torch.lgamma(count + 1) - (count + 1) * (share.sum(-1) + 1).log()

    constant = float(torch.lgamma(DISASTERS + 1).sum()) + math.log(YEARS - 1)
    value = torch.logsumexp(side(EARLY) + side(1 - EARLY), 0)
    return Truth(float(value) - constant, 1e-9, "enumeration")


(GALAXIES,) = column("galaxies", "velocity")


def galaxies(x: Tensor) -> Tensor:
    """Two equal components: unordered means, prior N(20, 10²), and a common log scale."""
    y, sd = GALAXIES.to(x)[:, None] / 1000, x[:, 2:, None].exp()
    terms = normal(y, x[:, None, :2], sd) - math.log(2)
    prior = normal(x[:, :2], 20.0, 10.0).sum(-1) + half_normal_log(x[:, 2], 5.0)
    return torch.logsumexp(terms, -1).sum(-1) + prior


(ERUPTIONS,) = column("faithful", "eruptions")


def faithful(x: Tensor) -> Tensor:
    """Two normal components: the lower mean, log gap, two log scales, logit of a weight."""
    low, gap = x[:, :1], x[:, 1:2]
    y, shares = ERUPTIONS.to(x), x[:, 4:5]
    first = logsigmoid(shares) + normal(y, low, x[:, 2:3].exp())
    second = logsigmoid(-shares) + normal(y, low + gap.exp(), x[:, 3:4].exp())
    prior = normal(low, 3.0, 2.0) + normal(gap, 0.0, 1.0) + logit_uniform(shares)
    scales = half_normal_log(x[:, 2:4], 1.0).sum(-1)
    return torch.logaddexp(first, second).sum(-1) + prior[:, 0] + scales


CASES = (
    Case(
        "beta-binomial-1",
        "models",
        1,
        beta_binomial,
        closed(_beta_binomial_log_z()),
        "textbook model",
    ),
    Case(
        "o-rings-2",
        "models",
        2,
        o_rings,
        lambda: on_grid(o_rings, [(-8, 6), (-10, 6)], 200),
        "Dalal et al. 1989",
        start(0.0, 5.0, 2),
    ),
    Case(
        "bioassay-2",
        "models",
        2,
        bioassay,
        lambda: on_grid(bioassay, [(-12, 22), (-20, 120)], [400, 800]),
        "Racine et al. 1986",
        start([0.0, 10.0], [5.0, 15.0]),
    ),
    Case(
        "separable-cauchy-2",
        "models",
        2,
        separable,
        separable_truth,
        "Gelman et al. 2008, made-up data",
        start(0.0, [10.0, 5.0]),
        cauchy(5.0),
        notes="separable data; one tail is as heavy as the prior's",
    ),
    Case("pima-8", "models", 8, pima, long_run("pima-8"), "Smith et al. 1988", start(0.0, 2.0, 8)),
    Case(
        "wells-4",
        "models",
        4,
        wells,
        long_run("wells-4"),
        "Gelman & Hill 2007",
        start(0.0, 2.5, 4),
        notes="3020 observations; q0 is the prior",
    ),
    Case("coal-2", "models", 2, coal, coal_truth, "Jarrett 1979", start(0.0, 1.5, 2)),
    Case(
        "galaxies-3",
        "models",
        3,
        galaxies,
        lambda: on_grid(galaxies, [(4, 40), (4, 40), (0.5, 2.2)], [120, 120, 40]),
        "Roeder 1990",
        start([20.0, 20.0, 1.0], [10.0, 10.0, 0.7]),
        notes="label switching; q0 is about the prior",
    ),
    Case(
        "faithful-5",
        "models",
        5,
        faithful,
        long_run("faithful-5"),
        "Azzalini & Bowman 1990",
        start([3.0, 0.0, -1.0, -1.0, 0.0], [2.0, 1.0, 1.0, 1.0, 1.5]),
    ),
)
