"""Readings of a claim: what the paper leaves open, and how far a verdict depends on it.

A reading says what is measured for a claim, with a choice for each thing that the paper leaves
open. Its choices are arguments of the claim's statistic. The verdict of a claim is that of its
*primary* reading; `robustness` says in words what all of them lead to.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from steinis_lib.companion.intervals import Estimate

Verdict = Literal["reproduced", "partly", "not reproduced", "not yet run"]
Range = tuple[float, float]
Choice = StrictBool | StrictInt | StrictFloat | StrictStr


class Reading(BaseModel):
    """One way to read a claim; see ``data/claims/README.md``."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True)

    name: str = Field(min_length=1)
    primary: StrictBool = False
    choices: dict[str, Choice] = {}
    why: str = Field(min_length=1)
    experiment: str | None = None
    reproduced: Range | None = None
    partly: Range | None = None


AS_STATED = Reading(
    name="as stated", primary=True, why="The paper leaves nothing open that would matter here."
)
"""The only reading of a claim that lists none."""


@dataclass(frozen=True)
class Judged:
    """A reading with all choices it makes, and what the data say under it."""

    reading: Reading
    choices: Mapping[str, Choice]
    ranges: tuple[Range, Range] | None = None
    estimate: Estimate | None = None
    verdict: Verdict = "not yet run"

    def text(self, unit: str = "") -> str:
        """Return our figure with its interval, as text."""
        if (e := self.estimate) is None:
            return "–"
        return f"{e.value:.3g} [{e.low:.3g}, {e.high:.3g}] {unit}".rstrip()

    def record(self) -> dict[str, Any]:
        """Return all of it for machines."""
        e = self.estimate
        return {
            **self.reading.model_dump(include={"name", "primary", "why", "experiment"}),
            "choices": dict(self.choices),
            "ours": None if e is None else _plain(e.value),
            "uncertainty": None if e is None else [_plain(e.low), _plain(e.high)],
            "verdict": self.verdict,
        }

    def published(self) -> dict[str, Any]:
        """Return what is published of it."""
        numbers = asdict(self.estimate) if self.estimate else {}
        return {"verdict": self.verdict} | {key: _plain(x) for key, x in numbers.items()}

    def discrepancies(self, old: Mapping[str, Any] | None, name: str) -> list[str]:
        """Return, a line each, where what was published under a name differs from the data."""
        if old is None:
            return [f"{name}: the data say '{self.verdict}', but no verdict is published"]
        lines = []
        if old.get("verdict") != self.verdict:
            lines.append(
                f"{name}: published '{old.get('verdict')}', but the data say '{self.verdict}'"
            )
        for key, new in sorted(asdict(self.estimate).items() if self.estimate else ()):
            if key not in old or not math.isclose(float(old[key]), new, rel_tol=1e-6, abs_tol=1e-9):
                lines.append(f"{name}: published {key} {old.get(key)}, but the data say {new}")
        return lines


def _plain(value: float) -> float | str:
    """A number as JSON can hold it: infinity as text."""
    return value if math.isfinite(value) else str(value)


def check_readings(readings: Sequence[Reading]) -> None:
    """Refuse readings of one claim that cannot stand beside each other.

    Raises
    ------
    ValueError
        If not exactly one is primary, if a name occurs twice, or if two measure the same.
    """
    if sum(reading.primary for reading in readings) != 1:
        raise ValueError(
            f"exactly one reading must be primary, and of {[r.name for r in readings]} these are: "
            f"{[r.name for r in readings if r.primary]}"
        )
    for one, other in combinations(readings, 2):
        if one.name == other.name:
            raise ValueError(f"two readings are called {one.name!r}; give each a name of its own")
        if one.model_dump(exclude={"name", "primary", "why"}) == other.model_dump(
            exclude={"name", "primary", "why"}
        ):
            raise ValueError(
                f"readings {one.name!r} and {other.name!r} measure the same; remove one of them"
            )


def bound_choices(
    statistic: Callable[..., Estimate], reading: Reading, axes: Iterable[str] = ()
) -> dict[str, Choice]:
    """Return a reading's choices, with the statistic's own default on each other axis of `axes`.

    Raises
    ------
    ValueError
        If the statistic cannot be called with the reading's choices.
    """
    signature = inspect.signature(statistic)
    try:
        bound = signature.bind(None, **reading.choices)
    except TypeError as error:
        raise ValueError(
            f"reading {reading.name!r}: its choices {reading.choices} do not fit the statistic's "
            f"arguments, which are {signature}: {error}"
        ) from error
    bound.apply_defaults()
    others: dict[str, Any] = {axis: bound.arguments.get(axis) for axis in axes}
    defaults = {
        axis: value
        for axis, value in others.items()
        if axis not in reading.choices and isinstance(value, bool | int | float | str)
    }
    return reading.choices | defaults


def judge(estimate: Estimate, reproduced: Range, partly: Range) -> Verdict:
    """Return the verdict that an estimate's interval leads to.

    Raises
    ------
    ValueError
        If the estimate or an end of its interval is NaN.
    """
    if any(map(math.isnan, (estimate.value, estimate.low, estimate.high))):
        raise ValueError("the statistic is NaN; the stored result is damaged")
    if reproduced[0] <= estimate.low and estimate.high <= reproduced[1]:
        return "reproduced"
    if estimate.high < partly[0] or estimate.low > partly[1]:
        return "not reproduced"
    return "partly"


def choice_text(axis: str, value: Choice) -> str:
    """Return a choice in words, such as "kernel wide"."""
    if isinstance(value, bool):
        return axis if value else f"no {axis}"
    return f"{axis} {value:g}" if isinstance(value, float) else f"{axis} {value}"


def robustness(readings: Sequence[Judged]) -> str:
    """Return in words under how many readings, and under which, a claim is reproduced."""
    yes = [r for r in readings if r.verdict == "reproduced"]
    no = [r for r in readings if r not in yes]
    waiting = sum(r.verdict == "not yet run" for r in readings)
    if len(readings) == 1 or waiting == len(readings):
        return "one reading" if len(readings) == 1 else f"{len(readings)} readings, not yet run"
    note = f" ({waiting} not yet run)" if waiting else ""
    if not no:
        return f"reproduced under all {len(readings)} readings"
    if not yes:
        return f"reproduced under none of {len(readings)} readings{note}"
    return f"reproduced under {len(yes)} of {len(readings)} readings{note}: {_which(yes, no)}"


def _which(yes: Sequence[Judged], no: Sequence[Judged]) -> str:
    """Say which readings `yes` holds: by choices that none of `no` makes, or else by names."""
    if shared := _shared(yes, no):
        return f"{'the one' if len(yes) == 1 else 'those'} with {shared}"
    if shared := _shared(no, yes):
        return f"all but {'the one' if len(no) == 1 else 'those'} with {shared}"
    few, start = (yes, "") if len(yes) <= len(no) else (no, "all but ")
    names = [f"“{r.reading.name}”" for r in few]
    if len(names) > 4:
        names[3:] = [f"{len(names) - 3} more"]
    return start + "; ".join(names)


def _shared(inside: Sequence[Judged], outside: Sequence[Judged]) -> str | None:
    """The fewest choices, two at most, that all of `inside` make together and none of `outside`."""
    common = [c for c in inside[0].choices.items() if all(_makes(r, c) for r in inside)]
    for size in (1, 2):
        for found in combinations(common, size):
            if not any(all(_makes(r, c) for c in found) for r in outside):
                return " and ".join(choice_text(*choice) for choice in found)
    return None


def _makes(judged: Judged, choice: tuple[str, Choice]) -> bool:
    axis, value = choice
    return axis in judged.choices and judged.choices[axis] == value
