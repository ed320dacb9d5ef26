"""What the variants of `beyond` do on each section's problem; `beyond` lists them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steinis_lib.baselines.annealing import GeometricPath, linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.baselines.mpmc import MixturePMC
from steinis_lib.companion.counting import Counted
from steinis_lib.extensions import mode_fits as local_fits
from steinis_lib.extensions.affine_kernels import Linear, Sum, Whitened
from steinis_lib.extensions.bridge_sampling import Bridge, BridgeEstimate
from steinis_lib.extensions.held_out import HeldOutInfo, HeldOutState, HeldOutSteinIS
from steinis_lib.extensions.pulled_back import PulledBack
from steinis_lib.extensions.sobol import sobol_sample
from steinis_lib.importance import ImportanceSample, importance_sampling
from steinis_lib.schedules import StepSize, Tempering
from steinis_lib.stein.kernels import RBF, Kernel
from steinis_lib.stein.maps import StepMap
from steinis_lib.steinis import SteinIS
from steinis_lib.targets.base import Gaussian, Target
from steinis_lib.targets.mixtures import FullCovarianceMixture

Found = dict[str, Tensor]
WIDE = 6.0
"""The bandwidth's multiplier in the plane: the widest of what section 2 tries that never folds."""
STEPS = StepSize(0.5, 0.1)
MAPS = ("fixed", "sobol", "reused", "annealed", "pool", "affine")
"""SteinIS with one thing changed at a time, from the wide kernel and fixed leaders on."""
HELD_OUT = ("held-out", "mixture-held-out")
WARPED = (*MAPS, *HELD_OUT, "mixture")
MIXTURES = ("pool", *HELD_OUT, "mixture", "mixture-hais", "mixture-maps-hais")
"""The variants on the targets of sections 3 and 2; the last two anneal from the fitted mixture."""
ANNEAL = (50, 3, 0.4)
"""Transitions, leapfrogs and ε of HAIS from a mixture in the plane, ..."""
FEW_MAPS, ANNEAL_MAPS = 10, (48, 2, 0.7)
"""... the same through maps, with so many transitions for those, ..."""
ANNEAL_MODES = (200, 1, 0.3)
"""... and from local fits at the modes of an RBM, with `ANNEALED` chains."""
BRIDGE_MODES = (20, 3, 0.5)
"""The same of chains that bridge it and p̄; `ANNEALED` chains of either kind."""
ANNEALED = 100


@dataclass(frozen=True)
class PlaneSizes:
    """Leaders of a transition, the pool, transitions, held-out particles; and M-PMC's sizes."""

    n_leaders: int
    n_pool: int
    n_transitions: int
    n_held_out: int
    n_components: int
    n_draws: int
    n_iterations: int


def in_the_plane(
    target: Target,
    q0: Gaussian,
    variant: str,
    sizes: PlaneSizes,
    n: int,
    generator: torch.Generator,
    batch: tuple[int, ...],
) -> tuple[ImportanceSample, Found]:
    """Run one variant; return n weighted particles, and what it cost each problem of ``batch``.

    The costs are `scores`, `densities` (calls for held-out particles, draws of M-PMC, and the
    final weights) and `seconds`; `folds` counts followers that maps of SteinIS fold at. It is zero
    for variants that have no such map, and for HAIS through maps, which raises instead.
    """
    began = time.perf_counter()
    s, none = sizes, torch.zeros(batch, dtype=torch.int64)
    scores, densities, folds = none, none + n, none
    start: Gaussian | FullCovarianceMixture = q0
    if variant.startswith("mixture"):
        start = _mixture(target, q0, s, generator, batch)
        densities = densities + s.n_draws * s.n_iterations
    if variant in MAPS:
        pool = s.n_pool if variant in ("pool", "affine") else s.n_leaders
        sampler = _sampler(target, q0, variant, s)
        state = sampler.init(q0, pool, n, generator, batch)
        if variant == "sobol":
            state = replace(state, leaders=sobol_sample(q0, (*batch, pool), generator))
        state = sampler.run(state, s.n_transitions)
        sample, folds = sampler.importance_sample(state), state.n_folds
        taken = -(-s.n_transitions // sampler.score_every)
        scores = none + taken * s.n_leaders
    elif variant in HELD_OUT:
        steered = _steered(target, s)
        still = steered.init(start, s.n_pool, n, s.n_held_out, generator, batch)
        still = steered.run(still, s.n_transitions)
        sample, folds = steered.importance_sample(still), still.n_folds
        steps = int(still.transition)
        scores = none + steps * s.n_leaders
        densities = densities + (3 * steps + 1) * s.n_held_out
    elif variant == "mixture-hais":
        assert isinstance(start, FullCovarianceMixture)
        sample, calls = anneal_mixture(target, start, ANNEAL, n, generator, batch)
        scores, densities = none + calls * n, densities - n
    elif variant == "mixture-maps-hais":
        assert isinstance(start, FullCovarianceMixture)
        inside, steps = _through_maps(target, start, s, generator, batch)
        annealed, calls = anneal_mixture(inside, start, ANNEAL_MAPS, n, generator, batch)
        sample = ImportanceSample(inside.to_x(annealed.particles), annealed.log_w)
        scores = none + steps * s.n_leaders + calls * n
        densities = densities - n + (3 * steps + 1) * s.n_held_out
    else:
        sample = importance_sampling(target, start, (*batch, n), generator)
    each = (time.perf_counter() - began) / math.prod(batch)
    spent = torch.full(batch, each, dtype=torch.float64)
    return sample, {"scores": scores, "densities": densities, "folds": folds, "seconds": spent}


def _steered(target: Target, s: PlaneSizes) -> HeldOutSteinIS:
    return HeldOutSteinIS(target, RBF(multiplier=WIDE), STEPS(0), s.n_leaders)


def _through_maps(
    target: Target,
    start: FullCovarianceMixture,
    s: PlaneSizes,
    generator: torch.Generator,
    batch: tuple[int, ...],
) -> tuple[PulledBack, int]:
    """Return p̄ in the coordinates of q_0 = ``start``, and transitions taken for the maps.

    The two followers that `HeldOutSteinIS` asks for are not used: annealing draws from q_0 anew.
    """
    maps: list[StepMap] = []

    def keep(_: HeldOutState, info: HeldOutInfo) -> None:
        if bool((info.gain > 0).any()):  # else it moves nothing
            maps.append(info.step_map)

    steered = _steered(target, s)
    state = steered.init(start, s.n_pool, 2, s.n_held_out, generator, batch)
    state = steered.run(state, FEW_MAPS, keep)
    return PulledBack(target, tuple(maps)), int(state.transition)


def anneal_mixture(
    target: Target,
    mixture: FullCovarianceMixture,
    setting: tuple[int, int, float],
    n: int,
    generator: torch.Generator,
    batch: tuple[int, ...] = (),
) -> tuple[ImportanceSample, int]:
    """Return n weighted particles by HAIS from a mixture, and calls of p̄ for each."""
    n_transitions, n_leapfrog, step = setting
    chain = HAIS(target, mixture, linear_schedule(n_transitions), step, n_leapfrog)
    return chain.importance_sample(chain.run(chain.init(n, generator, batch))), chain.gradients


def bridge_mixture(
    target: Target, mixture: FullCovarianceMixture, n_draws: int, generator: torch.Generator
) -> BridgeEstimate:
    """Bridge a mixture at the modes and p̄, from so many draws of the mixture."""
    n_transitions, n_leapfrog, step = BRIDGE_MODES
    sampler = Bridge(target, mixture, step, n_leapfrog)
    state = sampler.run(sampler.init(n_draws, ANNEALED, generator), n_transitions)
    return sampler.estimate(state)


def _sampler(target: Target, q0: Gaussian, variant: str, s: PlaneSizes) -> SteinIS:
    kernel: Kernel = RBF(multiplier=WIDE)
    steps = STEPS
    if variant == "affine":  # the affine part alone asks for steps well below 1
        kernel = Whitened(Sum((Linear(), kernel), (1.0, 4.0)))
        steps = replace(STEPS, alpha=0.1)
    per_step = s.n_leaders if variant in ("pool", "affine") else None
    half = linear_schedule(max(1, s.n_transitions // 2))
    return SteinIS(
        target, kernel, steps, leaders_per_step=per_step,
        score_every=2 if variant == "reused" else 1,
        score_target=Tempering(GeometricPath(q0, target), half) if variant == "annealed" else None,
    )  # fmt: skip


def _mixture(
    target: Target, q0: Gaussian, s: PlaneSizes, generator: torch.Generator, batch: tuple[int, ...]
) -> FullCovarianceMixture:
    """Fit a mixture by M-PMC, from components of unit covariance around draws of N(0, 4 I)."""
    k, d = s.n_components, target.dim
    means = 2 * q0.sample((*batch, k), generator)
    eye = torch.eye(d, dtype=means.dtype).expand(*batch, k, d, d)
    start = FullCovarianceMixture(torch.full_like(means[..., 0], -math.log(k)), means, eye)
    sampler = MixturePMC(target, s.n_draws)
    return sampler.proposal(sampler.run(sampler.init(start, generator), s.n_iterations))


EXPLORERS, MODES, MODE_TRANSITIONS, WEIGHINGS, DRAWS = 100, 12, 10, 6, 500


def at_modes(
    target: Counted, q0: Gaussian, n_exploring: int, generator: torch.Generator
) -> tuple[FullCovarianceMixture, Mapping[str, int]]:
    """Fit a Gaussian at each mode that annealed explorers find; return the mixture, and costs."""
    costs: dict[str, int] = {}

    def since(name: str) -> None:
        costs[name] = target.n - sum(costs.values())

    ends = local_fits.explore(target, q0, EXPLORERS, n_exploring, generator, n_leapfrog=1)
    since("exploring")
    x, log_p, epsilon = local_fits.climb(target, ends)
    since("climbing")
    chosen = local_fits.distinct(x, log_p, epsilon, MODES)
    fits, elbo = local_fits.fit(
        target, x[chosen], epsilon[chosen].sqrt(), target.dim + 10, MODE_TRANSITIONS, generator
    )
    since("fitting")
    mixture = local_fits.weigh(target, fits, elbo, DRAWS, WEIGHINGS, generator)
    since("weighing")
    return mixture, costs
