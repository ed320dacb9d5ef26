"""A mixture of Gaussians, each found by a Stein flow at a mode: a proposal to weigh or anneal from.

A Gaussian flow settles on one mode, and leaders that never visit a mode cannot build a map to it:

1. explore: short HAIS from q_0, its step adapted. Its weights are not used, so it may be biased;
2. climb: each particle goes uphill, by gradient steps that grow when they succeed, else shrink;
3. choose: of the ends that are distinct, the highest;
4. fit: a `GaussianFlow` from each, all as one batch; fits that meet in one place are one;
5. weigh: component weights by the Rao-Blackwellised steps of M-PMC (Cappé et al. 2008), with the
   components held fixed.

The mixture's density is exact, so that weights with it are valid, whatever the steps before did.
A mode that no explorer came to is missing, and nothing in the weights can show it.

All of this is for one problem: points are ``(n, d)``, without batch axes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from steinis_lib.baselines.annealing import linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.core.checks import check_finite, check_log_density, check_particles
from steinis_lib.extensions.gaussian_flow import GaussianFlow
from steinis_lib.importance import ImportanceSample
from steinis_lib.targets.base import Gaussian, ScoredProposal, Target
from steinis_lib.targets.mixtures import FullCovarianceMixture

CLIMB_STEPS = 60
SAME = 0.3
"""Fits are one if their means are less than this times √d standard deviations of either apart."""
SHARE = 0.1
"""Before weights are normalised, each gets this much of an equal share on top."""


def explore(
    target: Target,
    q0: ScoredProposal,
    n_explorers: int,
    n_transitions: int,
    generator: torch.Generator,
    step_size: float = 0.2,
    n_leapfrog: int = 5,
) -> Tensor:
    """Return the ends of HAIS from q_0, ``(n, d)``; no valid sample, for its step is adapted.

    Costs `n_transitions` · `n_leapfrog` + 1 scores for each explorer. Raises what `HAIS` does.
    """
    chain = HAIS(
        target, q0, linear_schedule(n_transitions), step_size, n_leapfrog, 0.5, adapt_biased=True
    )
    x = chain.run(chain.init(n_explorers, generator)).particles
    _check_points(x, "explorers", target)
    return x


def climb(target: Target, x: Tensor, n_steps: int = CLIMB_STEPS) -> tuple[Tensor, Tensor, Tensor]:
    """Go uphill from points x ``(n, d)``.

    A step x + ε s(x) is taken if log p̄ rises by more than rounding could make it. ε then grows by
    half, and otherwise falls to a third: in the end it is of the order of 1/(largest curvature).
    The first step is at most 1 long. A mode whose widest direction has κ times the variance of its
    narrowest takes some κ steps.

    Returns
    -------
    x, log_p, epsilon
        Where the climbs end, ``(n, d)``, log p̄ there, and the last ε taken, both ``(n,)``. That ε
        has no meaning where no step was taken.

    Raises
    ------
    ValueError
        If x is not ``(n, d)``.
    FloatingPointError
        If log p̄ or the score is not finite at a start, naming the point.
    """
    _check_points(x, "x", target)
    log_p, score = target.log_prob_and_score(x)
    check_finite(log_p.unsqueeze(-1), "the target's log_prob")
    check_finite(score, "the target's score")
    epsilon = 1 / score.norm(dim=-1).clamp(min=1.0)
    good, eps = epsilon, torch.finfo(x.dtype).eps
    for _ in range(n_steps):
        new = x + epsilon.unsqueeze(-1) * score
        new_log_p, new_score = target.log_prob_and_score(new)
        rounding = math.sqrt(eps) + 8 * eps * log_p.abs()
        finite = torch.isfinite(new_log_p) & torch.isfinite(new_score).all(-1)
        up = finite & (new_log_p > log_p + rounding)
        x = torch.where(up.unsqueeze(-1), new, x)
        score = torch.where(up.unsqueeze(-1), new_score, score)
        log_p = torch.where(up, new_log_p, log_p)
        good = torch.where(up, epsilon, good)
        epsilon = torch.where(up, 1.5 * epsilon, epsilon / 3)
    return x, log_p, good


def distinct(x: Tensor, log_p: Tensor, epsilon: Tensor, most: int) -> Tensor:
    """Return indices of at most `most` ends of climbs, highest first, none near a higher one.

    x ``(n, d)``, log_p and epsilon ``(n,)`` are those of `climb`. Near is within √(dε)/2, with the
    ε of the higher one: a climb's last step is about the variance in the narrowest direction.

    Raises
    ------
    ValueError
        If shapes do not fit, or `most` is less than 1.
    FloatingPointError
        If log_p is NaN or +inf, naming the point.
    """
    if x.ndim != 2 or not log_p.shape == epsilon.shape == x.shape[:1]:
        shapes = ", ".join(str(tuple(t.shape)) for t in (x, log_p, epsilon))
        raise ValueError(f"expected x (n, d), log_p (n,) and epsilon (n,), no batch; got {shapes}")
    if most < 1:
        raise ValueError(f"most must be at least 1, got {most}")
    check_log_density(log_p, "log_p")
    chosen: list[int] = []
    for i in log_p.argsort(descending=True).tolist():
        near = 0.5 * (x.shape[-1] * epsilon[chosen]).sqrt()
        if bool(((x[chosen] - x[i]).norm(dim=-1) > near).all()):
            chosen.append(i)
        if len(chosen) == most:
            break
    return torch.tensor(chosen, device=x.device)


def fit(
    target: Target,
    starts: Tensor,
    scales: Tensor,
    n_leaders: int,
    n_transitions: int,
    generator: torch.Generator,
) -> tuple[Gaussian, Tensor]:
    """Fit a Gaussian from each start; drop those that coincide with a better one (see `SAME`).

    Parameters
    ----------
    starts, scales
        Means ``(k, d)`` and standard deviations ``(k,)`` of the Gaussians to start from; √ε of a
        climb is such a deviation.
    n_leaders, n_transitions
        As for `GaussianFlow`; the ELBO takes `n_leaders` values of log p̄ more.

    Returns
    -------
    fits
        Batch of Gaussians ``(k', d)``, best first.
    elbo
        The mean log-weight of each, ``(k',)``: log Z less the divergence, where Z counts only the
        mode that it sits on.

    Raises
    ------
    ValueError
        If shapes do not fit, a scale is not positive, or there are too few leaders.
    FloatingPointError
        If a score is not finite, or log p̄ is NaN or +inf, naming fit and particle.
    """
    _check_points(starts, "starts", target)
    if scales.shape != starts.shape[:1] or not bool((scales > 0).all()):
        raise ValueError(
            f"expected a positive scale for each start, ({len(starts)},); got "
            f"{tuple(scales.shape)}: {scales.tolist()}"
        )
    flow = GaussianFlow(target, n_leaders)
    eye = torch.eye(starts.shape[-1], dtype=starts.dtype, device=starts.device)
    q0 = Gaussian(starts, scales[:, None, None] * eye)
    q = flow.proposal(flow.run(flow.init(q0, generator), n_transitions))
    x = q.sample((len(starts), n_leaders), generator)
    log_p = target.log_prob(x)
    check_log_density(log_p, "the target's log_prob")
    elbo = (log_p - q.log_prob(x)).mean(-1)
    kept: list[int] = []
    for i in elbo.argsort(descending=True).tolist():
        if all(_apart(q, i, j) for j in kept):
            kept.append(i)
    return Gaussian(q.mean[kept], q.scale_tril[kept]), elbo[kept]


def weigh(
    target: Target,
    fits: Gaussian,
    log_weights: Tensor,
    n_samples: int,
    n_steps: int,
    generator: torch.Generator,
) -> FullCovarianceMixture:
    """Return the mixture of fits with weights found in `n_steps` of `n_samples` draws each.

    A step is α_k ← (Σ_i w̃_i ρ_k(x_i) + s/K)/(1 + s), s = `SHARE`, on draws from the last mixture: a
    component that had no draws could otherwise never come back, and the rest would be all there is
    against a tail. A single component has weight 1, at no cost.

    Parameters
    ----------
    fits, log_weights
        As `fit` returns them: K Gaussians ``(K, d)``, and a start ``(K,)``, up to a constant.

    Raises
    ------
    ValueError
        If shapes do not fit, or no start is finite.
    FloatingPointError
        If log p̄ is NaN or +inf at a draw, or all weights are zero.
    """
    if fits.mean.ndim != 2 or log_weights.shape != fits.mean.shape[:1]:
        raise ValueError(
            "expected fits (K, d) and log_weights (K,), no batch; got "
            f"{tuple(fits.mean.shape)}, {tuple(log_weights.shape)}"
        )
    if not bool(torch.isfinite(log_weights.logsumexp(-1))):
        raise ValueError(f"log_weights must have a finite sum, got {log_weights.tolist()}")
    mixture = FullCovarianceMixture(_shared(log_weights), fits.mean, fits.scale_tril)
    for _ in range(n_steps if len(log_weights) > 1 else 0):
        x = mixture.sample((n_samples,), generator)
        joint = mixture.log_components(x) + mixture.log_weights
        log_q = joint.logsumexp(-1)
        log_p = target.log_prob(x)
        check_log_density(log_p, "the target's log_prob")
        log_w = ImportanceSample(x, log_p - log_q).log_w.log_softmax(-1)
        log_alpha = (joint + (log_w - log_q).unsqueeze(-1)).logsumexp(0)
        mixture = FullCovarianceMixture(_shared(log_alpha), fits.mean, fits.scale_tril)
    return mixture


def _shared(log_alpha: Tensor) -> Tensor:
    """Return log (α + s/K)/(1 + s) for α ``(K,)`` known up to a factor."""
    share = torch.full_like(log_alpha, SHARE / len(log_alpha)).log()
    return torch.logaddexp(log_alpha.log_softmax(-1), share).log_softmax(-1)


def _apart(q: Gaussian, i: int, j: int) -> bool:
    """Whether two fits are different, in units of the standard deviations of either."""
    difference = (q.mean[i] - q.mean[j]).unsqueeze(-1)
    return all(
        float(torch.linalg.solve_triangular(q.scale_tril[n], difference, upper=False).norm())
        > SAME * math.sqrt(q.dim)
        for n in (i, j)
    )


def _check_points(x: Tensor, name: str, target: Target) -> None:
    check_particles(x, name, target.dim)
    if x.ndim != 2:
        raise ValueError(
            f"{name} must be (n, d), one problem at a time, got {tuple(x.shape)}; loop over a batch"
        )
