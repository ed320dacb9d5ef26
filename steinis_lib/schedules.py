"""Step sizes: a number, or a schedule ℓ → ε over the transitions ℓ = 0, 1, …."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

StepSchedule = Callable[[int], float]
"""ℓ → ε, such as a `StepSize`; any function of the number ℓ will do."""


@dataclass(frozen=True)
class StepSize:
    """ε_ℓ = α / (1 + ℓ)^β (section 5); β = 0 is a constant step.

    Raises
    ------
    ValueError
        If α is not positive, or β is negative.
    """

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


def step_at(step_size: float | StepSchedule, transition: int) -> float:
    """Return ε_ℓ of a number or a schedule.

    Raises
    ------
    ValueError
        If it is not positive and finite.
    """
    epsilon = float(step_size(transition) if callable(step_size) else step_size)
    if not 0 < epsilon < math.inf:
        raise ValueError(
            f"step_size must be positive and finite, got {epsilon} at transition {transition}"
        )
    return epsilon
