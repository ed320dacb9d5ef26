"""Adaptive importance sampling by stochastic convex programming, after Ryu & Boyd (2014).

They adapt the natural parameter of an exponential family, in which the estimate's variance is
convex. Mixtures are no such family, but with fixed components, q_π = Σ_k π_k N_k, their idea
carries over to the weights, for these are convex in π:

* "variance": V(π) = ∫ p̄²/q_π = E_q[w²], with w = p̄/q_π;
* "cross-entropy": C(π) = -∫ p̄ log q_π, which is KL(p ‖ q_π) up to scale and a constant.

Draws x ~ q_π give unbiased gradients, -w² N_k(x)/q_π(x) and -w N_k(x)/q_π(x), and each step moves
π against them. The draws serve twice: the mean of all weights p̄/q_π, each with the π it was drawn
from, is an unbiased Ẑ, for π depends on earlier draws alone.

p̄ is taken as it is. Scaling it by c scales the gradients by c² ("variance") or c, so a step size
is meant for Z ≈ 1: for another Z divide it by Z² or Z, or subtract an estimate of log Z from log p̄.
N_k/q_π can be as large as 1/π_k, so from equal weights take step sizes well below 1/K ("mirror") or
1/K² ("projected"): after one step that is too long a single component is left, and few of its draws
tell that others are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from steinis_lib.core.checks import check_log_density, check_step_size
from steinis_lib.core.generators import fork, resume
from steinis_lib.core.loop import iterate
from steinis_lib.targets.base import Target
from steinis_lib.targets.mixtures import FullCovarianceMixture

Objective = Literal["variance", "cross-entropy"]
Update = Literal["mirror", "projected"]


@dataclass(frozen=True)
class AdaptiveISState:
    """Where a run stands; all that is needed to continue it.

    Parameters
    ----------
    log_pi
        log π_t, ``(*batch, K)``: the weights that the next step draws from.
    mean_pi
        The average of π_0, …, π_{t-1}, those drawn from so far, ``(*batch, K)``; π_0 at t = 0.
    log_sum_w
        The log of the sum of all weights so far, ``(*batch,)``; -inf while all are zero.
    n_draws
        How many weights that is, an int64 scalar.
    iteration
        t, an int64 scalar.
    rng
        The state of the run's own random generator, uint8: `step` is a function of the state.
    """

    log_pi: Tensor
    mean_pi: Tensor
    log_sum_w: Tensor
    n_draws: Tensor
    iteration: Tensor
    rng: Tensor

    @property
    def log_z(self) -> Tensor:
        """log Ẑ, ``(*batch,)``; Ẑ, not its log, is unbiased."""
        if not int(self.n_draws):
            raise ValueError("there is no Ẑ before the first step")
        return self.log_sum_w - math.log(int(self.n_draws))


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
class AdaptiveIS:
    """Adapt the weights of a mixture by stochastic gradients: settings, `init`, `step` and `run`.

    Parameters
    ----------
    target
        p̄, through `log_prob`.
    components
        The fixed N_k; its weights are the start π_0.
    objective
        "variance" or "cross-entropy".
    update
        "mirror": π ∝ π exp(-η g), then `project_kl`. "projected": π - η g, then
        `project_euclidean`. Each is the Bregman projection that belongs to its step.
    step_size
        The schedule t → η, t = 0, 1, …, such as ``StepSize(0.1 / K, 0.5)``; see the module.
    n_samples
        Draws in each step, over which the gradient is averaged.
    floor
        The smallest weight of any component; K · floor < 1. With 0, "projected" can set weights
        to 0: Ẑ is no longer unbiased if that leaves a region of p̄ without a component, and
        what is never drawn again is never seen to be missing.
    """

    target: Target
    components: FullCovarianceMixture
    objective: Objective
    update: Update
    step_size: Callable[[int], float]
    n_samples: int = 1
    floor: float = 0.0

    def __post_init__(self) -> None:
        if self.components.dim != self.target.dim:
            raise ValueError(
                f"components have d={self.components.dim}, but the target has d={self.target.dim}"
            )
        for name, kinds in (("objective", Objective), ("update", Update)):
            if getattr(self, name) not in get_args(kinds):
                raise ValueError(
                    f"{name} must be one of {get_args(kinds)}, got {getattr(self, name)!r}"
                )
        if self.n_samples < 1:
            raise ValueError(f"n_samples must be at least 1, got {self.n_samples}")
        k = self.components.log_weights.shape[-1]
        if not 0 <= k * self.floor < 1:
            raise ValueError(f"floor must be in [0, 1/K) with K={k}, got {self.floor}")

    def init(
        self, generator: torch.Generator, batch_shape: tuple[int, ...] = ()
    ) -> AdaptiveISState:
        """Start at π_0, raised to `floor` by `project_kl`; `generator` seeds the run's stream."""
        weights = self.components.log_weights
        batch = torch.broadcast_shapes(batch_shape, self.components.log_z.shape)
        log_pi = project_kl(weights.expand(*batch, weights.shape[-1]), self.floor)
        return AdaptiveISState(
            log_pi=log_pi,
            mean_pi=log_pi.exp(),
            log_sum_w=torch.full_like(log_pi[..., 0], -torch.inf),
            n_draws=torch.tensor(0),
            iteration=torch.tensor(0),
            rng=fork(generator),
        )

    def step(self, state: AdaptiveISState) -> tuple[AdaptiveISState, AdaptiveISInfo]:
        """Draw from q_π, add the weights to Ẑ, and move π.

        Raises
        ------
        FloatingPointError
            If log p̄ is NaN or +inf at a draw, naming it.
        """
        t, log_pi = int(state.iteration), state.log_pi
        eta = self.step_size(t)
        check_step_size(eta)
        generator = resume(state.rng, log_pi.device)
        q = replace(self.components, log_weights=log_pi)
        x = q.sample((*log_pi.shape[:-1], self.n_samples), generator)
        log_n = self.components.log_components(x)
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
            n_draws=state.n_draws + self.n_samples,
            iteration=state.iteration + 1,
            rng=generator.get_state(),
        )
        return new, AdaptiveISInfo(eta, x, log_w)

    def run(
        self,
        state: AdaptiveISState,
        n_steps: int,
        on_step: Callable[[AdaptiveISState, AdaptiveISInfo], None] | None = None,
    ) -> AdaptiveISState:
        """Take `n_steps` further steps."""
        return iterate(self.step, state, n_steps, on_step)

    def proposal(self, state: AdaptiveISState, averaged: bool = True) -> FullCovarianceMixture:
        """Return q_π with the averaged weights, which the theory is about, or the present ones."""
        log_pi = state.mean_pi.log() if averaged else state.log_pi
        return replace(self.components, log_weights=log_pi)


def stochastic_gradient(log_w: Tensor, log_ratio: Tensor, objective: Objective) -> Tensor:
    """Return g_k = -mean over draws of w² N_k/q, or of w N_k/q for cross-entropy, ``(*batch, K)``.

    `log_w` is ``(*batch, n)``, `log_ratio` log N_k/q ``(*batch, n, K)``. A gradient too large for
    arithmetic is scaled down to the square root of the largest number; no other is clipped.
    """
    power = 2 if objective == "variance" else 1
    log_size = (power * log_w.unsqueeze(-1) + log_ratio).logsumexp(-2) - math.log(log_w.shape[-1])
    limit = 0.5 * math.log(torch.finfo(log_size.dtype).max)
    return -(log_size - (log_size.amax(-1, keepdim=True) - limit).clamp(min=0)).exp()


def project_kl(log_y: Tensor, floor: float) -> Tensor:
    """Return log π, ``(*batch, K)``, of the π ≥ floor, Σ_k π_k = 1, with the smallest KL(π ‖ y).

    π_k = max(floor, c y_k), and c is found by sorting; without a floor π ∝ y. y needs no
    normalisation.
    """
    log_y, rank = log_y.log_softmax(-1), _ranks(log_y)
    if floor == 0:
        return log_y
    ordered = log_y.sort(-1, descending=True).values
    log_c = (1 - (rank[-1] - rank) * floor).log() - ordered.logcumsumexp(-1)
    above = (log_c + ordered > math.log(floor)).sum(-1, keepdim=True)
    return (log_c.gather(-1, above - 1) + log_y).clamp(min=math.log(floor))


def project_euclidean(y: Tensor, floor: float) -> Tensor:
    """Return the π ≥ floor, Σ_k π_k = 1, ``(*batch, K)``, nearest to y, exactly, by sorting.

    π_k = floor + max(0, y_k - θ) (Held, Wolfe & Crowder 1974).
    """
    y, rank = y - y.amax(-1, keepdim=True), _ranks(y)  # a huge y would swallow the 1
    ordered = y.sort(-1, descending=True).values
    theta = (ordered.cumsum(-1) - (1 - rank[-1] * floor)) / rank
    above = (ordered > theta).sum(-1, keepdim=True)
    return floor + (y - theta.gather(-1, above - 1)).clamp(min=0)


def _ranks(y: Tensor) -> Tensor:
    return torch.arange(1, y.shape[-1] + 1, dtype=y.dtype, device=y.device)
