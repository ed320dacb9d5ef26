"""Hierarchical targets: scales of groups, in the forms that users write first and better ones."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from evidence.case import Case, LogDensity, Truth, closed, start
from evidence.cube import cauchy, logistic
from evidence.datasets import SCHOOL_ERRORS, SCHOOLS
from evidence.densities import half_cauchy_log, normal
from evidence.truths import line

D = torch.float64


def schools(x: Tensor, centred: bool) -> Tensor:
    """Effects θ (or their standard scores), μ ~ N(0, 5²), and log τ, τ half-Cauchy(5)."""
    inner, mu, log_tau = x[:, :8], x[:, 8:9], x[:, 9:]
    tau = log_tau.exp()
    if centred:
        theta, prior = inner, normal(inner, mu, tau)
    else:
        theta, prior = mu + tau * inner, normal(inner, 0.0, 1.0)
    hyper = normal(mu, 0.0, 5.0) + half_cauchy_log(log_tau, 5.0)
    likelihood = normal(SCHOOLS.to(x), theta, SCHOOL_ERRORS.to(x))
    return (likelihood + prior).sum(-1) + hyper[:, 0]


def schools_truth() -> Truth:
    """Effects and μ in closed form, log τ by quadrature."""

    def marginal(t: Tensor) -> Tensor:
        variance = SCHOOL_ERRORS.square() + t.exp().square()[:, None]
        covariance = torch.diag_embed(variance) + 25.0
        of_data = torch.distributions.MultivariateNormal(torch.zeros(8, dtype=D), covariance)
        return of_data.log_prob(SCHOOLS) + half_cauchy_log(t, 5.0)

    return Truth(line(marginal, -30, 15, 2000), 1e-9, "quadrature")


def funnel(x: Tensor) -> Tensor:
    """Neal's funnel: v ~ N(0, 3²), and x_i ~ N(0, eᵛ)."""
    v = x[:, :1]
    return normal(v, 0.0, 3.0)[:, 0] + normal(x[:, 1:], 0.0, (0.5 * v).exp()).sum(-1)


SPARSE = torch.tensor([0.2, -0.5, 4.0, 1.1, -6.0], dtype=D)


def horseshoe(x: Tensor, centred: bool) -> Tensor:
    """Five normal means under the horseshoe: β (or their scores), log λ, log τ."""
    inner, log_local, log_global = x[:, :5], x[:, 5:10], x[:, 10:]
    scale = (log_local + log_global).exp()
    beta, prior = inner, normal(inner, 0.0, scale) if centred else normal(inner, 0.0, 1.0)
    if not centred:
        beta = scale * inner
    hyper = half_cauchy_log(log_local, 1.0).sum(-1) + half_cauchy_log(log_global, 1.0)[:, 0]
    return (normal(SPARSE.to(x), beta, 1.0) + prior).sum(-1) + hyper


def horseshoe_truth() -> Truth:
    """β in closed form, each log λ by quadrature, and log τ by quadrature of their product."""
    local = torch.linspace(-40, 40, 401, dtype=D)
    step = math.log(float(local[1] - local[0]))

    def marginal(t: Tensor) -> Tensor:
        sd = (1 + (2 * (t[:, None] + local)).exp()).sqrt()
        each = [
            torch.logsumexp(normal(y, 0.0, sd) + half_cauchy_log(local, 1.0), -1) + step
            for y in SPARSE
        ]
        return torch.stack(each).sum(0) + half_cauchy_log(t, 1.0)

    return Truth(line(marginal, -40, 40, 400), 1e-8, "quadrature")


def hierarchical(
    name: str,
    d: int,
    f: LogDensity,
    find: Callable[[], Truth],
    source: str,
    mean: list[float],
    sd: list[float],
    notes: str,
) -> Case:
    """Return a case whose q0 has this mean and these standard deviations."""
    q0 = start(mean, sd)
    return Case(name, "hierarchical", d, f, find, source, q0, logistic(q0), "right", notes)


_rubin, _neal, _carvalho = "Rubin 1981", "Neal 2003", "Carvalho et al. 2010"

CASES = (
    hierarchical(
        "eight-schools-centred-10",
        10,
        lambda x: schools(x, True),
        schools_truth,
        _rubin,
        8 * [0.0] + [0.0, 1.5],
        8 * [10.0] + [5.0, 1.5],
        "a funnel at small τ",
    ),
    hierarchical(
        "eight-schools-non-centred-10",
        10,
        lambda x: schools(x, False),
        schools_truth,
        _rubin,
        8 * [0.0] + [0.0, 1.5],
        8 * [1.0] + [5.0, 1.5],
        "",
    ),
    Case(
        "funnel-2",
        "hierarchical",
        2,
        funnel,
        closed(0.0),
        _neal,
        start(0.0, [3.0, 10.0]),
        cauchy(3.0),
    ),
    Case(
        "funnel-10",
        "hierarchical",
        10,
        funnel,
        closed(0.0),
        _neal,
        start(0.0, [3.0] + 9 * [10.0]),
        cauchy(3.0),
    ),
    hierarchical(
        "horseshoe-centred-11",
        11,
        lambda x: horseshoe(x, True),
        horseshoe_truth,
        _carvalho,
        11 * [0.0],
        5 * [3.0] + 6 * [2.0],
        "a funnel for each mean",
    ),
    hierarchical(
        "horseshoe-non-centred-11",
        11,
        lambda x: horseshoe(x, False),
        horseshoe_truth,
        _carvalho,
        11 * [0.0],
        5 * [1.0] + 6 * [2.0],
        "",
    ),
)
