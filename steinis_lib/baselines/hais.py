"""Hamiltonian annealed importance sampling (Sohl-Dickstein & Culpepper 2012), "HAIS" of section 5.

Particles carry velocities v ~ N(0, I), unit mass. A transition at β

1. refreshes them, v ← √(1 - γ) v + √γ ξ with ξ ~ N(0, I), γ = `refresh`;
2. proposes (x', v') by L leapfrog steps of size ε;
3. accepts with probability min(1, exp(H - H')), H = -log f_β(x) + ‖v‖²/2; on rejection the
   particle stays and its velocity is negated.

Each of the three leaves f_β(x) N(v; 0, I) invariant. In 3, leapfrog steps followed by v → -v are
their own inverse and preserve volume. Accepting (x', -v'), or else keeping (x, v), is therefore a
Metropolis step. Then v → -v, which leaves the density unchanged, gives (x', v') or (x, -v). A full
refresh forgets v, so the sign does not matter there. With a partial refresh, leaving out the
negation would be wrong.

γ is the γ of Sohl-Dickstein & Culpepper: the share of the velocity's variance that is replaced,
where 1 is a full refresh. They take one leapfrog step and γ = 1 - 2^(-ε), which replaces half of
the variance in a unit of time, and they refresh after the move instead of before it. Wu et al.
(2016) take L = 10 and γ = 1, and the paper followed them. With L = 1 and γ = 1 this is
"metropolis" AIS at step ε²/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from steinis_lib.baselines.annealing import (
    Annealed,
    AnnealedInfo,
    AnnealedState,
    check_fixed_step,
    per_problem,
    rounded,
)
from steinis_lib.baselines.geometric_path import choose
from steinis_lib.baselines.hamiltonian import propose
from steinis_lib.core.checks import check_at_least
from steinis_lib.core.generators import fork, resume


@dataclass(frozen=True)
class HAISState(AnnealedState):
    """Where a run of HAIS stands: an `AnnealedState`, and the velocities v ``(*batch, n, d)``."""

    velocities: Tensor


@dataclass(frozen=True, kw_only=True)
class HAIS(Annealed[HAISState]):
    """AIS with Hamiltonian transitions. Target, q_0, sizes and schedule are those of `Annealed`.

    Parameters
    ----------
    step_size
        The leapfrog step ε, a number or one for each problem ``(*batch,)``. The weights are valid
        only if ε does not depend on the particles, so it stays as it is.
    n_leapfrog
        L, at least 1; each step costs one score of each particle.
    refresh
        γ in (0, 1]; 1 (default) is a full refresh.
    """

    step_size: float | Tensor = 0.3
    n_leapfrog: int = 1
    refresh: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fixed_step(self.step_size)
        check_at_least(self.n_leapfrog, 1, "n_leapfrog")
        if not 0 < self.refresh <= 1:
            raise ValueError(f"refresh must be in (0, 1], got {self.refresh}")

    def init(self, generator: torch.Generator, *, batch_shape: tuple[int, ...] = ()) -> HAISState:
        """Draw x from q_0 and v from N(0, I); `generator` also seeds the run's own stream.

        Raises
        ------
        FloatingPointError
            If log p̄ is NaN or +inf, or its score is not finite where p̄ > 0, at a particle.
        """
        start = self.path.draw(self.n_particles, generator, batch_shape)
        x = start.particles
        return HAISState(
            **vars(start),
            log_w=torch.zeros_like(start.log_p),
            transition=torch.tensor(0),
            velocities=torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device),
            rng=fork(generator),
        )

    def step(self, state: HAISState) -> tuple[HAISState, AnnealedInfo]:
        """One transition: weigh by f_{β_t}/f_{β_{t-1}}, then refresh, leapfrog, accept at β_t.

        A proposal with a number that is not finite is rejected.
        """
        before, beta = self.betas(state)
        x, generator = state.particles, resume(state.rng, state.particles.device)
        xi = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
        log_u = torch.rand(x.shape[:-1], generator=generator, dtype=x.dtype, device=x.device).log()

        log_w = torch.add(state.log_w, state.log_p - state.log_q0, alpha=beta - before)
        v = xi
        if self.refresh < 1:
            kept = math.sqrt(1 - self.refresh) * state.velocities
            v = torch.add(kept, xi, alpha=math.sqrt(self.refresh))
        step, epsilon = rounded(self.step_size), per_problem(self.step_size, x)
        accept, proposal, v_new = propose(
            self.path,
            state,
            v,
            log_u,
            beta,
            epsilon if isinstance(step, Tensor) else step,
            self.n_leapfrog,
        )
        new = HAISState(
            **vars(choose(accept, proposal, state)),
            log_w=log_w,
            transition=state.transition + 1,
            velocities=torch.where(accept.unsqueeze(-1), v_new, -v),
            rng=generator.get_state(),
        )
        return new, AnnealedInfo(beta, epsilon, accept.mean(-1, dtype=x.dtype))

    def n_evaluations(self, n_transitions: int | None = None) -> int:
        """Return how many particles of a problem p̄, its score, or both are asked for at.

        None (default): in a run of the whole schedule.
        """
        n = len(self.schedule) - 1 if n_transitions is None else n_transitions
        return self.n_particles * (n * self.n_leapfrog + 1)
