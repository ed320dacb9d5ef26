"""Bars: what was hoped for before a run, and whether the run met it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from steinis_lib.companion.intervals import Estimate


@dataclass(frozen=True)
class Bar:
    """What was hoped to be at most `threshold`, what was measured, and if at the allowed cost."""

    text: str
    threshold: float
    measured: Estimate
    within_budget: bool = True

    @property
    def outcome(self) -> Literal["met", "missed", "not decided"]:
        """Met or missed if the whole interval, or the cost, says so."""
        if not self.within_budget or self.measured.low > self.threshold:
            return "missed"
        return "met" if self.measured.high <= self.threshold else "not decided"
