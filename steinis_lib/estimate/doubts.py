"""Reasons not to trust an estimate of log Z."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["trusted", "doubtful", "failed"]


@dataclass(frozen=True)
class Doubt:
    """A reason not to trust a result.

    Parameters
    ----------
    cause
        A short name, which programs can compare: "tail", "disagreement", ….
    message
        What was seen, how large the damage may be, and what to do.
    damage
        How far log Z may be off, in nats, as far as that can be told; ∞ where it cannot.
    fatal
        Whether the result should not be used at all.
    """

    cause: str
    message: str
    damage: float
    fatal: bool = False


def verdict(doubts: Iterable[Doubt]) -> Verdict:
    """Return "failed" with a fatal doubt, "doubtful" with another one, else "trusted"."""
    found = tuple(doubts)
    if any(doubt.fatal for doubt in found):
        return "failed"
    return "doubtful" if found else "trusted"
