"""Hierarchical models of grouped data: batches, pumps, and players."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from evidence.case import Truth
from evidence.datasets import AT_BATS, DYES, HITS, PUMP_FAILURES, PUMP_HOURS
from evidence.densities import gamma_log, half_normal_log, logit_uniform, normal, poisson_log
from evidence.hierarchical import hierarchical
from evidence.marginals import random_intercepts
from evidence.truths import on_grid

D = torch.float64

BATCH = torch.arange(6).repeat_interleave(5)


def dyes(x: Tensor) -> Tensor:
    """Batch means, their mean, and log scales between and within, in the units of the data."""
    means, mu, log_between, log_within = x[:, :6], x[:, 6:7], x[:, 7:8], x[:, 8:]
    likelihood = normal(DYES.to(x), means[:, BATCH], log_within.exp()).sum(-1)
    prior = normal(means, mu, log_between.exp()).sum(-1) + normal(mu, 1500.0, 250.0)[:, 0]
    scales = half_normal_log(log_between, 100.0) + half_normal_log(log_within, 100.0)
    return likelihood + prior + scales[:, 0]


def dyes_truth() -> Truth:
    """All means in closed form, both log scales by quadrature."""

    def marginal(t: Tensor) -> Tensor:
        ones, sd = torch.ones(30, 1, dtype=D), torch.tensor([250.0], dtype=D)
        data = random_intercepts(DYES - 1500, BATCH, ones, t[:, 0].exp(), t[:, 1].exp(), sd)
        return data + half_normal_log(t[:, 0], 100.0) + half_normal_log(t[:, 1], 100.0)

    return on_grid(marginal, [(-26, 6.6), (2.5, 6)], [300, 60])


def pumps(x: Tensor) -> Tensor:
    """Log rates of ten pumps, θ ~ Gamma(a, b), log a and log b; a ~ Exp(1), b ~ Gamma(.1, 1)."""
    log_theta, log_a, log_b = x[:, :10], x[:, 10:11], x[:, 11:]
    likelihood = poisson_log(PUMP_FAILURES.to(x), log_theta + PUMP_HOURS.to(x).log()).sum(-1)
    prior = gamma_log(log_theta, log_a.exp(), log_b.exp()).sum(-1)
    return likelihood + prior + (gamma_log(log_a, 1.0, 1.0) + gamma_log(log_b, 0.1, 1.0))[:, 0]


def pumps_truth() -> Truth:
    """Rates in closed form (negative binomial counts), log a and log b by quadrature."""

    def marginal(t: Tensor) -> Tensor:
        a, b = t[:, :1].exp(), t[:, 1:].exp()
        n, hours = PUMP_FAILURES, PUMP_HOURS
        counts = torch.lgamma(a + n) - torch.lgamma(a) - torch.lgamma(n + 1)
        shares = a * (b / (b + hours)).log() + n * (hours / (b + hours)).log()
        hyper = gamma_log(t[:, 0], 1.0, 1.0) + gamma_log(t[:, 1], 0.1, 1.0)
        return (counts + shares).sum(-1) + hyper

    return on_grid(marginal, [(-25, 4), (-40, 6)], [200, 300])


def _beta(p: Tensor, logit_mean: Tensor, log_size: Tensor) -> tuple[Tensor, Tensor]:
    """Return the parameters of Beta(φκ, (1 - φ)κ), ready for the coordinates of p."""
    a = logit_mean.sigmoid() * log_size.exp()
    return a, log_size.exp() - a


def baseball(x: Tensor) -> Tensor:
    """Logits of 18 averages, beta with mean φ, uniform, and size κ, log κ ~ N(4, 1.5²)."""
    logits, logit_mean, log_size = x[:, :18], x[:, 18:19], x[:, 19:]
    a, b = _beta(logits, logit_mean, log_size)
    constant = torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b)
    hits = HITS.to(x)
    terms = (hits + a) * logsigmoid(logits) + (AT_BATS - hits + b) * logsigmoid(-logits)
    hyper = logit_uniform(logit_mean) + normal(log_size, 4.0, 1.5)
    return (terms + constant).sum(-1) + hyper[:, 0]


def baseball_truth() -> Truth:
    """Averages in closed form, φ and κ by quadrature."""

    def marginal(t: Tensor) -> Tensor:
        a, b = _beta(t, t[:, :1], t[:, 1:])
        late = torch.lgamma(a + HITS) + torch.lgamma(b + AT_BATS - HITS)
        late = late - torch.lgamma(a + b + AT_BATS)
        early = torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)
        return (late - early).sum(-1) + logit_uniform(t[:, 0]) + normal(t[:, 1], 4.0, 1.5)

    return on_grid(marginal, [(-5, 3), (-5, 14)], [240, 200])


CASES = (
    hierarchical(
        "dyes-9",
        9,
        dyes,
        dyes_truth,
        "Davies 1967, Box & Tiao 1973",
        7 * [1500.0] + [4.0, 4.0],
        7 * [100.0] + [1.0, 1.0],
        "units of the data; a funnel at small scales",
    ),
    hierarchical(
        "pumps-12",
        12,
        pumps,
        pumps_truth,
        "Gaver & O'Muircheartaigh 1987",
        10 * [-1.0] + [0.0, 0.0],
        10 * [2.0] + [1.0, 1.0],
        "",
    ),
    hierarchical(
        "baseball-20",
        20,
        baseball,
        baseball_truth,
        "Efron & Morris 1975",
        19 * [-1.0] + [4.0],
        19 * [1.0] + [1.5],
        "a funnel at large κ",
    ),
)
