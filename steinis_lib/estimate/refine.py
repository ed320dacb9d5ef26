"""A mixture of t fitted to weighted draws: M-PMC with shrinkage, and growth at large weights.

`refit` takes steps of EM for -∫ p log q (Cappé et al. 2008; for t, with the degrees of freedom
chosen from a few). A covariance is drawn towards a simpler one, its component's former covariance
rescaled along the former axes. How strongly, is chosen by draws that were held out.

`grown` adds a component where p̄ is far above the mixture: at the draw of largest weight, as wide as
the neighbours that have weight (incremental mixture importance sampling; Raftery & Bao 2010).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from steinis_lib.estimate.pool import ess_of
from steinis_lib.estimate.student import StudentMixture

FREEDOMS = (1.0, 2.0, 4.0, 8.0, 16.0, 64.0, math.inf)
"""The degrees of freedom to choose from."""
STEPS = 4
"""Steps of EM in one refit."""
STRENGTHS = (0.3, 2.0, 20.0)
"""How many draws the simpler covariance counts as, for each dimension."""
MANY_DIMENSIONS, MANY_COMPONENTS = 30, 60
"""With more of these only one strength is tried, as each takes long."""
FEWEST, MOST_DRAWS = 10, 6000
"""Draws without which nothing is fitted, and the most that EM looks at."""
LEAST = 1e-4
"""Components of less weight are dropped; they cost time at every draw."""
NEW_SHARE = 0.15
"""The weight of a new component, before the next refit."""


def usable(log_w: Tensor, least: float) -> Tensor:
    """Return weights, normalised, flattened by a power just so that their ESS is `least`."""
    if ess_of(log_w) >= least:
        return log_w.softmax(0)
    low, high = 0.0, 1.0
    finite = torch.isfinite(log_w)
    for _ in range(30):
        power = (low + high) / 2
        low, high = (power, high) if ess_of(power * log_w[finite]) >= least else (low, power)
    flat = torch.full_like(log_w, -torch.inf)
    flat[finite] = low * log_w[finite]
    return flat.softmax(0)


def refit(q: StudentMixture, u: Tensor, w: Tensor, generator: torch.Generator) -> StudentMixture:
    """Return q after EM on draws ``(n, d)`` with normalised weights w ``(n,)``.

    The strength of the shrinkage is what does best on the other half of the draws, fitted to one
    half; if none does better than q with new weights alone, only the weights are new.
    """
    u, w = heavy(u, w)
    if len(u) < FEWEST:
        return q
    order = torch.randperm(len(u), generator=generator, device=u.device)
    halves = order.chunk(2)
    scores: dict[float | None, float] = {}
    for strength in (None, *_strengths(q)):
        scores[strength] = 0.0
        for fitted, other in (halves, halves[::-1]):
            new = _em(q, u[fitted], w[fitted] / w[fitted].sum(), strength)
            scores[strength] += float((w[other] * new.log_prob(u[other])).sum())
    return _em(q, u, w, max(scores, key=lambda strength: scores[strength]))


def _strengths(q: StudentMixture) -> tuple[float, ...]:
    """Return which strengths are tried: not all where each trial takes long."""
    if q.dim > MANY_DIMENSIONS:
        return STRENGTHS[-1:]
    return STRENGTHS[1:2] if len(q.means) > MANY_COMPONENTS else STRENGTHS


def heavy(u: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Return the draws of most weight that have almost all of it, at most `MOST_DRAWS`."""
    order = w.argsort(descending=True)[:MOST_DRAWS]
    few = max(int((w[order].cumsum(0) < 1 - 1e-4).sum()), 2)
    order = order[: few + 1]
    order = order[w[order] > 0]
    return u[order], w[order] / w[order].sum()


def _em(q: StudentMixture, u: Tensor, w: Tensor, strength: float | None) -> StudentMixture:
    """Return q after `STEPS` steps of EM; with no strength, its weights alone are new."""
    old = q.scale_trils
    for _ in range(STEPS if len(q.means) <= MANY_COMPONENTS else STEPS // 2):
        delta = q.distances(u)
        rho = (q.log_components(u, delta) + q.log_weights).softmax(-1) * w.unsqueeze(-1)
        alpha = rho.sum(0)
        log_alpha = alpha.clamp(min=1e-12).log()
        if strength is None:
            q = StudentMixture(log_alpha, q.means, q.scale_trils, q.freedom)
            continue
        count = alpha.square() / rho.square().sum(0).clamp(min=1e-300)
        pull = rho * q.pulls(delta)
        freedom = torch.where(count > 10, _freedom(q, delta, rho), q.freedom)
        means, trils = q.means.clone(), q.scale_trils.clone()
        for k in ((count > 2) & (pull.sum(0) > 1e-12)).nonzero().squeeze(-1).tolist():
            means[k], trils[k] = _component(
                u, pull[:, k], float(alpha[k]), float(count[k]), q.means[k], old[k], strength
            )
        q = StudentMixture(log_alpha, means, trils, freedom)
    return q


def _component(
    u: Tensor, pull: Tensor, alpha: float, count: float, mean: Tensor, old: Tensor, strength: float
) -> tuple[Tensor, Tensor]:
    """Return mean and factor of one component from as many draws as count, drawn to what it was."""
    u, pull = u[pull > 1e-7 * alpha], pull[pull > 1e-7 * alpha]
    back = count / (count + strength)
    mean = back * (pull @ u) / pull.sum() + (1 - back) * mean
    away = torch.linalg.solve_triangular(old, (u - mean).mT, upper=False)
    seen = (away * pull) @ away.mT / alpha
    share = count / (count + strength * len(old))
    return mean, old @ _cholesky(share * seen + (1 - share) * torch.diag(_simple(seen, count)))


def _simple(seen: Tensor, count: float) -> Tensor:
    """Return variances along the former axes, drawn to 1 as if ten draws had shown that."""
    return (count * seen.diagonal() + 10) / (count + 10)


def _cholesky(covariance: Tensor) -> Tensor:
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    covariance = covariance + 1e-9 * covariance.diagonal().max() * eye
    factor, info = torch.linalg.cholesky_ex(covariance)
    return factor if int(info) == 0 else torch.diag(covariance.diagonal().sqrt())


def _freedom(q: StudentMixture, delta: Tensor, rho: Tensor) -> Tensor:
    """Return the likeliest of `FREEDOMS` for each component, its scale held fixed."""
    fits = [
        (
            rho
            * StudentMixture(
                q.log_weights, q.means, q.scale_trils, torch.full_like(q.freedom, nu)
            ).log_components(delta[:, :1], delta)
        ).sum(0)
        for nu in FREEDOMS
    ]
    return q.freedom.new_tensor(FREEDOMS)[torch.stack(fits).argmax(0)]


def pruned(q: StudentMixture, most: int) -> StudentMixture:
    """Return q without components of next to no weight, and at most so many."""
    order = q.log_weights.argsort(descending=True)[:most]
    return q.chosen(order[q.log_weights[order] > q.log_weights[order[0]] + math.log(LEAST)])


def grown(q: StudentMixture, u: Tensor, log_p: Tensor, most: int) -> StudentMixture:
    """Return q with up to `most` new components at the draws where log p̄ - log q is largest."""
    u, log_p = u[torch.isfinite(log_p)], log_p[torch.isfinite(log_p)]
    n, d = u.shape
    for _ in range(most if n else 0):
        log_w = log_p - q.log_prob(u)
        w = log_w.softmax(0)
        top = int(w.argmax())
        if float(w[top]) * n < 20:
            return q
        centre, spread = _moments(u, w)
        away = torch.linalg.solve_triangular(spread, (u - u[top]).mT, upper=False)
        nearest = away.square().sum(0).argsort()[: max(n // 20, 4 * d)]
        local = w[nearest] + 1 / n
        local = local / local.sum()
        mean, tril = _moments(u[nearest], local)
        new = StudentMixture(u.new_zeros(1), u[top][None], tril[None], u.new_tensor([8.0]))
        q = q.joined(new, NEW_SHARE)
    return q


def _moments(u: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and Cholesky factor of the covariance of weighted points, not singular."""
    mean = w @ u
    covariance = ((u - mean) * w.unsqueeze(-1)).mT @ (u - mean)
    scales = covariance.diagonal().clamp(min=1e-200).sqrt()
    eye = torch.eye(len(scales), dtype=scales.dtype, device=scales.device)
    correlation = covariance / (scales * scales.unsqueeze(-1))
    return mean, scales.unsqueeze(-1) * torch.linalg.cholesky(0.9 * correlation + 0.1 * eye)
