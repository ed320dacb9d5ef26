"""A mixture of Gaussians, each found by a Stein flow at a mode: a proposal to weigh or anneal from.

A Gaussian flow settles on one mode, and leaders that never visit a mode cannot build a map to it.
`fit_modes` therefore takes five steps:

1. `explore`: short HAIS from q_0;
2. `climb`: each particle goes uphill by gradient steps;
3. `distinct`: keep the highest of the ends that lie apart;
4. `fit`: a `GaussianFlow` from each, all as one batch; fits that meet in one place become one;
5. `weigh`: component weights by the Rao-Blackwellised steps of M-PMC (Cappé et al. 2008), with the
   components held fixed.

The mixture's density is exact, so weights with it are valid, whatever the steps before did. A mode
that no explorer reached is missing, and the weights cannot show that.

All of this is for one problem: points are ``(n, d)``, without batch axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steinis_lib.core.checks import check_log_density
from steinis_lib.extensions.gaussian_flow import GaussianFlow, has_settled
from steinis_lib.extensions.mode_search import check_points, climb, distinct, explore, refuse_zero
from steinis_lib.importance import ImportanceSample
from steinis_lib.targets.base import Gaussian, ScoredProposal, Target
from steinis_lib.targets.mixtures import FullCovarianceMixture

FARTHEST_UP = 1e9
"""Where a climb ends above this log p̄, it has met no mode."""
SAME = 0.3
"""Fits are one if their means are less than this times √d standard deviations of either apart."""
SHARE = 0.1
"""Each component gets this much of an equal share on top, before weights are normalised."""


@dataclass(frozen=True)
class ModeFits:
    """What `fit_modes` found.

    Parameters
    ----------
    mixture
        The fits with their weights.
    fits
        Batch of Gaussians ``(k,)``, best first.
    elbo
        Their mean log-weights, ``(k,)``; see `fit`.
    settled
        Whether more transitions leave the best fit where it is; None if that was not looked at.
    """

    mixture: FullCovarianceMixture
    fits: Gaussian
    elbo: Tensor
    settled: bool | None


def fit_modes(
    target: Target,
    q0: ScoredProposal,
    generator: torch.Generator,
    *,
    n_explorers: int,
    n_exploring: int,
    n_modes: int,
    n_leaders: int,
    n_transitions: int,
    n_draws: int,
    n_weighings: int,
    n_settling: int = 0,
    on_stage: Callable[[str], None] | None = None,
) -> ModeFits:
    """Fit a Gaussian at each mode that explorers from q_0 find, and weigh them.

    Parameters
    ----------
    q0
        Where explorers start: at least as wide as p.
    n_explorers, n_exploring
        Particles of HAIS, and its transitions, with one leapfrog step each.
    n_modes
        The most modes that are fitted.
    n_leaders, n_transitions
        Of the `GaussianFlow` of each fit.
    n_draws, n_weighings
        Draws in each step of `weigh`, and how many steps.
    n_settling
        Take so many more transitions of the best fit, to see whether it had settled. 0 (default):
        do not look.
    on_stage
        Called with "exploring", "climbing", "fitting" and "weighing", each when it is done.

    Raises
    ------
    ValueError
        If q_0 has batch axes, or a size is out of range.
    FloatingPointError
        If log p̄ is NaN or infinite or its score not finite where particles come, or if log p̄
        rises above `FARTHEST_UP`.
    """
    done = on_stage or (lambda _: None)
    ends = explore(target, q0, n_explorers, n_exploring, generator, n_leapfrog=1)
    done("exploring")
    x, log_p, epsilon = climb(target, ends)
    if bool((log_p > FARTHEST_UP).any()):
        raise FloatingPointError(
            "log_prob rises without end uphill of q0, so that its integral is infinite; expected a "
            "density that falls off in all directions: check its sign"
        )
    done("climbing")
    chosen = distinct(x, log_p, epsilon, n_modes)
    scales = epsilon[chosen].sqrt()
    fits, elbo = fit(target, x[chosen], scales, n_leaders, n_transitions, generator)
    refuse_zero(elbo, "the mean of log_prob", "fit")
    settled = None
    if n_settling:
        best = Gaussian(fits.mean[0], fits.scale_tril[0])
        settled = has_settled(
            target, best, generator, n_leaders=n_leaders, n_transitions=n_settling
        )
    done("fitting")
    mixture = weigh(target, fits, elbo, n_draws, n_weighings, generator)
    done("weighing")
    return ModeFits(mixture, fits, elbo, settled)


def fit(
    target: Target,
    starts: Tensor,
    scales: Tensor,
    n_leaders: int,
    n_transitions: int,
    generator: torch.Generator,
) -> tuple[Gaussian, Tensor]:
    """Fit a Gaussian from each start; drop fits that coincide with a better one (see `SAME`).

    Parameters
    ----------
    starts, scales
        Means ``(k, d)`` and standard deviations ``(k,)`` of the Gaussians to start from; √ε of a
        climb is such a deviation.
    n_leaders, n_transitions
        As for `GaussianFlow`; each ELBO takes `n_leaders` values of log p̄ more.

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
    check_points(starts, "starts", target)
    if scales.shape != starts.shape[:1] or not bool((scales > 0).all()):
        raise ValueError(
            f"expected a positive scale for each start, ({len(starts)},); got "
            f"{tuple(scales.shape)}: {scales.tolist()}"
        )
    eye = torch.eye(starts.shape[-1], dtype=starts.dtype, device=starts.device)
    q0 = Gaussian(starts, scales[:, None, None] * eye)
    flow = GaussianFlow(target, q0, n_leaders=n_leaders)
    q = flow.proposal(flow.run(flow.init(generator), n_transitions))
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

    A step is α_k ← (Σ_i w̃_i ρ_k(x_i) + s/K)/(1 + s), with s = `SHARE`, on draws from the last
    mixture. Without the share, a component that had no draws could never come back. A single
    component has weight 1, at no cost.

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
    """Say whether two fits are different, in units of the standard deviations of either."""
    difference = (q.mean[i] - q.mean[j]).unsqueeze(-1)
    return all(
        float(torch.linalg.solve_triangular(q.scale_tril[n], difference, upper=False).norm())
        > SAME * math.sqrt(q.dim)
        for n in (i, j)
    )
