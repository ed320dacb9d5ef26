"""Schedules: callables from the transition ℓ = 0, 1, … to ε, or to the target of the leaders.

Leaders of SteinIS may follow any density while followers are weighed by p̄, so an annealed one
changes the maps and not whether the weights are valid.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from steinis_lib.baselines.annealing import GeometricPath, check_schedule
from steinis_lib.targets.base import Target


@dataclass(frozen=True)
class StepSize:
    """ε_ℓ = α / (1 + ℓ)^β (section 5); β = 0 is a constant step."""

    alpha: float = 0.1
    beta: float = 0.0

    def __post_init__(self) -> None:
        if not self.alpha > 0:
            raise ValueError(f"alpha must be positive, got {self.alpha}")
        if not self.beta >= 0:
            raise ValueError(f"beta must not be negative, got {self.beta}")

    def __call__(self, transition: int) -> float:
        """Return ε_ℓ."""
        return float(self.alpha / (1 + transition) ** self.beta)


@dataclass(frozen=True)
class Tempering:
    """f_β of a path, with β_ℓ = schedule[ℓ + 1], and p̄ once the schedule is through.

    For `SteinIS(score_target=…)`: leaders at ℓ take the score (1 - β_ℓ) ∇ log q_0 + β_ℓ ∇ log p̄.
    β = 0 is left out, as leaders are draws from q_0 already.

    Parameters
    ----------
    path
        From q_0 to p̄.
    schedule
        β_0 = 0, …, β_T = 1, ``(T + 1,)``, such as ``linear_schedule(T)``: p̄ itself from ℓ = T - 1 on.

    Raises
    ------
    ValueError
        If the schedule does not rise strictly from exactly 0 to exactly 1.
    """

    path: GeometricPath
    schedule: Tensor

    def __post_init__(self) -> None:
        check_schedule(self.schedule)

    def __call__(self, transition: int) -> Target:
        """Return f_β at transition ℓ."""
        beta = float(self.schedule[min(transition + 1, len(self.schedule) - 1)])
        return self.path.target if beta == 1 else self.path.at(beta)
