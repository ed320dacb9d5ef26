"""Stein variational importance sampling, Algorithm 1 of the paper.

Each transition builds a map from the leaders, as SVGD does, and moves leaders and followers by it.
Followers carry the log of their density q_ℓ, which changes by the map's log-determinant. Given the
leaders, followers are independent draws from q_ℓ, so p̄/q_ℓ are ordinary importance weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace

import torch
from torch import Tensor

from steinis_lib.core.algorithm import Algorithm
from steinis_lib.core.checks import (
    check_at_least,
    check_finite,
    check_log_density,
    check_particles,
    check_q0,
    check_step_size,
)
from steinis_lib.core.generators import fork, random_batch, resume
from steinis_lib.importance import ImportanceSample
from steinis_lib.schedules import StepSchedule, step_at
from steinis_lib.stein.kernels import RBF, Kernel
from steinis_lib.stein.maps import Determinant, StepMap, build
from steinis_lib.targets.base import Proposal, Target


@dataclass(frozen=True)
class SteinISState:
    """Where a run stands: all that is needed to continue it.

    Parameters
    ----------
    leaders
        x_A, ``(*batch, |A|, d)``.
    followers
        x_B, ``(*batch, |B|, d)``.
    log_q
        log q_ℓ at each follower, ``(*batch, |B|)``.
    transition
        ℓ, an int64 scalar.
    n_folds
        How often a follower met a non-positive determinant so far, int64 ``(*batch,)``. If it is
        not zero, some map was not one-to-one, and Ẑ is biased upwards.
    rng
        The state of the run's own random generator, uint8; empty where nothing is drawn.
    """

    leaders: Tensor
    followers: Tensor
    log_q: Tensor
    transition: Tensor
    n_folds: Tensor
    rng: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))


@dataclass(frozen=True)
class SteinISInfo:
    """What one transition did.

    Parameters
    ----------
    step_size
        ε.
    log_abs_det
        log|det(I + ε∇φ)| at each follower, ``(*batch, |B|)``.
    n_folds
        Followers with a non-positive determinant in this transition, ``(*batch,)``.
    step_map
        The map. Keep the maps of a run to build a `PushForward`: q_ℓ with a density anywhere.
    """

    step_size: float
    log_abs_det: Tensor
    n_folds: Tensor
    step_map: StepMap


@dataclass(frozen=True)
class SteinIS(Algorithm[SteinISState, SteinISInfo]):
    """Algorithm 1.

    Parameters
    ----------
    target
        p̄, through `log_prob` and `score`.
    q0
        Where leaders and followers start.
    n_leaders, n_followers
        |A| and |B|, of each problem.
    kernel
        Default: RBF with the paper's bandwidth rule, fitted to the leaders at each transition.
    step_size
        ε, or a schedule ℓ → ε such as `StepSize`.
    determinant
        "exact" (default, keeps Ẑ unbiased), "first-order", or the paper's "switch" between them
        at ε = 0.1; see `StepMap.with_log_det`.
    leaders_per_step
        So many leaders are drawn anew for each transition. They alone build its map and need
        scores; the map moves all leaders (random batches; Jin, Li & Liu 2020). A large pool keeps
        the maps from fitting the accidents of a few particles. None (default): all leaders build
        every map, as in Algorithm 1.

    Raises
    ------
    ValueError
        If a setting is out of range, or q_0 and the target have different dimensions.
    """

    target: Target
    q0: Proposal
    _: KW_ONLY
    n_leaders: int = 100
    n_followers: int = 1000
    kernel: Kernel = field(default_factory=RBF)
    step_size: float | StepSchedule = 0.1
    determinant: Determinant = "exact"
    leaders_per_step: int | None = None

    def __post_init__(self) -> None:
        check_q0(self.target, self.q0)
        check_at_least(self.n_leaders, 2, "n_leaders")
        check_at_least(self.n_followers, 1, "n_followers")
        check_step_size(self.step_size)
        if self.leaders_per_step is not None:
            check_at_least(self.leaders_per_step, 2, "leaders_per_step")

    def init(
        self, generator: torch.Generator, *, batch_shape: tuple[int, ...] = ()
    ) -> SteinISState:
        """Draw leaders and followers from q_0, and note log q_0 at the followers."""
        leaders = self.q0.sample((*batch_shape, self.n_leaders), generator)
        followers = self.q0.sample((*batch_shape, self.n_followers), generator)
        return self.start(leaders, followers, self.q0.log_prob(followers), generator)

    def start(
        self,
        leaders: Tensor,
        followers: Tensor,
        log_q: Tensor,
        generator: torch.Generator | None = None,
    ) -> SteinISState:
        """Start from given particles, as many as there are, instead of `init`.

        The weights are valid if followers are drawn from a known density, independently of leaders.

        Parameters
        ----------
        leaders
            ``(*batch, |A|, d)``, from anywhere.
        followers
            ``(*batch, |B|, d)``.
        log_q
            The log-density of the followers, ``(*batch, |B|)``.
        generator
            Seeds the choice of leaders; needed with `leaders_per_step`.

        Raises
        ------
        ValueError
            If a shape does not fit, or the generator is missing.
        FloatingPointError
            If `log_q` is NaN or +inf, naming the follower.
        """
        check_particles(leaders, "leaders", self.target.dim, at_least=self.leaders_per_step or 2)
        check_particles(followers, "followers", self.target.dim)
        if log_q.shape != (shape := tuple(followers.shape[:-1])):
            raise ValueError(f"log_q must be (*batch, n) = {shape}, got {tuple(log_q.shape)}")
        check_log_density(log_q, "log q_0")
        folds = torch.zeros(followers.shape[:-2], dtype=torch.int64, device=followers.device)
        state = SteinISState(leaders, followers, log_q, torch.tensor(0), folds)
        if self.leaders_per_step is None:
            return state
        if generator is None:
            raise ValueError("leaders_per_step draws leaders: start needs a generator")
        return replace(state, rng=fork(generator))

    def step(self, state: SteinISState) -> tuple[SteinISState, SteinISInfo]:
        """Take steps 1 to 3 of Algorithm 1: build the map, move all particles, update log q.

        Raises
        ------
        FloatingPointError
            If a score or a moved particle is not finite, naming the particle.
        """
        epsilon = step_at(self.step_size, int(state.transition))
        chosen, rng = state.leaders, state.rng
        if self.leaders_per_step is not None:
            generator = resume(rng, chosen.device)
            chosen = random_batch(chosen, self.leaders_per_step, generator)
            rng = generator.get_state()
        step_map = build(self.target, chosen, self.kernel, epsilon)  # 1, from leaders alone
        leaders = step_map(state.leaders)  # 2, and the Jacobians for 3
        followers, log_abs_det, positive = step_map.with_log_det(state.followers, self.determinant)
        check_finite(leaders, "a leader")
        check_finite(followers, "a follower")
        folds = (~positive).sum(-1)
        new = SteinISState(
            leaders=leaders,
            followers=followers,
            log_q=state.log_q - log_abs_det,  # 3
            transition=state.transition + 1,
            n_folds=state.n_folds + folds,
            rng=rng,
        )
        return new, SteinISInfo(epsilon, log_abs_det, folds, step_map)

    def run_until(
        self,
        state: SteinISState,
        n_transitions: int,
        *,
        ess_threshold: float,
        check_every: int = 10,
        on_step: Callable[[SteinISState, SteinISInfo], None] | None = None,
    ) -> SteinISState:
        """Run until ESS/|B| has reached a fraction in every problem, or for `n_transitions`.

        The ESS is checked before the first transition and after each `check_every`. Ẑ is then
        consistent, but no longer exactly unbiased, because its own weights decide when to stop.
        """
        if not 0 < ess_threshold <= 1:
            raise ValueError(f"ess_threshold is a fraction in (0, 1], got {ess_threshold}")
        check_at_least(check_every, 1, "check_every")
        for done in range(0, n_transitions, check_every):
            sample = self.importance_sample(state)
            if bool((sample.ess >= ess_threshold * sample.n).all()):
                break
            left = n_transitions - done
            state = self.run(state, min(check_every, left), on_step=on_step)
        return state

    def importance_sample(self, state: SteinISState) -> ImportanceSample:
        """Return the followers with log w = log p̄ - log q_ℓ (the weights of section 3).

        Raises
        ------
        FloatingPointError
            If a log-density is NaN or +inf, naming the follower.
        """
        log_p = self.target.log_prob(state.followers)
        check_log_density(log_p, "the target's log_prob")
        return ImportanceSample(state.followers, log_p - state.log_q)

    def n_evaluations(self, n_transitions: int) -> int:
        """Return at how many particles of one problem p̄ or its score is asked for."""
        return n_transitions * (self.leaders_per_step or self.n_leaders) + self.n_followers
