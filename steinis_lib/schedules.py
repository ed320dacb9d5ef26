"""Step-size schedules: callables from the transition ℓ = 0, 1, … to ε."""

from __future__ import annotations

from dataclasses import dataclass


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
