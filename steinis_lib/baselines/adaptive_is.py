"""Adaptive importance sampling by stochastic convex programming, after Ryu & Boyd (2014).

They adapt the natural parameter of an exponential family, in which the estimate's variance is
convex. Mixtures are no such family. With fixed components, q_π = Σ_k π_k N_k, their idea applies
to the weights, because these objectives are convex in π:

* "variance": V(π) = ∫ p̄²/q_π = E_q[w²], with w = p̄/q_π;
* "cross-entropy": C(π) = -∫ p̄ log q_π, which is KL(p ‖ q_π) up to scale and a constant.

Draws x ~ q_π give unbiased gradients, -w² N_k(x)/q_π(x) and -w N_k(x)/q_π(x), and each step moves
π against them. The same draws also estimate Z: the mean of all weights p̄/q_π, each with the π it
was drawn from, is unbiased, because π depends on earlier draws alone.

p̄ is taken as it is. Scaling it by c scales the gradients by c² ("variance") or by c, so a step size
is meant for Z ≈ 1. For another Z divide the step size by Z² or Z, or subtract an estimate of log Z
from log p̄. N_k/q_π can be as large as 1/π_k. From equal weights, take step sizes well below 1/K
("mirror") or 1/K² ("projected"): one step that is too long leaves a single component, and few of
its draws show that the others are needed.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from steinis_lib.baselines.simplex import project_euclidean, project_kl
from steinis_lib.core.algorithm import Algorithm
from steinis_lib.core.checks import check_at_least, check_log_density, check_q0, check_step_size
from steinis_lib.core.generators import fork, resume
from steinis_lib.schedules import StepSchedule, step_at
from steinis_lib.targets.base import Target
from steinis_lib.targets.mixtures import FullCovarianceMixture

Objective = Literal["variance", "cross-entropy"]
Update = Literal["mirror", "projected"]


@dataclass(frozen=True)
class AdaptiveISState:
    """Where a run stands.

    Parameters
    ----------
    log_pi
        log π_t, ``(*batch, K)``: the weights of the mixture that the next step draws from.
    mean_pi
        The average of π_0, …, π_{t-1}, which were drawn from so far, ``(*batch, K)``; π_0 at t = 0.
    log_sum_w, log_sum_w2
        The logs of Σ w and of Σ w² over all draws so far, ``(*batch,)``; -inf while all w are zero.
    n_draws
        How many draws of each problem that is, an int64 scalar.
    transition
        t, an int64 scalar.
    rng
        The state of the run's own random generator, uint8; `step` draws from nothing else.
    """

    log_pi: Tensor
    mean_pi: Tensor
    log_sum_w: Tensor
    log_sum_w2: Tensor
    n_draws: Tensor
    transition: Tensor
    rng: Tensor


@dataclass(frozen=True)
class AdaptiveISInfo:
    """What one step did.

    Parameters
    ----------
    step_size
        η.
    particles
        The draws from q_π, ``(*batch, n, d)``.
    log_w
        log p̄ - log q_π at them, ``(*batch, n)``.
    """

    step_size: float
    particles: Tensor
    log_w: Tensor


@dataclass(frozen=True)
class AdaptiveISEstimate:
    """The estimate of log Z from all draws of a run, ``(*batch,)`` each.

    Parameters
    ----------
    log_z
        log Ẑ; Ẑ, not its log, is unbiased.
    log_z_se
        Its standard error by the delta method, sd(w)/(√n w̄), from all n weights. NaN for a single
        draw, or where all weights are zero.
    """

    log_z: Tensor
    log_z_se: Tensor


@dataclass(frozen=True)
class AdaptiveIS(Algorithm[AdaptiveISState, AdaptiveISInfo]):
    """Adapt the weights of a mixture with fixed components by stochastic gradients.

    Parameters
    ----------
    target
        p̄, through `log_prob`.
    q0
        The mixture of the fixed N_k; its weights are the start π_0.
    objective
        "variance" or "cross-entropy".
    update
        "mirror": π ∝ π exp(-η g), then `project_kl`. "projected": π - η g, then
        `project_euclidean`. Each is the Bregman projection that belongs to its step.
    step_size
        η, or a schedule t → η, t = 0, 1, …, such as ``StepSize(0.1 / K, 0.5)``; see the module.
    n_particles
        Draws in each step, over which the gradient is averaged.
    floor
        The smallest weight of any component; K · floor < 1. With 0, "projected" can set weights
        to 0. If that leaves a region of p̄ without a component, Ẑ is no longer unbiased, and
        nothing shows that the region is missing.

    Raises
    ------
    ValueError
        If a setting is out of range, or dimensions differ.
    """

    target: Target
    q0: FullCovarianceMixture
    _: KW_ONLY
    objective: Objective
    update: Update
    step_size: float | StepSchedule
    n_particles: int = 1
    floor: float = 0.0

    def __post_init__(self) -> None:
        check_q0(self.target, self.q0, FullCovarianceMixture)
        check_step_size(self.step_size)
        for name, kinds in (("objective", Objective), ("update", Update)):
            if getattr(self, name) not in get_args(kinds):
                raise ValueError(
                    f"{name} must be one of {get_args(kinds)}, got {getattr(self, name)!r}"
                )
        check_at_least(self.n_particles, 1, "n_particles")
        k = self.q0.log_weights.shape[-1]
        if not 0 <= k * self.floor < 1:
            raise ValueError(f"floor must be in [0, 1/K) with K={k}, got {self.floor}")

    def init(
        self, generator: torch.Generator, *, batch_shape: tuple[int, ...] = ()
    ) -> AdaptiveISState:
        """Start at π_0, raised to `floor` by `project_kl`; `generator` seeds the run's stream."""
        weights = self.q0.log_weights
        batch = torch.broadcast_shapes(batch_shape, self.q0.log_z.shape)
        log_pi = project_kl(weights.expand(*batch, weights.shape[-1]), self.floor)
        return AdaptiveISState(
            log_pi=log_pi,
            mean_pi=log_pi.exp(),
            log_sum_w=torch.full_like(log_pi[..., 0], -torch.inf),
            log_sum_w2=torch.full_like(log_pi[..., 0], -torch.inf),
            n_draws=torch.tensor(0),
            transition=torch.tensor(0),
            rng=fork(generator),
        )

    def step(self, state: AdaptiveISState) -> tuple[AdaptiveISState, AdaptiveISInfo]:
        """Draw from q_π, add the weights to Ẑ, and move π.

        Raises
        ------
        FloatingPointError
            If log p̄ is NaN or +inf at a draw, naming it.
        """
        t, log_pi = int(state.transition), state.log_pi
        eta = step_at(self.step_size, t)
        generator = resume(state.rng, log_pi.device)
        q = replace(self.q0, log_weights=log_pi)
        x = q.sample((*log_pi.shape[:-1], self.n_particles), generator)
        log_n = self.q0.log_components(x)
        log_q = (log_n + log_pi.unsqueeze(-2)).logsumexp(-1)
        log_p = self.target.log_prob(x)
        check_log_density(log_p, "the target's log_prob")
        log_w = log_p - log_q

        g = stochastic_gradient(log_w, log_n - log_q.unsqueeze(-1), self.objective)
        if self.update == "mirror":
            new_log_pi = project_kl(log_pi - eta * g, self.floor)
        else:
            new_log_pi = project_euclidean(log_pi.exp() - eta * g, self.floor).log()
        new = AdaptiveISState(
            log_pi=new_log_pi,
            mean_pi=state.mean_pi + (log_pi.exp() - state.mean_pi) / (t + 1),
            log_sum_w=torch.logaddexp(state.log_sum_w, log_w.logsumexp(-1)),
            log_sum_w2=torch.logaddexp(state.log_sum_w2, (2 * log_w).logsumexp(-1)),
            n_draws=state.n_draws + self.n_particles,
            transition=state.transition + 1,
            rng=generator.get_state(),
        )
        return new, AdaptiveISInfo(eta, x, log_w)

    def proposal(self, state: AdaptiveISState, *, averaged: bool = True) -> FullCovarianceMixture:
        """Return q_π with the averaged weights, which the theory covers, or the present ones."""
        log_pi = state.mean_pi.log() if averaged else state.log_pi
        return replace(self.q0, log_weights=log_pi)

    def estimate(self, state: AdaptiveISState) -> AdaptiveISEstimate:
        """Return log Ẑ from all draws so far, each weighted by the q_π that it came from.

        Raises
        ------
        ValueError
            Before the first step.
        """
        n = int(state.n_draws)
        if not n:
            raise ValueError("there is no Ẑ before the first step: call run(state, n_transitions)")
        relative = (state.log_sum_w2 - 2 * state.log_sum_w).exp() * n  # mean of (w / w̄)²
        variance = (relative - 1).clamp(min=0) / (n - 1) if n > 1 else relative * torch.nan
        return AdaptiveISEstimate(state.log_sum_w - math.log(n), variance.sqrt())

    def n_evaluations(self, n_transitions: int) -> int:
        """Return how many particles of a problem p̄ is asked for at."""
        return n_transitions * self.n_particles


def stochastic_gradient(log_w: Tensor, log_ratio: Tensor, objective: Objective) -> Tensor:
    """Return g_k = -mean over draws of w² N_k/q, or of w N_k/q for cross-entropy, ``(*batch, K)``.

    `log_w` is ``(*batch, n)``, and `log_ratio` is log N_k/q ``(*batch, n, K)``. A gradient that
    would overflow is scaled down to the square root of the largest number; no other is clipped.
    """
    power = 2 if objective == "variance" else 1
    log_size = (power * log_w.unsqueeze(-1) + log_ratio).logsumexp(-2) - math.log(log_w.shape[-1])
    limit = 0.5 * math.log(torch.finfo(log_size.dtype).max)
    return -(log_size - (log_size.amax(-1, keepdim=True) - limit).clamp(min=0)).exp()
