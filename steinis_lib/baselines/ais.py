"""Annealed importance sampling (Neal 2001) with Langevin transitions, "AIS" of section 5.

A transition proposes x' = x + ε s(x) + √(2ε) ξ with ξ ~ N(0, I) and s = ∇ log f_β. With
K(x → x') its density and a = f_β(x') K(x' → x) / (f_β(x) K(x → x')) the Metropolis ratio, there
are three ways to go on, and the paper does not say which it took:

* "metropolis": accept with probability min(1, a), else stay (MALA). Ẑ is unbiased.
* "kernel-ratio": always move, and multiply the weight by a, so that it gains
  f_t(x') K(x' → x) / (f_{t-1}(x) K(x → x')) in all. Ẑ is unbiased, if p̄ > 0 everywhere.
* "unadjusted": always move and leave the weight alone. BIASED: the kernel does not leave f_β
  invariant, and Ẑ misses Z by O(ε), however many particles there are.

Each costs one evaluation of p̄ with its score a transition; the present ones are in the state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

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

Langevin = Literal["metropolis", "kernel-ratio", "unadjusted"]


@dataclass(frozen=True)
class AISState(AnnealedState):
    """Where a run of AIS stands; see `AnnealedState`."""


@dataclass(frozen=True)
class AIS:
    """AIS with Langevin transitions: the settings of a run, and its `init`, `step` and `run`.

    Parameters
    ----------
    target
        p̄, through `log_prob_and_score`.
    q0
        The normalised start of the path, with a score.
    schedule
        β_0 = 0 < … < β_T = 1, ``(T + 1,)``; default: `linear` with 100 transitions.
    step_size
        ε, a number or one per problem ``(*batch,)``; the leapfrog step of HAIS is √(2ε). Chosen
        beforehand and never changed: weights are valid only if ε does not look at the particles.
    langevin
        "metropolis" (default), "kernel-ratio", or the biased "unadjusted"; see the module.
    """

    target: Target
    q0: ScoredProposal
    schedule: Tensor = field(default_factory=lambda: linear_schedule(100))
    step_size: float | Tensor = 0.1
    langevin: Langevin = "metropolis"

    def __post_init__(self) -> None:
        check_schedule(self.schedule)
        check_step_size(self.step_size)
        if self.langevin not in get_args(Langevin):
            raise ValueError(f"langevin must be one of {get_args(Langevin)}, got {self.langevin!r}")

    @property
    def path(self) -> GeometricPath:
        """The geometric path from q_0 to p̄."""
        return GeometricPath(self.q0, self.target)

    @property
    def gradients(self) -> int:
        """Score evaluations for each particle of a complete run, the initial one included."""
        return len(self.schedule)

    def init(
        self, n_particles: int, generator: torch.Generator, batch_shape: tuple[int, ...] = ()
    ) -> AISState:
        """Draw particles from q_0 with log w = 0; `generator` also seeds the run's own stream.

        Raises
        ------
        FloatingPointError
            If log p̄ is NaN or +inf, or its score is not finite where p̄ > 0, at a particle.
        """
        start = self.path.draw(n_particles, generator, batch_shape)
        if self.langevin != "metropolis":
            _refuse_holes(torch.zeros_like(start.log_p), start.is_finite())
        log_w = torch.zeros_like(start.log_p)
        return AISState(**vars(start), log_w=log_w, transition=torch.tensor(0), rng=fork(generator))

    def step(self, state: AISState) -> tuple[AISState, AnnealedInfo]:
        """One transition: weigh by f_{β_t}/f_{β_{t-1}}, then move by Langevin at β_t.

        A proposal with a number that is not finite is rejected by "metropolis". The other two
        cannot reject: a particle that diverges loses a weight that was zero before, for all
        purposes; one that still had weight met a hole in p̄, and the run stops.

        Raises
        ------
        FloatingPointError
            If a particle of "kernel-ratio" or "unadjusted" meets such a hole, naming it.
        """
        before, beta = betas(self.schedule, state)
        x, s = state.particles, state.score(beta)
        epsilon = per_problem(self.step_size, x)
        generator = resume(state.rng, x.device)
        xi = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
        log_u = torch.rand(x.shape[:-1], generator=generator, dtype=x.dtype, device=x.device).log()

        log_w = state.log_w + (beta - before) * (state.log_p - state.log_q0)
        e = epsilon[..., None, None]
        proposal = self.path.evaluate(x + e * s + (2 * e).sqrt() * xi)
        log_a = log_metropolis_ratio(state, proposal, beta, e, xi)
        possible = proposal.is_finite()
        if self.langevin == "metropolis":
            accept = possible & (log_u < log_a)
        else:
            accept = possible
            _refuse_holes(log_w, possible)
            gain = log_a if self.langevin == "kernel-ratio" else torch.zeros_like(log_a)
            log_w = torch.where(possible, log_w + gain, -torch.inf)

        new = AISState(
            **vars(choose(accept, proposal, state)),
            log_w=log_w,
            transition=state.transition + 1,
            rng=generator.get_state(),
        )
        return new, AnnealedInfo(beta, epsilon, accept.to(x).mean(-1))

    def run(
        self,
        state: AISState,
        n_transitions: int | None = None,
        on_step: Callable[[AISState, AnnealedInfo], None] | None = None,
    ) -> AISState:
        """Take `n_transitions` further transitions, by default all that remain."""
        n = transitions_left(self.schedule, state, n_transitions)
        return iterate(self.step, state, n, on_step)

    def importance_sample(self, state: AISState) -> ImportanceSample:
        """Return the particles of a complete run with their weights.

        Raises
        ------
        ValueError
            If the run has not reached β = 1.
        """
        return final_sample(self.schedule, state)


def log_metropolis_ratio(
    old: Evaluated, new: Evaluated, beta: float, epsilon: Tensor, xi: Tensor
) -> Tensor:
    """Return log [f(x') K(x' → x) / (f(x) K(x → x'))], ``(*batch, n)``.

    The step back from x' to x takes the noise ξ' = -(ξ + √(ε/2) (s + s')), and K(x' → x)/K(x → x')
    is exp((‖ξ‖² - ‖ξ'‖²)/2). `epsilon` is ``(*batch, 1, 1)``.
    """
    xi_back = xi + (epsilon / 2).sqrt() * (old.score(beta) + new.score(beta))
    kernels = 0.5 * (xi.square() - xi_back.square()).sum(-1)
    return new.log_prob(beta) - old.log_prob(beta) + kernels


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
