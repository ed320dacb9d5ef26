"""What the variants of `beyond` do on each section's problem; `beyond` lists them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steinis_lib import local_fits
from steinis_lib.affine import Linear, Sum, Whitened
from steinis_lib.annealing import linear
from steinis_lib.coordinates import InCoordinates
from steinis_lib.decoder import DecoderPosterior
from steinis_lib.gaussian_flow import GaussianFlow
from steinis_lib.hais import HAIS
from steinis_lib.held_out import HeldOutSteinIS
from steinis_lib.importance import ImportanceSample
from steinis_lib.inexact import CheapScore
from steinis_lib.kernels import RBF, Kernel
from steinis_lib.low_discrepancy import sobol_sample
from steinis_lib.mixtures import FullMixture
from steinis_lib.mpmc import MixturePMC
from steinis_lib.plain import importance_sampling
from steinis_lib.schedules import StepSize
from steinis_lib.steinis import SteinIS
from steinis_lib.targets import Gaussian, Target
from steinis_lib.vae import VAE, Decoder

Found = dict[str, Tensor]
WIDE = 6.0
"""The bandwidth's multiplier in the plane: the widest of what section 2 tries that never folds."""
STEPS = StepSize(0.5, 0.1)
MAPS = ("fixed", "sobol", "reused", "pool", "affine")
"""SteinIS with one thing changed at a time, from the wide kernel and fixed leaders on."""
HELD_OUT = ("held-out", "mixture-held-out")
WARPED = (*MAPS, *HELD_OUT, "mixture")
MIXTURES = ("pool", *HELD_OUT, "mixture", "mixture-hais")
"""The variants on the targets of sections 3 and 2; the last anneals from the fitted mixture."""
ANNEAL = (50, 3, 0.4)
"""Transitions, leapfrogs and ε of HAIS from a mixture in the plane, ..."""
ANNEAL_MODES = (200, 1, 0.3)
"""... and from local fits at the modes of an RBM, with `ANNEALED` chains."""
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
    final weights) and `seconds`; `folds` counts followers.
    """
    began = time.perf_counter()
    s, none = sizes, torch.zeros(batch, dtype=torch.int64)
    scores, densities, folds = none, none + n, none
    start: Gaussian | FullMixture = q0
    if variant.startswith("mixture"):
        start = _mixture(target, q0, s, generator, batch)
        densities = densities + s.n_draws * s.n_iterations
    if variant in MAPS:
        pool = s.n_pool if variant in ("pool", "affine") else s.n_leaders
        sampler = _sampler(target, variant, s.n_leaders)
        state = sampler.init(q0, pool, n, generator, batch)
        if variant == "sobol":
            state = replace(state, leaders=sobol_sample(q0, (*batch, pool), generator))
        state = sampler.run(state, s.n_transitions)
        sample, folds = sampler.importance_sample(state), state.n_folds
        taken = -(-s.n_transitions // sampler.score_every)
        scores = none + taken * s.n_leaders
    elif variant in HELD_OUT:
        steered = HeldOutSteinIS(target, RBF(multiplier=WIDE), STEPS(0), s.n_leaders)
        still = steered.init(start, s.n_pool, n, s.n_held_out, generator, batch)
        still = steered.run(still, s.n_transitions)
        sample, folds = steered.importance_sample(still), still.n_folds
        steps = int(still.transition)
        scores = none + steps * s.n_leaders
        densities = densities + (3 * steps + 1) * s.n_held_out
    elif variant == "mixture-hais":
        assert isinstance(start, FullMixture)
        sample, calls = anneal_mixture(target, start, ANNEAL, n, generator, batch)
        scores, densities = none + calls * n, densities - n
    else:
        sample = importance_sampling(target, start, (*batch, n), generator)
    spent = torch.full(batch, time.perf_counter() - began, dtype=torch.float64)
    return sample, {"scores": scores, "densities": densities, "folds": folds, "seconds": spent}


def anneal_mixture(
    target: Target,
    mixture: FullMixture,
    setting: tuple[int, int, float],
    n: int,
    generator: torch.Generator,
    batch: tuple[int, ...] = (),
) -> tuple[ImportanceSample, int]:
    """Return n weighted particles by HAIS from a mixture, and calls of p̄ for each."""
    n_transitions, n_leapfrog, step = setting
    chain = HAIS(target, mixture, linear(n_transitions), step, n_leapfrog)
    return chain.importance_sample(chain.run(chain.init(n, generator, batch))), chain.gradients


def _sampler(target: Target, variant: str, n_leaders: int) -> SteinIS:
    kernel: Kernel = RBF(multiplier=WIDE)
    steps = STEPS
    if variant == "affine":  # the affine part alone asks for steps well below 1
        kernel = Whitened(Sum((Linear(), kernel), (1.0, 4.0)))
        steps = replace(STEPS, alpha=0.1)
    per_step = n_leaders if variant in ("pool", "affine") else None
    return SteinIS(
        target, kernel, steps, leaders_per_step=per_step,
        score_every=2 if variant == "reused" else 1,
    )  # fmt: skip


def _mixture(
    target: Target, q0: Gaussian, s: PlaneSizes, generator: torch.Generator, batch: tuple[int, ...]
) -> FullMixture:
    """Fit a mixture by M-PMC, from components of unit covariance around draws of N(0, 4 I)."""
    k, d = s.n_components, target.dim
    means = 2 * q0.sample((*batch, k), generator)
    eye = torch.eye(d, dtype=means.dtype).expand(*batch, k, d, d)
    start = FullMixture(torch.full_like(means[..., 0], -math.log(k)), means, eye)
    sampler = MixturePMC(target, s.n_draws)
    return sampler.proposal(sampler.run(sampler.init(start, generator), s.n_iterations))


@dataclass(frozen=True)
class Hybrid:
    """A Gaussian flow, then HAIS from its end, in its coordinates.

    Parameters
    ----------
    flow_transitions, n_leaders, full_steps
        Of the flow.
    n_transitions, n_leapfrog, step_size
        Of HAIS.
    """

    flow_transitions: int
    n_leaders: int
    full_steps: int
    n_transitions: int
    n_leapfrog: int
    step_size: float

    def left(self, evaluations: int) -> int:
        """Of so many evaluations for one image, those that the flow leaves."""
        return evaluations - self.flow_transitions * self.n_leaders

    def chains(self, evaluations: int) -> int:
        """How many chains of HAIS what is left pays for."""
        return self.left(evaluations) // (self.n_transitions * self.n_leapfrog + 1)


HYBRIDS = [
    Hybrid(*first, *second)
    for first in ((15, 60, 8), (22, 40, 9), (16, 55, 9))
    for second in ((20, 3, 0.4), (20, 3, 0.55), (30, 2, 0.55), (60, 1, 0.55))
]
"""The candidates for 4000 evaluations; `hybrids` leaves out those with too few leaders for d."""


def hybrids(dim: int) -> list[Hybrid]:
    """Return the candidates at a latent dimension: twelve, or fewer where leaders must exceed d."""
    return [h for h in HYBRIDS if h.n_leaders > dim]


def flow(
    posterior: DecoderPosterior,
    model: VAE,
    setting: Hybrid,
    cheap: bool,
    generator: torch.Generator,
) -> Gaussian:
    """Fit q_K to each image's posterior from the prior; `cheap`: with scores in bfloat16."""
    target: Target = posterior
    if cheap:
        names = Decoder.__dataclass_fields__
        half = Decoder(**{n: getattr(model.decoder, n).bfloat16() for n in names})
        rounded = DecoderPosterior(half, posterior.images.bfloat16())
        target = CheapScore(posterior, rounded, torch.bfloat16)
    sampler = GaussianFlow(target, setting.n_leaders, setting.full_steps)
    state = sampler.init(posterior.prior(), generator, tuple(posterior.images.shape[:-1]))
    return sampler.proposal(sampler.run(state, setting.flow_transitions))


def finish(
    posterior: DecoderPosterior,
    q: Gaussian,
    setting: Hybrid,
    n: int,
    generator: torch.Generator,
) -> ImportanceSample:
    """Anneal n chains for each image from q to the posterior."""
    inside = InCoordinates(posterior, q)
    chain = HAIS(
        inside, inside.base(), linear(setting.n_transitions), setting.step_size, setting.n_leapfrog
    )
    return chain.importance_sample(chain.run(chain.init(n, generator, tuple(q.mean.shape[:-1]))))


EXPLORERS, MODES, MODE_TRANSITIONS, WEIGHINGS, DRAWS = 100, 12, 10, 6, 500


class Counted:
    """A target that counts the particles it is evaluated at, with a gradient or without."""

    def __init__(self, target: Target) -> None:
        self.target, self.dim, self.n = target, target.dim, 0

    def log_prob(self, x: Tensor) -> Tensor:
        """Count, and return log p̄."""
        self.n += math.prod(x.shape[:-1])
        return self.target.log_prob(x)

    def score(self, x: Tensor) -> Tensor:
        """Count, and return the score."""
        self.n += math.prod(x.shape[:-1])
        return self.target.score(x)

    def log_prob_and_score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Count once, and return both."""
        self.n += math.prod(x.shape[:-1])
        return self.target.log_prob_and_score(x)


def at_modes(
    target: Counted, q0: Gaussian, n_exploring: int, generator: torch.Generator
) -> tuple[FullMixture, Mapping[str, int]]:
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
