"""Modes of p̄ and the widths at them: BFGS from many starts at once, then Laplace's covariance.

A step's length and direction come from the curvature met so far (Nocedal & Wright 2006, chapter 6),
so that neither depends on the scales of the coordinates. All starts climb as one batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from steinis_lib.estimate.space import Space

STEPS = 80
"""The most steps, and one more for each dimension."""
CONVERGED = 1e-4
"""A climb ends when a Newton step would gain less than so many nats."""
RISE, SHRINK, GROW = 1e-4, 0.3, 4.0
"""The share of the promised gain that a step must bring; factors on a length that is too long, and
on the metric where the density is not concave."""
NEAR = 0.5
"""Ends within so many standard deviations, times √d, of a higher mode are that mode."""
PROBE, WIDEST = 0.2, 10.0
"""Scores are compared so many standard deviations from a mode; the most that a deviation may exceed
what BFGS believes, in one
of `LOOKS` looks; and how often a climb is taken up again from there."""
LOOKS, POLISHINGS = 6, 3
MANY = 30
"""In more dimensions than that, Laplace's covariance is costly, and is not tried at bad places."""


@dataclass(frozen=True)
class Ends:
    """Where climbs ended: points ``(n, d)``, log p̄, inverse curvatures ``(n, d, d)``, whether they
    had converged, and at how many points each had asked for log p̄, ``(n,)``."""

    x: Tensor
    log_p: Tensor
    inverse: Tensor
    converged: Tensor
    asked: Tensor


@dataclass(frozen=True)
class Modes:
    """Modes, highest first: means ``(K, d)``, Laplace's Cholesky factors ``(K, d, d)``, log p̄ at
    the means ``(K,)``, and how many climbs ended there ``(K,)``."""

    means: Tensor
    scale_trils: Tensor
    log_p: Tensor
    visits: Tensor

    @property
    def log_mass(self) -> Tensor:
        """Laplace's log ∫ p̄ around each, ``(K,)``."""
        log_det = self.scale_trils.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return self.log_p + log_det + 0.5 * self.means.shape[-1] * math.log(2 * math.pi)

    def n_heavy(self, fall: float) -> int:
        """Return how many have a mass within so many nats of the largest."""
        return int((self.log_mass > self.log_mass.max() - fall).sum()) if len(self.means) else 0

    def chosen(self, which: Tensor) -> Modes:
        """Return some of them."""
        return Modes(*(part[which] for part in vars(self).values()))


def climb(space: Space, x: Tensor, inverse: Tensor | None = None) -> Ends:
    """Go uphill from points ``(n, d)``; those where p̄ is zero stay, with log p̄ = -∞.

    `inverse`, ``(n, d, d)``, is what is known of the inverse curvature; default: nothing.
    """
    n, d = x.shape
    log_p, score = space.log_prob_and_score(x)
    first = torch.full((n,), inverse is None, device=x.device)
    if inverse is None:
        eye = torch.eye(d, dtype=x.dtype, device=x.device)
        inverse = eye / score.norm(dim=-1).clamp(min=1.0)[:, None, None]
    length = x.new_ones(n)
    active = torch.isfinite(log_p)
    converged, asked = torch.zeros_like(first), torch.ones(n, device=x.device)
    eps = torch.finfo(space.q0.mean.dtype).eps
    for _ in range(STEPS + d):
        gain = torch.einsum("ni,nij,nj->n", score, inverse, score)
        rounding = 8 * eps * log_p.abs() + 1e-12
        done = active & ((gain == 0) | (~first & (gain / 2 < CONVERGED + rounding)))
        converged |= done
        active &= ~done & (length > 1e-8)
        i = active.nonzero().squeeze(-1)
        if not len(i):
            break
        step = length[i, None] * (inverse[i] @ score[i].unsqueeze(-1)).squeeze(-1)
        new_log_p, new_score = space.log_prob_and_score(x[i] + step)
        asked[i] += 1
        up = new_log_p > log_p[i] + RISE * length[i] * gain[i] - rounding[i]
        up &= torch.isfinite(new_log_p)
        length[i[~up]] *= SHRINK
        taken = i[up]
        inverse[taken] = _updated(
            inverse[taken], step[up], score[taken] - new_score[up], first[taken]
        )
        x = x.clone()
        x[taken] += step[up]
        log_p[taken], score[taken] = new_log_p[up], new_score[up]
        length[taken], first[taken] = 1.0, False
    return Ends(x, log_p, inverse, converged, asked)


def _updated(inverse: Tensor, step: Tensor, fall: Tensor, first: Tensor) -> Tensor:
    """Return the BFGS update for steps ``(n, d)`` along which the score fell by ``(n, d)``."""
    product = (step * fall).sum(-1)
    concave = product > 1e-10 * step.norm(dim=-1) * fall.norm(dim=-1)
    safe = torch.where(concave, product, 1.0)[:, None, None]
    start = (product / fall.square().sum(-1).clamp(min=1e-300))[:, None, None]
    eye = torch.eye(step.shape[-1], dtype=step.dtype, device=step.device)
    inverse = torch.where((first & concave)[:, None, None], start * eye, inverse)
    s, y = step.unsqueeze(-1), fall.unsqueeze(-1)
    left = eye - s @ y.mT / safe
    bfgs = left @ inverse @ left.mT + s @ s.mT / safe
    usable = concave & torch.isfinite(bfgs).all(-1).all(-1)
    return torch.where(usable[:, None, None], bfgs, GROW * inverse)


def laplace(space: Space, mean: Tensor, inverse: Tensor, looks: int) -> Tensor:
    """Return the Cholesky factor of Laplace's covariance at a point, ``(d, d)``.

    Scores a little to both sides are compared along the axes that BFGS believes in, and again along
    those found, until none is much wider than believed. Where p̄ is no bump, there is no end, and
    the last of so many looks stands.
    """
    factor = _factor(inverse)
    for _ in range(looks):
        moves = PROBE * factor.mT
        ahead, behind = space.score(torch.cat([mean + moves, mean - moves])).chunk(2)
        precision = -((ahead - behind) @ factor) / (2 * PROBE)
        values, axes = torch.linalg.eigh((precision + precision.mT) / 2)
        deviations = values.clamp(min=WIDEST**-2).rsqrt()
        axes = factor @ (axes * deviations)
        factor = _factor(axes @ axes.mT)
        if bool((deviations < 2).all() & (deviations > 0.5).all()):
            break
    return factor


def modes(space: Space, ends: Ends, most: int, fall: float) -> Modes:
    """Return the distinct ends, highest first, that are within `fall` nats of the largest mass."""
    found: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    left = torch.isfinite(ends.log_p)
    if space.dim > MANY:
        left &= ends.converged
    for _ in range(2 * most):
        if not bool(left.any()) or len(found) == most:
            break
        i = int(torch.where(left, ends.log_p, -torch.inf).argmax())
        x, log_p, tril = _polished(space, ends, i)
        near = left & _near(tril, ends.x - x)
        near[i] = True
        left &= ~near
        if not any(bool(_near(other[1], (x - other[0])[None])) for other in found):
            found.append((x, tril, log_p, near.sum()))
    d, like = space.dim, ends.log_p
    if not found:
        return Modes(ends.x[:0], like.new_zeros(0, d, d), like[:0], left[:0].long())
    all_modes = Modes(*(torch.stack(part) for part in zip(*found, strict=True)))
    return all_modes.chosen(all_modes.log_mass > all_modes.log_mass.max() - fall)


def _polished(space: Space, ends: Ends, i: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return mode, log p̄ and Laplace's factor, where BFGS may have stopped on a slope.

    A climb that found no end is left where it is.
    """
    x, log_p = ends.x[i], ends.log_p[i]
    high = space.dim > MANY
    looks, polishings = (LOOKS // 3, 1) if high else (LOOKS, POLISHINGS)
    if not bool(ends.converged[i]):
        looks, polishings = 1, 0
    tril = laplace(space, x, ends.inverse[i], looks)
    for _ in range(polishings):
        end = climb(space, x[None], (tril @ tril.mT)[None])
        moved = not bool(_near(0.2 * tril, (end.x[0] - x)[None]))
        x, log_p = end.x[0], end.log_p[0]
        if not moved:
            break
        tril = laplace(space, x, tril @ tril.mT, looks)
    return x, log_p, tril


def _near(tril: Tensor, away: Tensor) -> Tensor:
    """Say which displacements ``(n, d)`` are within `NEAR` standard deviations times √d."""
    return torch.linalg.solve_triangular(tril, away.mT, upper=False).norm(dim=0) < NEAR * math.sqrt(
        len(tril)
    )


def _factor(covariance: Tensor) -> Tensor:
    """Return the Cholesky factor of a covariance that may be singular to rounding."""
    covariance = (covariance + covariance.mT) / 2
    scales = covariance.diagonal().clamp(min=1e-300).sqrt()
    correlation = covariance / (scales * scales.unsqueeze(-1))
    eye = torch.eye(len(scales), dtype=scales.dtype, device=scales.device)
    for jitter in (0.0, 1e-12, 1e-9, 1e-6, 1e-3):
        factor, info = torch.linalg.cholesky_ex(correlation + jitter * eye)
        if int(info) == 0 and bool(torch.isfinite(factor).all()):
            return scales.unsqueeze(-1) * factor
    return torch.diag(scales)
