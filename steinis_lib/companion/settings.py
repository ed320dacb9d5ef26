"""The names of the methods that the sections compare, and the axes of their settings.

A method has the same axes in all sections, and `search` searches them in the same way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FAMILIES = ("steinis", "steinis-double", "steinis-wide", "steinis-adagrad")
"""SteinIS with the bandwidth rule as printed, with twice it, with a tuned multiple of it, and with
a tuned multiple and steps by AdaGrad."""
TUNED = (*FAMILIES, "steinis-leaders", "hais-1l", "hais-1l-partial", "hais-10l", "ais")
"""The tuned methods of sections 4 and 5. "steinis-leaders" is no valid estimate: a reading."""
METHODS = ("is", *TUNED, "ais-unadjusted")
"""All methods of sections 4 and 5."""


@dataclass(frozen=True)
class Setting:
    """One candidate of the tuning. What a method does not have is None.

    Parameters
    ----------
    alpha, beta
        Of SteinIS's steps α(1 + ℓ)^-β; α is also the leapfrog step of HAIS and the ε of AIS.
    multiplier
        Of the paper's bandwidth.
    refresh
        γ of HAIS.
    """

    alpha: float
    beta: float | None = None
    multiplier: float | None = None
    refresh: float | None = None


@dataclass(frozen=True)
class Axis:
    """A setting that is searched: the values of the first grid, and how to go on beyond them.

    Values form a lattice: place k has the first value times (or plus k times) the step k times.

    Parameters
    ----------
    name
        A field of `Setting`.
    start
        The values of the first grid, rising.
    step
        The next value beyond an end is `step` times the last (if additive: plus).
    additive
        Values are a step apart, not a factor.
    low, high
        Natural limits. A step beyond one of them ends at it.

    Raises
    ------
    ValueError
        If the values do not rise within the limits, or the step leads nowhere.
    """

    name: str
    start: tuple[float, ...]
    step: float
    additive: bool = False
    low: float = 0.0
    high: float = math.inf

    def __post_init__(self) -> None:
        inside = all(self.low <= value <= self.high for value in self.start)
        if not self.start or list(self.start) != sorted(set(self.start)) or not inside:
            raise ValueError(
                f"axis {self.name}: start must rise within {self.low} to {self.high}, "
                f"got {self.start}"
            )
        if not (self.step > 0 if self.additive else self.step > 1 and self.start[0] > 0):
            raise ValueError(
                f"axis {self.name}: expected a step above 0 if additive, or above 1 and positive "
                f"values if not, got step {self.step} from {self.start[0]}"
            )

    @property
    def fixed(self) -> bool:
        """Whether there is only one value, so that nothing is searched."""
        return self.low == self.high

    @property
    def places(self) -> tuple[float, ...]:
        """The places of the first grid."""
        first = self.start[0]
        if self.additive:
            return tuple((value - first) / self.step for value in self.start)
        return tuple(math.log(value / first) / math.log(self.step) for value in self.start)

    def at(self, place: float) -> float:
        """Return the value at a place, within the limits, to 6 significant digits."""
        first = self.start[0]
        value = first + self.step * place if self.additive else first * self.step**place
        return float(f"{min(max(value, self.low), self.high):.6g}")

    def steps_between(self, a: float, b: float) -> float:
        """Return how many steps apart two values are."""
        return (
            abs(a - b) / self.step if self.additive else abs(math.log(a / b) / math.log(self.step))
        )


MULTIPLIERS = {"steinis-double": 2.0}
"""Multipliers of the bandwidth that a method's name stands for, where that is not 1."""


def axes_of(method: str, smallest_step: float = 0.05) -> tuple[Axis, ...]:
    """Return the axes that are searched for a method, the same in all sections.

    Parameters
    ----------
    method
        A name of `FAMILIES`, "steinis-leaders", or a name that begins with "hais" (partial refresh
        if it ends in "partial") or is "ais".
    smallest_step
        The smallest leapfrog step ε of the first grid. AIS takes the Langevin step ε²/2 that HAIS
        at ε amounts to; the first α of SteinIS is twice `smallest_step`.

    Raises
    ------
    ValueError
        If there is no such method.
    """
    e = smallest_step
    alphas = tuple(_clean(e * factor) for factor in (2.0, 20.0, 200.0))
    beta = Axis("beta", (0.0, 0.3, 0.6), 0.3, additive=True, high=1.0)
    if method == "steinis-wide":
        wide = Axis("multiplier", (5.0, 20.0), 2.0)
        return (
            Axis("alpha", alphas[:2], 10**0.5),
            Axis("beta", (0.0, 0.6), 0.3, True, 0.0, 1.0),
            wide,
        )
    if method == "steinis-adagrad":
        return Axis("alpha", alphas, 10**0.5), Axis("multiplier", (1.0, 8.0), 2.0)
    if method in ("steinis", "steinis-double", "steinis-leaders"):
        m = MULTIPLIERS.get(method, 1.0)
        return Axis("alpha", alphas, 10**0.5), beta, Axis("multiplier", (m,), 2.0, low=m, high=m)
    if method == "ais":
        return (Axis("alpha", tuple(_clean(e**2 / 2 * 4.0**i) for i in range(6)), 4.0),)
    if method.startswith("hais") and method.endswith("partial"):
        steps = tuple(_clean(e * 4.0**i) for i in range(3))
        return Axis("alpha", steps, 2.0), Axis("refresh", (0.125, 0.5), 2.0, high=1.0)
    if method.startswith("hais"):
        return (Axis("alpha", tuple(_clean(e * 2.0**i) for i in range(6)), 2.0),)
    raise ValueError(
        f"there are no axes for {method!r}: expected one of {', '.join(TUNED)}, or a name that "
        "begins with 'hais'"
    )


def _clean(value: float) -> float:
    """Return a value to 6 significant digits, as in `Axis.at`."""
    return float(f"{value:.6g}")


def tuned_as(method: str) -> str:
    """Return the method whose setting this one takes: unadjusted AIS takes that of unbiased AIS."""
    return "ais" if method == "ais-unadjusted" else method
