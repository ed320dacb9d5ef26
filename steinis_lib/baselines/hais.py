"""Hamiltonian annealed importance sampling (Sohl-Dickstein & Culpepper 2012), "HAIS" of section 5.

Particles carry velocities v ~ N(0, I), unit mass. A transition at β

1. refreshes them, v ← √(1 - γ) v + √γ ξ with ξ ~ N(0, I), γ = `refresh`;
2. proposes (x', v') by L leapfrog steps of size ε;
3. accepts with probability min(1, exp(H - H')), H = -log f_β(x) + ‖v‖²/2; on rejection the
   particle stays and its velocity is negated.

Each leaves f_β(x) N(v; 0, I) invariant. In 3 the leapfrog followed by v → -v is its own inverse
and preserves volume, so accepting (x', -v') or else keeping (x, v) is a Metropolis step; then
v → -v, which the density does not notice, gives (x', v') or (x, -v). A full refresh forgets v, so
there the sign does not matter; a partial refresh without the negation would be wrong.

γ is the γ of Sohl-Dickstein & Culpepper: the share of the velocity's variance that is replaced,
1 a full refresh. They take one leapfrog step and γ = 1 - 2^(-ε), which replaces half in a unit of
time, and refresh after the move instead of before it. Wu et al. (2016) take L = 10 and γ = 1,
which the paper followed. With L = 1 and γ = 1 this is "metropolis" AIS at step ε²/2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from steinis_lib.baselines.annealing import (
    AnnealedInfo,
    AnnealedState,
    Evaluated,
    GeometricPath,
    betas,
    check_schedule,
    choose,
    final_sample,
    linear_schedule,
    per_problem,
    transitions_left,
)
from steinis_lib.core.checks import check_step_size
from steinis_lib.core.generators import fork, resume
from steinis_lib.core.loop import iterate
from steinis_lib.importance import ImportanceSample
from steinis_lib.targets.base import ScoredProposal, Target

ADAPT_TO, ADAPT_MEMORY = 0.65, 0.9
ADAPT_UP, ADAPT_DOWN, ADAPT_WITHIN = 1.02, 0.98, (1e-4, 0.5)
"""Wu et al. (2016): acceptance aimed at, weight of its past, factors on ε, and limits of ε."""


@dataclass(frozen=True)
class HAISState(AnnealedState):
    """Where a run of HAIS stands; beside `AnnealedState`:

    Parameters
    ----------
    velocities
        v, ``(*batch, n, d)``.
    step_size
        ε, ``(*batch,)``; it changes only with `adapt_biased`.
    mean_acceptance
        Moving average of the acceptance rate, ``(*batch,)``; looked at by `adapt_biased` alone.
    """

    velocities: Tensor
    step_size: Tensor
    mean_acceptance: Tensor


@dataclass(frozen=True)
class HAIS:
    """HAIS: the settings of a run, and its `init`, `step` and `run`.

    Parameters
    ----------
    target
        p̄, through `log_prob_and_score`.
    q0
        The normalised start of the path, with a score.
    schedule
        β_0 = 0 < … < β_T = 1, ``(T + 1,)``; default: `linear` with 100 transitions.
    step_size
        The leapfrog step ε that a run starts with, a number or one per problem ``(*batch,)``.
    n_leapfrog
        L, at least 1; each step costs one score.
    refresh
        γ in (0, 1]; 1 (default) is a full refresh.
    adapt_biased
        Adapt ε during the weighted run as Wu et al. (2016) did, one ε for each problem, towards
        acceptance 0.65. BIASED: ε then depends on the particles that it moves. Only to compare
        with the literature; see `tuning` for the valid way.
    """

    target: Target
    q0: ScoredProposal
    schedule: Tensor = field(default_factory=lambda: linear_schedule(100))
    step_size: float | Tensor = 0.3
    n_leapfrog: int = 1
    refresh: float = 1.0
    adapt_biased: bool = False

    def __post_init__(self) -> None:
        check_schedule(self.schedule)
        check_step_size(self.step_size)
        if self.n_leapfrog < 1:
            raise ValueError(f"n_leapfrog must be at least 1, got {self.n_leapfrog}")
        if not 0 < self.refresh <= 1:
            raise ValueError(f"refresh must be in (0, 1], got {self.refresh}")

    @property
    def path(self) -> GeometricPath:
        """The geometric path from q_0 to p̄."""
        return GeometricPath(self.q0, self.target)

    @property
    def gradients(self) -> int:
        """Score evaluations for each particle of a complete run, the initial one included."""
        return (len(self.schedule) - 1) * self.n_leapfrog + 1

    def init(
        self, n_particles: int, generator: torch.Generator, batch_shape: tuple[int, ...] = ()
    ) -> HAISState:
        """Draw x from q_0 and v from N(0, I), log w = 0; `generator` seeds the run's own stream.

        Raises
        ------
        FloatingPointError
            If log p̄ is NaN or +inf, or its score is not finite where p̄ > 0, at a particle.
        """
        start = self.path.draw(n_particles, generator, batch_shape)
        x = start.particles
        step_size = per_problem(self.step_size, x).clone()
        return HAISState(
            **vars(start),
            log_w=torch.zeros_like(start.log_p),
            transition=torch.tensor(0),
            velocities=torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device),
            step_size=step_size,
            mean_acceptance=torch.full_like(step_size, ADAPT_TO),
            rng=fork(generator),
        )

    def step(self, state: HAISState) -> tuple[HAISState, AnnealedInfo]:
        """One transition: weigh by f_{β_t}/f_{β_{t-1}}, then refresh, leapfrog, accept at β_t.

        A proposal with a number that is not finite is rejected.
        """
        before, beta = betas(self.schedule, state)
        x, generator = state.particles, resume(state.rng, state.particles.device)
        xi = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
        log_u = torch.rand(x.shape[:-1], generator=generator, dtype=x.dtype, device=x.device).log()

        log_w = state.log_w + (beta - before) * (state.log_p - state.log_q0)
        v = xi
        if self.refresh < 1:
            v = math.sqrt(1 - self.refresh) * state.velocities + math.sqrt(self.refresh) * xi
        accept, proposal, v_new = propose(
            self.path, state, v, log_u, beta, state.step_size, self.n_leapfrog
        )
        acceptance = accept.to(x).mean(-1)
        new = HAISState(
            **vars(choose(accept, proposal, state)),
            log_w=log_w,
            transition=state.transition + 1,
            velocities=torch.where(accept.unsqueeze(-1), v_new, -v),
            step_size=self._next_step_size(state),
            mean_acceptance=ADAPT_MEMORY * state.mean_acceptance + (1 - ADAPT_MEMORY) * acceptance,
            rng=generator.get_state(),
        )
        return new, AnnealedInfo(beta, state.step_size, acceptance)

    def run(
        self,
        state: HAISState,
        n_transitions: int | None = None,
        on_step: Callable[[HAISState, AnnealedInfo], None] | None = None,
    ) -> HAISState:
        """Take `n_transitions` further transitions, by default all that remain."""
        n = transitions_left(self.schedule, state, n_transitions)
        return iterate(self.step, state, n, on_step)

    def importance_sample(self, state: HAISState) -> ImportanceSample:
        """Return the particles of a complete run with their weights.

        Raises
        ------
        ValueError
            If the run has not reached β = 1.
        """
        return final_sample(self.schedule, state)

    def _next_step_size(self, state: HAISState) -> Tensor:
        if not self.adapt_biased:
            return state.step_size
        factor = torch.where(state.mean_acceptance > ADAPT_TO, ADAPT_UP, ADAPT_DOWN)
        return (state.step_size * factor.to(state.step_size)).clamp(*ADAPT_WITHIN)


def propose(
    path: GeometricPath,
    start: Evaluated,
    v: Tensor,
    log_u: Tensor,
    beta: float,
    step_size: Tensor,
    n: int,
) -> tuple[Tensor, Evaluated, Tensor]:
    """Return whether to accept, ``(*batch, n)``, and where n leapfrog steps lead: steps 2 and 3.

    `log_u` are logs of uniform draws. A proposal with a number that is not finite is rejected.
    """
    end, v_end = leapfrog(path, start, v, beta, step_size, n)
    log_a = end.log_prob(beta) - start.log_prob(beta)
    log_a = log_a + 0.5 * (v.square() - v_end.square()).sum(-1)
    return end.is_finite() & (log_u < log_a), end, v_end


def leapfrog(
    path: GeometricPath, start: Evaluated, v: Tensor, beta: float, step_size: Tensor, n: int
) -> tuple[Evaluated, Tensor]:
    """Take n steps of half a kick, a drift, half a kick from (start, v), at step ``(*batch,)``.

    The score at `start` is taken from it, so the cost is n scores; densities are asked for at the
    end alone.
    """
    e = step_size[..., None, None]
    half, x, score = 0.5 * e, start.particles, start.score(beta)
    for _ in range(n - 1):
        v = v + half * score
        x = x + e * v
        score = path.score(x, beta)
        v = v + half * score
    v = v + half * score
    end = path.evaluate(x + e * v)
    return end, v + half * end.score(beta)
