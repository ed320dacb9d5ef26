"""The variants in the plane: on the bent mixture of section 3, and the mixtures of section 2."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steinis_lib.baselines.geometric_path import linear_schedule
from steinis_lib.baselines.mpmc import MixturePMC
from steinis_lib.companion.sections.s7_extensions.affine import Linear, Sum
from steinis_lib.companion.sections.s7_extensions.hais_run import HAISRun
from steinis_lib.companion.sections.s7_extensions.other_scores import (
    run_annealed,
    run_reusing_scores,
)
from steinis_lib.companion.sections.s7_extensions.sobol import sobol_sample
from steinis_lib.extensions.held_out import HeldOutSteinIS, HeldOutSteinISInfo, HeldOutSteinISState
from steinis_lib.extensions.pulled_back import PulledBack
from steinis_lib.extensions.whitened_kernel import Whitened
from steinis_lib.importance import ImportanceSample, importance_sampling
from steinis_lib.schedules import StepSize
from steinis_lib.stein.kernels import RBF, Kernel
from steinis_lib.stein.maps import StepMap
from steinis_lib.steinis import SteinIS
from steinis_lib.targets.base import Gaussian, Target
from steinis_lib.targets.mixtures import FullCovarianceMixture

ONE_CHANGE = ("fixed", "sobol", "reused", "annealed", "pool", "affine")
"""SteinIS with a wide kernel and fixed leaders, and with one thing changed at a time."""
HELD_OUT = ("held-out", "mixture-held-out")
"""SteinIS steered by held-out particles, from q_0 and from a fitted mixture."""
ANNEALED = ("mixture-hais", "mixture-maps-hais")
"""HAIS from a fitted mixture, directly and through a few maps."""
ON_WARPED = (*ONE_CHANGE, *HELD_OUT, "mixture")
"""The variants on the bent mixture. "mixture" weighs draws of the fitted mixture itself."""
ON_MIXTURES = ("pool", *HELD_OUT, "mixture", *ANNEALED)
"""The variants on the mixtures of section 2."""

WIDE = 6.0
"""The bandwidth's multiplier: the widest of what section 2 tries that never folds."""
STEPS = StepSize(0.5, 0.1)
AFFINE_STEPS = replace(STEPS, alpha=0.1)
"""The affine part of a kernel alone asks for steps well below 1."""
FROM_MIXTURE = HAISRun(50, 3, 0.4)
N_MAPS, THROUGH_MAPS = 10, HAISRun(48, 2, 0.7)
"""Transitions that make the maps, at most, and HAIS through them."""


@dataclass(frozen=True)
class PlaneSizes:
    """Sizes of all variants in the plane.

    Parameters
    ----------
    n_leaders
        Leaders that build a map.
    n_pool
        Leaders that these are drawn from, where a variant has a pool.
    n_transitions
        Of SteinIS; at most, where held-out particles steer.
    n_held_out
        Held-out particles.
    n_components, n_draws, n_iterations
        Of M-PMC: components, draws in each iteration, and iterations.
    """

    n_leaders: int
    n_pool: int
    n_transitions: int
    n_held_out: int
    n_components: int
    n_draws: int
    n_iterations: int


@dataclass(frozen=True)
class Outcome:
    """What a variant returns, and its calls of p̄ for each problem.

    Parameters
    ----------
    sample
        The weighted particles.
    scores, densities
        At how many particles the score was asked for, alone or with log p̄; and log p̄ alone.
    n_folds
        How often a follower met a non-positive determinant, ``(*batch,)``; None where no map of
        SteinIS moved followers.
    """

    sample: ImportanceSample
    scores: int
    densities: int
    n_folds: Tensor | None = None


def run_variant(
    variant: str,
    target: Target,
    q0: Gaussian,
    sizes: PlaneSizes,
    n_particles: int,
    generator: torch.Generator,
    *,
    batch_shape: tuple[int, ...] = (),
) -> tuple[ImportanceSample, dict[str, Tensor]]:
    """Run one variant; return so many weighted particles, and what each problem cost.

    The costs are tensors ``(*batch,)``: `scores` and `densities`, with those of the fitted
    mixture; `folds`, 0 where there is no such map; and `seconds`.
    """
    began = time.perf_counter()
    if variant in ONE_CHANGE:
        found = _steinis(variant, target, q0, sizes, n_particles, generator, batch_shape)
    elif variant == "held-out":
        found = _held_out(target, q0, sizes, n_particles, generator, batch_shape)
    else:
        found = _from_mixture(variant, target, q0, sizes, n_particles, generator, batch_shape)
    each = (time.perf_counter() - began) / math.prod(batch_shape)
    none = torch.zeros(batch_shape, dtype=torch.int64)
    return found.sample, {
        "scores": none + found.scores,
        "densities": none + found.densities,
        "folds": none if found.n_folds is None else found.n_folds,
        "seconds": torch.full(batch_shape, each, dtype=torch.float64),
    }


def _steinis(
    variant: str,
    target: Target,
    q0: Gaussian,
    s: PlaneSizes,
    n: int,
    generator: torch.Generator,
    batch_shape: tuple[int, ...],
) -> Outcome:
    """SteinIS with one thing changed."""
    pool = variant in ("pool", "affine")
    kernel: Kernel = RBF(multiplier=WIDE)
    sampler = SteinIS(
        target, q0, n_leaders=s.n_pool if pool else s.n_leaders, n_followers=n, kernel=kernel,
        step_size=STEPS, leaders_per_step=s.n_leaders if pool else None,
    )  # fmt: skip
    if variant == "affine":
        kernel = Whitened(Sum((Linear(), kernel), (1.0, 4.0)))
        sampler = replace(sampler, kernel=kernel, step_size=AFFINE_STEPS)
    state = sampler.init(generator, batch_shape=batch_shape)
    n_taken = s.n_transitions
    if variant == "sobol":
        state = replace(
            state, leaders=sobol_sample(q0, (*batch_shape, sampler.n_leaders), generator)
        )
    if variant == "reused":
        state = run_reusing_scores(sampler, state, s.n_transitions, every=2)
        n_taken = math.ceil(s.n_transitions / 2)
    elif variant == "annealed":
        state = run_annealed(sampler, state, s.n_transitions, half_schedule(s))
    else:
        state = sampler.run(state, s.n_transitions)
    return Outcome(sampler.importance_sample(state), n_taken * s.n_leaders, n, state.n_folds)


def half_schedule(s: PlaneSizes) -> Tensor:
    """Return the β of annealed leaders: linear over the first half of the transitions."""
    return linear_schedule(max(1, s.n_transitions // 2))


def _held_out(
    target: Target,
    q0: Gaussian | FullCovarianceMixture,
    s: PlaneSizes,
    n: int,
    generator: torch.Generator,
    batch_shape: tuple[int, ...],
) -> Outcome:
    """SteinIS steered by held-out particles."""
    sampler = _steered(target, q0, s, n)
    state = sampler.init(generator, batch_shape=batch_shape)
    state = sampler.run(state, s.n_transitions)
    scores, densities = _calls_of_steering(int(state.transition), s)
    return Outcome(sampler.importance_sample(state), scores, densities + n, state.n_folds)


def _from_mixture(
    variant: str,
    target: Target,
    q0: Gaussian,
    s: PlaneSizes,
    n: int,
    generator: torch.Generator,
    batch_shape: tuple[int, ...],
) -> Outcome:
    """Fit a mixture, then go on from it; its draws are among the densities."""
    mixture = fit_mixture(target, q0, s, generator, batch_shape)
    if variant == "mixture":
        found = Outcome(importance_sampling(target, mixture, (*batch_shape, n), generator), 0, n)
    elif variant == "mixture-held-out":
        found = _held_out(target, mixture, s, n, generator, batch_shape)
    elif variant == "mixture-hais":
        sample, scores = FROM_MIXTURE.run(target, mixture, n, generator, batch_shape=batch_shape)
        found = Outcome(sample, scores, 0)
    else:
        inside, n_transitions = maps_from(mixture, target, s, generator, batch_shape)
        sample, calls = THROUGH_MAPS.run(inside, mixture, n, generator, batch_shape=batch_shape)
        scores, densities = _calls_of_steering(n_transitions, s)
        sample = ImportanceSample(inside.to_x(sample.particles), sample.log_w)
        found = Outcome(sample, scores + calls, densities)
    return replace(found, densities=found.densities + s.n_draws * s.n_iterations)


def fit_mixture(
    target: Target,
    q0: Gaussian,
    s: PlaneSizes,
    generator: torch.Generator,
    batch_shape: tuple[int, ...],
) -> FullCovarianceMixture:
    """Fit a mixture by M-PMC, from components of unit covariance around draws of N(0, 4 I)."""
    k, d = s.n_components, target.dim
    means = 2 * q0.sample((*batch_shape, k), generator)
    eye = torch.eye(d, dtype=means.dtype).expand(*batch_shape, k, d, d)
    start = FullCovarianceMixture(torch.full_like(means[..., 0], -math.log(k)), means, eye)
    sampler = MixturePMC(target, start, n_particles=s.n_draws)
    return sampler.proposal(sampler.run(sampler.init(generator), s.n_iterations))


def maps_from(
    mixture: FullCovarianceMixture,
    target: Target,
    s: PlaneSizes,
    generator: torch.Generator,
    batch_shape: tuple[int, ...],
) -> tuple[PulledBack, int]:
    """Return p̄ in the coordinates of q_0 = `mixture`, and the transitions that made the maps.

    The followers of this run are not used, because annealing draws from q_0 anew; two is the
    least that `HeldOutSteinIS` takes.
    """
    maps: list[StepMap] = []

    def keep(_: HeldOutSteinISState, info: HeldOutSteinISInfo) -> None:
        if bool((info.gain > 0).any()):  # else it moves nothing
            maps.append(info.step_map)

    sampler = _steered(target, mixture, s, n_followers=2)
    state = sampler.init(generator, batch_shape=batch_shape)
    state = sampler.run(state, N_MAPS, on_step=keep)
    return PulledBack(target, tuple(maps)), int(state.transition)


def _steered(
    target: Target, q0: Gaussian | FullCovarianceMixture, s: PlaneSizes, n_followers: int
) -> HeldOutSteinIS:
    return HeldOutSteinIS(
        target, q0, n_leaders=s.n_pool, n_followers=n_followers, n_held_out=s.n_held_out,
        kernel=RBF(multiplier=WIDE), first_step_size=STEPS(0), leaders_per_step=s.n_leaders,
    )  # fmt: skip


def _calls_of_steering(n_transitions: int, s: PlaneSizes) -> tuple[int, int]:
    """Scores of leaders; and densities of held-out particles, three times in a transition."""
    return n_transitions * s.n_leaders, (3 * n_transitions + 1) * s.n_held_out
