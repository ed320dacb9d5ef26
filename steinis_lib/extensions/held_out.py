"""SteinIS with held-out followers that choose the step, the bandwidth, and when to stop.

With x drawn from q_ℓ, the mean of log p̄(x) - log q_ℓ(x) estimates log Z - KL(q_ℓ‖p). A third set of
particles, drawn from q_0 like followers, is pushed through the maps for nothing but this mean, its
"merit". Each transition tries a few steps or bandwidths and takes the best; where none raises the
merit, the problem stands still and its step is halved. So the held-out KL never rises. For leaders
and n held-out particles a transition costs one score of each leader that builds the map, and 3n
values of log p̄.

Given leaders and held-out particles, followers are still independent draws from a known q_ℓ, and Ẑ
is unbiased. Held-out particles must not be weighed themselves: they chose the maps that moved them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from steinis_lib.core.checks import (
    check_finite,
    check_log_density,
    check_particles,
    check_step_size,
)
from steinis_lib.core.generators import fork, random_batch, resume
from steinis_lib.importance import ImportanceSample
from steinis_lib.stein.kernels import RBF, Radial, median_bandwidth
from steinis_lib.stein.maps import StepMap
from steinis_lib.targets.base import Proposal, Target

FACTORS = (1.0, 0.5, 2.0)
"""What a transition tries on the step, and on every second transition on the bandwidth."""


@dataclass(frozen=True)
class HeldOutState:
    """Where a run stands.

    Parameters
    ----------
    leaders, followers, held_out
        ``(*batch, |A|, d)``, ``(*batch, |B|, d)`` and ``(*batch, n, d)``.
    log_q, log_q_held_out
        log q_ℓ of followers and of held-out particles.
    merit
        Mean log-weight of the held-out particles, ``(*batch,)``; it never falls. -inf while p̄ is
        zero at one of them.
    step_size, multiplier
        ε and the bandwidth's multiplier that the next transition starts from, ``(*batch,)``.
    n_refused
        Transitions in a row that moved nothing, int64 ``(*batch,)``.
    n_folds
        How often a follower met a non-positive determinant, int64 ``(*batch,)``, as in
        `SteinISState`. No held-out particle ever does.
    transition
        ℓ, an int64 scalar.
    rng
        The state of the run's own random generator, uint8.
    """

    leaders: Tensor
    followers: Tensor
    held_out: Tensor
    log_q: Tensor
    log_q_held_out: Tensor
    merit: Tensor
    step_size: Tensor
    multiplier: Tensor
    n_refused: Tensor
    n_folds: Tensor
    transition: Tensor
    rng: Tensor


@dataclass(frozen=True)
class HeldOutInfo:
    """What one transition did.

    Parameters
    ----------
    gain
        How much the merit rose, ``(*batch,)``; 0 where nothing moved.
    step_map
        The map; its ε is 0 where nothing moved. Keep those of a run to build a `PushForward`.
    """

    gain: Tensor
    step_map: StepMap


@dataclass(frozen=True)
class HeldOutSteinIS:
    """The settings of a run, and its `init`, `step`, `run` and `importance_sample`.

    Parameters
    ----------
    target
        p̄, through `log_prob` and `score`.
    kernel
        A radial kernel without a bandwidth of its own; its multiplier is where the search starts.
    step_size
        The ε that the search starts from.
    leaders_per_step
        Leaders drawn anew from the pool for each transition, as in `SteinIS`. None: all of them.
    patience
        A problem that was refused so often in a row stands still from then on; `run` stops when
        all do.

    Raises
    ------
    ValueError
        If a setting is out of range, or the kernel has a bandwidth or is not radial.
    """

    target: Target
    kernel: Radial = field(default_factory=RBF)
    step_size: float = 0.3
    leaders_per_step: int | None = None
    patience: int = 6

    def __post_init__(self) -> None:
        if self.leaders_per_step is not None and self.leaders_per_step < 2:
            raise ValueError(f"leaders_per_step must be at least 2, got {self.leaders_per_step}")
        check_step_size(self.step_size)
        if not isinstance(self.kernel, Radial) or self.kernel.bandwidth is not None:
            raise ValueError(
                "the kernel must be radial and without a bandwidth, as the bandwidth is searched "
                f"for: give it a multiplier to start from; got {self.kernel}"
            )
        if self.patience < 1:
            raise ValueError(f"patience must be at least 1, got {self.patience}")

    def init(
        self,
        q0: Proposal,
        n_leaders: int,
        n_followers: int,
        n_held_out: int,
        generator: torch.Generator,
        batch_shape: tuple[int, ...] = (),
    ) -> HeldOutState:
        """Draw leaders, followers and held-out particles from q_0, each independently.

        `generator` also seeds the choice of leaders.

        Raises
        ------
        ValueError
            If q_0 and the target differ in d, or there are too few particles of a kind.
        FloatingPointError
            If log p̄ is NaN or +inf at a held-out particle, naming it.
        """
        if q0.dim != self.target.dim:
            raise ValueError(f"q0 has d={q0.dim}, but the target has d={self.target.dim}")
        leaders = q0.sample((*batch_shape, n_leaders), generator)
        check_particles(leaders, "leaders", self.target.dim, at_least=self.leaders_per_step or 2)
        followers = q0.sample((*batch_shape, n_followers), generator)
        check_particles(followers, "followers", self.target.dim, at_least=2)
        held_out = q0.sample((*batch_shape, n_held_out), generator)
        check_particles(held_out, "held-out particles", self.target.dim, at_least=2)
        log_q = q0.log_prob(held_out)
        log_p = self.target.log_prob(held_out)
        check_log_density(log_p, "the target's log_prob")
        merit = (log_p - log_q).mean(-1)
        none = torch.zeros(merit.shape, dtype=torch.int64, device=merit.device)
        return HeldOutState(
            leaders, followers, held_out, q0.log_prob(followers), log_q, merit,
            torch.full_like(merit, self.step_size), torch.full_like(merit, self.kernel.multiplier),
            none, none, torch.tensor(0), fork(generator),
        )  # fmt: skip

    def step(self, state: HeldOutState) -> tuple[HeldOutState, HeldOutInfo]:
        """One transition: build maps of several steps or bandwidths, take the best, or none.

        Raises
        ------
        FloatingPointError
            If a leader's score is not finite, or a leader or follower is moved to no number, naming
            the particle.
        """
        generator = resume(state.rng, state.leaders.device)
        x = self._batch(state.leaders, generator)
        scores = self.target.score(x)
        check_finite(scores, "the target's score")
        rule = median_bandwidth(x)

        def build(epsilon: Tensor, multiplier: Tensor) -> StepMap:
            return StepMap(x, scores, replace(self.kernel, bandwidth=rule * multiplier), epsilon)

        step, multiplier = state.step_size, state.multiplier
        tries = state.n_refused < self.patience
        best, best_step, best_multiplier = state.merit, torch.zeros_like(step), multiplier
        for factor in FACTORS:
            if int(state.transition) % 2:
                tried = (step, multiplier * factor)
            else:
                tried = (step * factor, multiplier)
            merit = self._merit(state, build(*tried))
            better = tries & (merit > best)
            best = torch.where(better, merit, best)
            best_step = torch.where(better, tried[0], best_step)
            best_multiplier = torch.where(better, tried[1], best_multiplier)
        chosen = build(best_step, best_multiplier)
        leaders = chosen(state.leaders)
        followers, log_det, positive = chosen.with_log_det(state.followers)
        held_out, log_det_held_out, _ = chosen.with_log_det(state.held_out)
        check_finite(leaders, "a leader")
        check_finite(followers, "a follower")
        moved = best > state.merit
        new = HeldOutState(
            leaders=leaders,
            followers=followers,
            held_out=held_out,
            log_q=state.log_q - log_det,
            log_q_held_out=state.log_q_held_out - log_det_held_out,
            merit=best,
            step_size=torch.where(moved, best_step, torch.where(tries, step / 2, step)),
            multiplier=best_multiplier,
            n_refused=torch.where(moved, 0, state.n_refused + tries.long()),
            n_folds=state.n_folds + (~positive).sum(-1),
            transition=state.transition + 1,
            rng=generator.get_state(),
        )
        return new, HeldOutInfo(torch.where(moved, best - state.merit, 0.0), chosen)

    def run(
        self,
        state: HeldOutState,
        n_transitions: int,
        on_step: Callable[[HeldOutState, HeldOutInfo], None] | None = None,
    ) -> HeldOutState:
        """Take up to `n_transitions` further ones; stop where all problems are out of patience."""
        for _ in range(n_transitions):
            if bool((state.n_refused >= self.patience).all()):
                break
            state, info = self.step(state)
            if on_step is not None:
                on_step(state, info)
        return state

    def importance_sample(self, state: HeldOutState) -> ImportanceSample:
        """Return the followers, and never the held-out particles, with log w = log p̄ - log q_ℓ.

        Raises
        ------
        FloatingPointError
            If a log-density is NaN or +inf, naming the follower.
        """
        log_p = self.target.log_prob(state.followers)
        check_log_density(log_p, "the target's log_prob")
        return ImportanceSample(state.followers, log_p - state.log_q)

    def _merit(self, state: HeldOutState, step_map: StepMap) -> Tensor:
        """The merit after a map, ``(*batch,)``; -∞ where it folds or leaves the numbers."""
        moved, log_det, positive = step_map.with_log_det(state.held_out)
        merit = (self.target.log_prob(moved) - state.log_q_held_out + log_det).mean(-1)
        return torch.where(positive.all(-1) & torch.isfinite(merit), merit, -torch.inf)

    def _batch(self, leaders: Tensor, generator: torch.Generator) -> Tensor:
        k = self.leaders_per_step
        return leaders if k is None else random_batch(leaders, k, generator)
