"""Stein variational importance sampling, Algorithm 1 of the paper.

Leaders build each map by SVGD, from any scores; followers are pushed through it and carry log q_ℓ.
Given the leaders, followers are independent draws from q_ℓ: p̄/q_ℓ are ordinary importance weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from steinis_lib.core.checks import check_finite, check_log_density, check_particles
from steinis_lib.core.generators import fork, random_batch, resume
from steinis_lib.importance import ImportanceSample
from steinis_lib.schedules import StepSize
from steinis_lib.stein.kernels import RBF, Kernel
from steinis_lib.stein.maps import Determinant, StepMap, build
from steinis_lib.targets.base import Proposal, Target


@dataclass(frozen=True)
class SteinISState:
    """Where a run stands; all that is needed to continue it.

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
        How often a follower met a non-positive determinant so far, int64 ``(*batch,)``. If not
        zero, some map was not one-to-one, and Ẑ is biased upwards.
    rng
        The state of the run's own random generator, uint8; empty where nothing is drawn.
    scores
        The leaders' scores of the last map, ``(*batch, |A|, d)``; empty unless `score_every` > 1.
    """

    leaders: Tensor
    followers: Tensor
    log_q: Tensor
    transition: Tensor
    n_folds: Tensor
    rng: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))
    scores: Tensor = field(default_factory=lambda: torch.empty(0))


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
        The map itself; keep those of a run to build a `PushForward`, q_ℓ with a density anywhere.
    """

    step_size: float
    log_abs_det: Tensor
    n_folds: Tensor
    step_map: StepMap


@dataclass(frozen=True)
class SteinIS:
    """Algorithm 1: the settings of a run, and its `init`, `step` and `run`.

    Parameters
    ----------
    target
        p̄, through `log_prob` and `score`.
    kernel
        Default: RBF with the paper's bandwidth rule, fitted to the leaders at each transition.
    step_size
        The schedule ℓ → ε.
    determinant
        "exact" (default, keeps Ẑ unbiased), "first-order", or the paper's "switch" between them
        at ε = 0.1; see `StepMap.with_log_det`.
    leaders_per_step
        So many leaders, drawn anew for each transition, build its map; it moves them all. Leaders
        are then a pool: a large one keeps the maps from fitting the accidents of a few particles,
        and only those drawn need scores (the random batches of Jin, Li & Liu 2020). None
        (default): all leaders build every map, as in Algorithm 1.
    score_every
        Take scores once in so many transitions, and reuse them although leaders have moved: maps
        are less good for it, weights as valid. Not with `leaders_per_step`: each map has others.
    score_target
        ℓ → the target whose score leaders take, such as a `Tempering` from q_0 to p̄; followers are
        weighed by p̄ whatever it is. None (default): p̄ itself.
    """

    target: Target
    kernel: Kernel = field(default_factory=RBF)
    step_size: Callable[[int], float] = field(default_factory=StepSize)
    determinant: Determinant = "exact"
    leaders_per_step: int | None = None
    score_every: int = 1
    score_target: Callable[[int], Target] | None = None

    def __post_init__(self) -> None:
        if self.leaders_per_step is not None and self.leaders_per_step < 2:
            raise ValueError(f"leaders_per_step must be at least 2, got {self.leaders_per_step}")
        if self.score_every < 1 or self.score_every > 1 and self.leaders_per_step is not None:
            raise ValueError(
                f"score_every must be at least 1, and 1 with leaders_per_step (each map has other "
                f"leaders, whose scores are not at hand); got {self.score_every}"
            )
        if self.score_target is not None and (d := self.score_target(0).dim) != self.target.dim:
            raise ValueError(f"score_target has d={d}, but the target has d={self.target.dim}")

    def init(
        self,
        q0: Proposal,
        n_leaders: int,
        n_followers: int,
        generator: torch.Generator,
        batch_shape: tuple[int, ...] = (),
    ) -> SteinISState:
        """Draw leaders and followers from q_0 and note log q_0 of the followers."""
        if q0.dim != self.target.dim:
            raise ValueError(f"q0 has d={q0.dim}, but the target has d={self.target.dim}")
        leaders = q0.sample((*batch_shape, n_leaders), generator)
        followers = q0.sample((*batch_shape, n_followers), generator)
        return self.start(leaders, followers, q0.log_prob(followers), generator)

    def start(
        self,
        leaders: Tensor,
        followers: Tensor,
        log_q: Tensor,
        generator: torch.Generator | None = None,
    ) -> SteinISState:
        """Start from given particles: any leaders, and followers whose log-density is known.

        The weights are valid if followers are drawn from that density, independently of leaders.
        `generator` seeds the choice of leaders; needed with `leaders_per_step`.
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
        """One transition: build the map from leaders, push all through it, update log q."""
        ell = int(state.transition)
        epsilon = self.step_size(ell)
        chosen, rng = self._choose(state)
        if state.scores.numel() and ell % self.score_every:
            step_map = StepMap(chosen, state.scores, self.kernel.fit(chosen), epsilon)
        else:
            target = self.target if self.score_target is None else self.score_target(ell)
            step_map = build(target, chosen, self.kernel, epsilon)
        leaders = step_map(state.leaders)
        followers, log_abs_det, positive = step_map.with_log_det(state.followers, self.determinant)
        check_finite(leaders, "a leader")
        check_finite(followers, "a follower")
        folds = (~positive).sum(-1)
        new = SteinISState(
            leaders=leaders,
            followers=followers,
            log_q=state.log_q - log_abs_det,
            transition=state.transition + 1,
            n_folds=state.n_folds + folds,
            rng=rng,
            scores=step_map.scores if self.score_every > 1 else torch.empty(0),
        )
        return new, SteinISInfo(epsilon, log_abs_det, folds, step_map)

    def run(
        self,
        state: SteinISState,
        n_transitions: int,
        *,
        ess_threshold: float | None = None,
        check_every: int = 10,
        on_step: Callable[[SteinISState, SteinISInfo], None] | None = None,
    ) -> SteinISState:
        """Take up to `n_transitions` further transitions.

        Parameters
        ----------
        ess_threshold
            Stop once ESS/|B| has reached this fraction in every problem of the batch; looked at
            before the first and after each `check_every` transitions. The rule looks at the very
            weights that it stops for: Ẑ is then consistent, but no longer exactly unbiased.
        on_step
            Called with each new state and info: for progress, or to record a curve.
        """
        if ess_threshold is not None and not 0 < ess_threshold <= 1:
            raise ValueError(f"ess_threshold is a fraction in (0, 1], got {ess_threshold}")
        if check_every < 1:
            raise ValueError(f"check_every must be at least 1, got {check_every}")
        for done in range(n_transitions):
            if ess_threshold is not None and done % check_every == 0:
                sample = self.importance_sample(state)
                if bool((sample.ess >= ess_threshold * sample.n).all()):
                    break
            state, info = self.step(state)
            if on_step is not None:
                on_step(state, info)
        return state

    def _choose(self, state: SteinISState) -> tuple[Tensor, Tensor]:
        """Return the leaders that build the next map, and the generator's state after that."""
        if self.leaders_per_step is None:
            return state.leaders, state.rng
        generator = resume(state.rng, state.leaders.device)
        chosen = random_batch(state.leaders, self.leaders_per_step, generator)
        return chosen, generator.get_state()

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
