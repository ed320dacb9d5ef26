"""What AIS and HAIS share: settings, states, and runs along a schedule.

Transition t = 1, …, T adds (β_t - β_{t-1})(log p̄ - log q_0) at the present particle to its
log-weight, then moves the particle by a Markov kernel that leaves f_{β_t} invariant (Neal 2001).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import cache, cached_property
from typing import TypeVar

import torch
from torch import Tensor

from steinis_lib.baselines.geometric_path import (
    Evaluated,
    GeometricPath,
    check_schedule,
    linear_schedule,
)
from steinis_lib.core.algorithm import Algorithm
from steinis_lib.core.checks import check_at_least, check_step_size
from steinis_lib.importance import ImportanceSample
from steinis_lib.targets.base import ScoredProposal, Target


@dataclass(frozen=True)
class AnnealedState(Evaluated):
    """Where an annealed run stands: its particles, with what was evaluated at them, and weights.

    Parameters
    ----------
    log_w
        The log-weights so far, ``(*batch, n)``: of f_{β_t}, not of p̄, before the last transition.
    transition
        t, an int64 scalar.
    rng
        The state of the run's own random generator, uint8; `step` draws from nothing else.
    """

    log_w: Tensor
    transition: Tensor
    rng: Tensor


@dataclass(frozen=True)
class AnnealedInfo:
    """What one transition did.

    Parameters
    ----------
    beta
        β_t.
    step_size
        ε, ``(*batch,)``.
    acceptance
        The share of particles that moved, ``(*batch,)``.
    """

    beta: float
    step_size: Tensor
    acceptance: Tensor


def rounded(step_size: float | Tensor) -> float | Tensor:
    """Return a number as PyTorch's default dtype has it, and a tensor as it is.

    So a number gives the same results as ``torch.tensor(number)``.
    """
    if isinstance(step_size, Tensor):
        return step_size
    return _rounded(float(step_size), torch.get_default_dtype())


@cache
def _rounded(number: float, dtype: torch.dtype) -> float:
    return torch.tensor(number, dtype=dtype).item()


def per_problem(step_size: float | Tensor, particles: Tensor) -> Tensor:
    """Return ε of shape ``(*batch,)`` for particles ``(*batch, n, d)``."""
    values, batch = rounded(step_size), particles.shape[:-2]
    if isinstance(values, float):
        return particles.new_full(batch, values)
    values = values.to(particles)
    if values.ndim and values.shape != batch:
        raise ValueError(
            f"step_size must be a number or (*batch,) = {tuple(batch)}, got {tuple(values.shape)}"
        )
    return values.expand(batch)


def check_fixed_step(step_size: float | Tensor) -> None:
    """Refuse a step size that is a schedule, or not positive and finite."""
    if callable(step_size):
        raise TypeError(
            "step_size must be a number or a tensor (*batch,) here, and stay the same throughout a "
            f"run; got the schedule {step_size}"
        )
    check_step_size(step_size)


S = TypeVar("S", bound=AnnealedState)


@dataclass(frozen=True)
class Annealed(Algorithm[S, AnnealedInfo]):
    """What AIS and HAIS share: settings, and runs along a schedule that ends.

    Parameters
    ----------
    target
        p̄, through `log_prob_and_score`.
    q0
        The normalised start of the path, with a score.
    n_particles
        Particles of each problem.
    schedule
        β_0 = 0 < … < β_T = 1, ``(T + 1,)``; default: `linear_schedule` with 100 transitions.

    Raises
    ------
    ValueError
        If a setting is out of range, or dimensions differ.
    """

    target: Target
    q0: ScoredProposal
    _: KW_ONLY
    n_particles: int = 1000
    schedule: Tensor = field(default_factory=lambda: linear_schedule(100))

    def __post_init__(self) -> None:
        _ = self.path  # refuses ends that do not fit
        check_at_least(self.n_particles, 2, "n_particles")
        check_schedule(self.schedule)

    @cached_property
    def path(self) -> GeometricPath:
        """The geometric path from q_0 to p̄."""
        return GeometricPath(self.q0, self.target)

    def betas(self, state: S) -> tuple[float, float]:
        """Return β_{t-1} and β_t of the coming transition."""
        t = int(state.transition)
        self._left(t, 1)
        return self._betas[t], self._betas[t + 1]

    @cached_property
    def _betas(self) -> list[float]:
        return self.schedule.tolist()

    def run(
        self,
        state: S,
        n_transitions: int | None = None,
        *,
        on_step: Callable[[S, AnnealedInfo], None] | None = None,
    ) -> S:
        """Take `n_transitions` further transitions, by default all that remain.

        Raises
        ------
        ValueError
            If fewer remain.
        """
        return super().run(state, self._left(int(state.transition), n_transitions), on_step=on_step)

    def importance_sample(self, state: S) -> ImportanceSample:
        """Return the particles of a complete run with their weights.

        Raises
        ------
        ValueError
            If the run has not reached β = 1: until then the weights are not those of p̄.
        """
        t = int(state.transition)
        if left := self._left(t):
            raise ValueError(
                "the weights are those of p̄ only at β = 1: the run is at "
                f"β = {self._betas[t]:.4g} with "
                f"{left} transitions to go; complete it with run(state)"
            )
        return ImportanceSample(state.particles, state.log_w)

    def _left(self, t: int, wanted: int | None = None) -> int:
        """Return `wanted`, or by default all transitions after t; refuse more than these."""
        left = len(self.schedule) - 1 - t
        if wanted is not None and not 0 <= wanted <= left:
            raise ValueError(
                f"{wanted} transitions asked for, but {left} of the schedule's "
                f"{len(self.schedule) - 1} remain; an annealed run cannot be extended: start one "
                "with a longer schedule"
            )
        return left if wanted is None else wanted
