"""Annealed importance sampling (Neal 2001) with Langevin transitions, "AIS" of section 5.

A transition proposes x' = x + ε s(x) + √(2ε) ξ with ξ ~ N(0, I) and s = ∇ log f_β. K(x → x') is
the density of that proposal, and a = f_β(x') K(x' → x) / (f_β(x) K(x → x')) its Metropolis ratio.
There are three variants. The paper does not say which one it used:

* "metropolis": accept with probability min(1, a), else stay (MALA). Ẑ is unbiased.
* "kernel-ratio": always move, and multiply the weight by a. With the weighing before the move, the
  weight gains f_t(x') K(x' → x) / (f_{t-1}(x) K(x → x')). Ẑ is unbiased if p̄ > 0 everywhere.
* "unadjusted": always move and leave the weight alone. BIASED: the kernel does not leave f_β
  invariant, and Ẑ misses Z by O(ε), however many particles there are.

The proposal is one leapfrog step of size √(2ε) from the velocity ξ. It ends with the velocity
ξ' = ξ + √(ε/2) (s(x) + s(x')), and the step back from x' to x takes the noise -ξ'. So
K(x' → x)/K(x → x') is exp((‖ξ‖² - ‖ξ'‖²)/2), and a is exp(H - H') of `log_metropolis_ratio`.

Each way costs one evaluation of p̄ with its score for each particle and transition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

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
from steinis_lib.baselines.hamiltonian import leapfrog, log_metropolis_ratio, propose
from steinis_lib.core.generators import fork, resume

Langevin = Literal["metropolis", "kernel-ratio", "unadjusted"]


@dataclass(frozen=True, kw_only=True)
class AIS(Annealed[AnnealedState]):
    """AIS with Langevin transitions. Target, q_0, n_particles and schedule are those of `Annealed`.

    Parameters
    ----------
    step_size
        ε, a number or one for each problem ``(*batch,)``. The weights are valid only if ε does not
        depend on the particles, so it stays as it is. The leapfrog step of HAIS is √(2ε).
    langevin
        "metropolis" (default), "kernel-ratio", or the biased "unadjusted"; see the module.
    """

    step_size: float | Tensor = 0.1
    langevin: Langevin = "metropolis"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fixed_step(self.step_size)
        if self.langevin not in get_args(Langevin):
            raise ValueError(f"langevin must be one of {get_args(Langevin)}, got {self.langevin!r}")

    def init(
        self, generator: torch.Generator, *, batch_shape: tuple[int, ...] = ()
    ) -> AnnealedState:
        """Draw particles from q_0 with log w = 0; `generator` also seeds the run's own stream.

        Raises
        ------
        FloatingPointError
            If log p̄ is NaN or +inf, or its score is not finite where p̄ > 0, at a particle.
        """
        start = self.path.draw(self.n_particles, generator, batch_shape)
        if self.langevin != "metropolis":
            _refuse_holes(torch.zeros_like(start.log_p), start.is_finite())
        log_w = torch.zeros_like(start.log_p)
        return AnnealedState(
            **vars(start), log_w=log_w, transition=torch.tensor(0), rng=fork(generator)
        )

    def step(self, state: AnnealedState) -> tuple[AnnealedState, AnnealedInfo]:
        """One transition: weigh by f_{β_t}/f_{β_{t-1}}, then move by Langevin at β_t.

        "metropolis" rejects a proposal at which a number is not finite. The other two cannot
        reject. If such a particle had a negligible weight, it has diverged, and its weight becomes
        zero. If not, it has met a hole in p̄, and the run stops.

        Raises
        ------
        FloatingPointError
            If a particle of "kernel-ratio" or "unadjusted" meets such a hole, naming it.
        """
        before, beta = self.betas(state)
        x, generator = state.particles, resume(state.rng, state.particles.device)
        xi = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
        log_u = torch.rand(x.shape[:-1], generator=generator, dtype=x.dtype, device=x.device).log()

        log_w = torch.add(state.log_w, state.log_p - state.log_q0, alpha=beta - before)
        number, epsilon = rounded(self.step_size), per_problem(self.step_size, x)
        step = (2 * epsilon).sqrt() if isinstance(number, Tensor) else math.sqrt(2 * number)
        if self.langevin == "metropolis":
            accept, proposal, _ = propose(self.path, state, xi, log_u, beta, step, 1)
        else:
            proposal, xi_end = leapfrog(self.path, state, xi, beta, step, 1)
            accept = proposal.is_finite()
            _refuse_holes(log_w, accept)
            if self.langevin == "kernel-ratio":
                log_w = log_w + log_metropolis_ratio(state, proposal, xi, xi_end, beta)
            log_w = torch.where(accept, log_w, -torch.inf)

        new = AnnealedState(
            **vars(choose(accept, proposal, state)),
            log_w=log_w,
            transition=state.transition + 1,
            rng=generator.get_state(),
        )
        return new, AnnealedInfo(beta, epsilon, accept.mean(-1, dtype=x.dtype))

    def n_evaluations(self, n_transitions: int | None = None) -> int:
        """Return how many particles of a problem p̄ and its score are asked for at.

        None (default): in a run of the whole schedule.
        """
        n = len(self.schedule) - 1 if n_transitions is None else n_transitions
        return self.n_particles * (n + 1)


def _refuse_holes(log_w: Tensor, possible: Tensor) -> None:
    """Refuse particles that are not `possible` with a weight above e^-700 of the largest."""
    bad = ~possible & (log_w > log_w.amax(-1, keepdim=True) - 700)
    if bool(bad.any()):
        index = tuple(torch.nonzero(bad)[0].tolist())
        raise FloatingPointError(
            f"particle {index[0] if len(index) == 1 else index} met a point where log p̄ or its "
            f"score is not finite ({int(bad.sum())} of {bad.numel()} particles did); use "
            "langevin='metropolis', which can reject, or a smaller step size"
        )
