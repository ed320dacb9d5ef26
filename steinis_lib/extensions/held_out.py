"""SteinIS with held-out followers that choose the step, the bandwidth, and when to stop.

With x drawn from q_ℓ, the mean of log p̄(x) - log q_ℓ(x) estimates the ELBO, log Z - KL(q_ℓ‖p). A
third set of particles, drawn from q_0 as followers are, is pushed through the maps solely to
estimate this mean. Each transition tries three steps or bandwidths and takes the one with the
highest ELBO. If none raises it, no particle of the problem moves, and its step is halved. So the
held-out KL never rises. A transition costs one score of each leader that builds the map, and three
values of log p̄ of each held-out particle.

Given leaders and held-out particles, followers are still independent draws from a known q_ℓ, and Ẑ
is unbiased. Held-out particles must not be weighed themselves: they chose the maps that moved them.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace

import torch
from torch import Tensor

from steinis_lib.core.algorithm import Algorithm
from steinis_lib.core.checks import (
    check_at_least,
    check_finite,
    check_log_density,
    check_q0,
    check_step_size,
)
from steinis_lib.core.generators import fork, random_batch, resume
from steinis_lib.importance import ImportanceSample
from steinis_lib.stein.kernels import RBF, Radial, median_bandwidth
from steinis_lib.stein.maps import StepMap
from steinis_lib.targets.base import Proposal, Target

FACTORS = (1.0, 0.5, 2.0)
"""What a transition multiplies the step by; every second one, the bandwidth instead."""


@dataclass(frozen=True)
class HeldOutSteinISState:
    """Where a run stands.

    Parameters
    ----------
    leaders, followers, held_out
        ``(*batch, |A|, d)``, ``(*batch, |B|, d)`` and ``(*batch, n, d)``.
    log_q, log_q_held_out
        log q_ℓ of followers ``(*batch, |B|)`` and of held-out particles ``(*batch, n)``.
    elbo
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
        The state of the run's own random generator, uint8; `step` draws from nothing else.
    """

    leaders: Tensor
    followers: Tensor
    held_out: Tensor
    log_q: Tensor
    log_q_held_out: Tensor
    elbo: Tensor
    step_size: Tensor
    multiplier: Tensor
    n_refused: Tensor
    n_folds: Tensor
    transition: Tensor
    rng: Tensor


@dataclass(frozen=True)
class HeldOutSteinISInfo:
    """What one transition did.

    Parameters
    ----------
    gain
        How much the ELBO rose, ``(*batch,)``; 0 where nothing moved.
    step_map
        The map; its ε is 0 where nothing moved. Keep those of a run to build a `PushForward`.
    """

    gain: Tensor
    step_map: StepMap


@dataclass(frozen=True)
class HeldOutSteinIS(Algorithm[HeldOutSteinISState, HeldOutSteinISInfo]):
    """SteinIS that is steered by held-out particles.

    Parameters
    ----------
    target
        p̄, through `log_prob` and `score`.
    q0
        Where all particles are drawn from.
    n_leaders, n_followers, n_held_out
        Particles of each kind, at least 2.
    kernel
        A radial kernel without a bandwidth of its own; its multiplier is where the search starts.
    first_step_size
        The ε that the search starts from.
    leaders_per_step
        Leaders drawn anew from the pool for each transition, as in `SteinIS`. None: all of them.
    patience
        A problem in which nothing moved for so many transitions in a row is finished: nothing
        moves in it any more. `run` stops when all problems are finished.

    Raises
    ------
    ValueError
        If a setting is out of range, dimensions differ, or the kernel has a bandwidth or is not
        radial.
    """

    target: Target
    q0: Proposal
    _: KW_ONLY
    n_leaders: int = 1000
    n_followers: int = 1000
    n_held_out: int = 500
    kernel: Radial = field(default_factory=RBF)
    first_step_size: float = 0.3
    leaders_per_step: int | None = None
    patience: int = 6

    def __post_init__(self) -> None:
        check_q0(self.target, self.q0)
        if self.leaders_per_step is not None:
            check_at_least(self.leaders_per_step, 2, "leaders_per_step")
        check_at_least(self.n_leaders, self.leaders_per_step or 2, "n_leaders")
        check_at_least(self.n_followers, 2, "n_followers")
        check_at_least(self.n_held_out, 2, "n_held_out")
        check_at_least(self.patience, 1, "patience")
        check_step_size(self.first_step_size)
        if not isinstance(self.kernel, Radial) or self.kernel.bandwidth is not None:
            raise ValueError(
                "the kernel must be radial and without a bandwidth, as the bandwidth is searched "
                f"for: give it a multiplier to start from; got {self.kernel}"
            )

    def init(
        self, generator: torch.Generator, *, batch_shape: tuple[int, ...] = ()
    ) -> HeldOutSteinISState:
        """Draw leaders, followers and held-out particles from q_0, each independently.

        `generator` also seeds the choice of leaders.

        Raises
        ------
        FloatingPointError
            If log p̄ is NaN or +inf at a held-out particle, naming it.
        """
        leaders, followers, held_out = (
            self.q0.sample((*batch_shape, n), generator)
            for n in (self.n_leaders, self.n_followers, self.n_held_out)
        )
        log_q = self.q0.log_prob(held_out)
        log_p = self.target.log_prob(held_out)
        check_log_density(log_p, "the target's log_prob")
        elbo = (log_p - log_q).mean(-1)
        none = torch.zeros(elbo.shape, dtype=torch.int64, device=elbo.device)
        return HeldOutSteinISState(
            leaders=leaders,
            followers=followers,
            held_out=held_out,
            log_q=self.q0.log_prob(followers),
            log_q_held_out=log_q,
            elbo=elbo,
            step_size=torch.full_like(elbo, self.first_step_size),
            multiplier=torch.full_like(elbo, self.kernel.multiplier),
            n_refused=none,
            n_folds=none,
            transition=torch.tensor(0),
            rng=fork(generator),
        )

    def step(self, state: HeldOutSteinISState) -> tuple[HeldOutSteinISState, HeldOutSteinISInfo]:
        """One transition: build maps with several steps or bandwidths, and take the best or none.

        Raises
        ------
        FloatingPointError
            If a leader's score is not finite, or a leader or follower moves to no finite point,
            naming the particle.
        """
        generator = resume(state.rng, state.leaders.device)
        x = state.leaders
        if self.leaders_per_step is not None:
            x = random_batch(x, self.leaders_per_step, generator)
        scores = self.target.score(x)
        check_finite(scores, "the target's score")
        rule = median_bandwidth(x)

        def build(epsilon: Tensor, multiplier: Tensor) -> StepMap:
            return StepMap(x, scores, replace(self.kernel, bandwidth=rule * multiplier), epsilon)

        step, multiplier = state.step_size, state.multiplier
        tries = state.n_refused < self.patience
        best, best_step, best_multiplier = state.elbo, torch.zeros_like(step), multiplier
        for factor in FACTORS:
            if int(state.transition) % 2:
                tried = (step, multiplier * factor)
            else:
                tried = (step * factor, multiplier)
            elbo = self._elbo(state, build(*tried))
            better = tries & (elbo > best)
            best = torch.where(better, elbo, best)
            best_step = torch.where(better, tried[0], best_step)
            best_multiplier = torch.where(better, tried[1], best_multiplier)
        chosen = build(best_step, best_multiplier)
        leaders = chosen(state.leaders)
        followers, log_det, positive = chosen.with_log_det(state.followers)
        held_out, log_det_held_out, _ = chosen.with_log_det(state.held_out)
        check_finite(leaders, "a leader")
        check_finite(followers, "a follower")
        moved = best > state.elbo
        new = HeldOutSteinISState(
            leaders=leaders,
            followers=followers,
            held_out=held_out,
            log_q=state.log_q - log_det,
            log_q_held_out=state.log_q_held_out - log_det_held_out,
            elbo=best,
            step_size=torch.where(moved, best_step, torch.where(tries, step / 2, step)),
            multiplier=best_multiplier,
            n_refused=torch.where(moved, 0, state.n_refused + tries.long()),
            n_folds=state.n_folds + (~positive).sum(-1),
            transition=state.transition + 1,
            rng=generator.get_state(),
        )
        return new, HeldOutSteinISInfo(torch.where(moved, best - state.elbo, 0.0), chosen)

    def finished(self, state: HeldOutSteinISState) -> bool:
        """Say whether no problem moves any more, after ``patience`` refusals."""
        return bool((state.n_refused >= self.patience).all())

    def importance_sample(self, state: HeldOutSteinISState) -> ImportanceSample:
        """Return the followers, and never the held-out particles, with log w = log p̄ - log q_ℓ.

        Raises
        ------
        FloatingPointError
            If a log-density is NaN or +inf, naming the follower.
        """
        log_p = self.target.log_prob(state.followers)
        check_log_density(log_p, "the target's log_prob")
        return ImportanceSample(state.followers, log_p - state.log_q)

    def n_evaluations(self, n_transitions: int) -> int:
        """Return how many particles of a problem p̄ or its score are asked for at.

        `run` may stop before `n_transitions`, and then takes fewer.
        """
        each = (self.leaders_per_step or self.n_leaders) + len(FACTORS) * self.n_held_out
        return self.n_held_out + n_transitions * each + self.n_followers

    def _elbo(self, state: HeldOutSteinISState, step_map: StepMap) -> Tensor:
        """Return the ELBO after a map, ``(*batch,)``; -inf where it folds or is not finite."""
        moved, log_det, positive = step_map.with_log_det(state.held_out)
        elbo = (self.target.log_prob(moved) - state.log_q_held_out + log_det).mean(-1)
        return torch.where(positive.all(-1) & torch.isfinite(elbo), elbo, -torch.inf)
