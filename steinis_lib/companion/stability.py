"""Which stored results are the same on all processors: a table of methods, for the book.

It follows from the stored results and from what was measured (see `rounding`), by the rule by which
verification compares them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr

from steinis_lib.companion import rounding
from steinis_lib.companion.comparison import compare, is_chaotic, variation
from steinis_lib.companion.obtain import stored
from steinis_lib.companion.registry import EXPERIMENTS
from steinis_lib.companion.rounding import Spread, spread_like
from steinis_lib.companion.runner.experiment import Experiment

MAIN = ("log_z", "error", "score")
"""The number of a method that the table shows: the first of these, or else its first variable."""

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Chaotic:
    """A variable of a method that a rounding error decides.

    Parameters
    ----------
    where
        In which part of it, in words; empty if in all of it.
    how
        How verification compares it: by rank tests, or not, as the trials are too few.
    """

    variable: str
    where: str
    how: Literal["distribution", "none"]


@dataclass(frozen=True)
class Stability:
    """How far rounding errors move the numbers of a method.

    Parameters
    ----------
    experiment, method
        The names of the experiment and of the method.
    ratio
        The largest spread of all variables, each in units of its variation over trials.
    main, spread
        The name of the main number, and its spread.
    chaotic
        The chaotic variables; the method is stable if there are none.
    """

    experiment: str
    method: str
    ratio: float
    main: str
    spread: float
    chaotic: tuple[Chaotic, ...] = ()


def need_measured() -> None:
    """Refuse to go on if no spreads have been measured.

    Raises
    ------
    FileNotFoundError
        Saying how to get them.
    """
    if not rounding.FILE.is_file():
        raise FileNotFoundError(
            f"{rounding.FILE}, which says how far rounding errors go, is not there. Take it from "
            "git, or measure anew: python benchmarks/rounding.py"
        )


def evaluate() -> tuple[list[Stability], list[str]]:
    """Judge each method of each stored result.

    Returns
    -------
    list of Stability
        Of each method of which a spread was measured.
    list of str
        The other methods, as "experiment: method".
    """
    need_measured()
    found: list[Stability] = []
    unmeasured: list[str] = []
    for name, experiment in EXPERIMENTS.items():
        tree = stored(name)
        if tree is None:
            continue
        spreads = rounding.measured().get(name, {})
        for method, cells in _cells_of_methods(experiment, tree).items():
            if not _compared(cells[0][0]) or "candidate" in cells[0][0].dims:
                continue  # it has nothing but times, or is a search, which has a rule of its own
            if method in spreads:
                found.append(judge(name, method, cells, spreads[method]))
            else:
                unmeasured.append(f"{name}: {method}")
    return found, unmeasured


def judge(
    experiment: str,
    method: str,
    cells: Sequence[tuple[xr.Dataset, xr.Dataset]],
    spreads: Mapping[str, Spread],
) -> Stability:
    """Judge a method by the spreads of its variables.

    Parameters
    ----------
    cells
        The stored result of each cell, and the part of it that is one chunk. That is compared with
        itself, which shows how verification compares it.
    """
    masks: dict[str, list[xr.DataArray]] = {}
    ways: dict[str, set[str]] = {}
    largest = 0.0
    for group, chunk in cells:
        names = _compared(group)
        for name in names:
            ratio = in_variations(group[name], spreads.get(name, 0.0))
            largest = max(largest, float(ratio.max()))
            masks.setdefault(name, []).append(is_chaotic(group[name], spreads.get(name, 0.0)))
        touched = [name for name in names if masks[name][-1].any()]
        for name in touched:
            found = compare(group[[name]], chunk[[name]], spreads)
            ways.setdefault(name, set()).update(c.how for c in found)
    main = next((name for name in MAIN if name in masks), next(iter(masks)))
    chaotic = tuple(
        Chaotic(name, _where(masks[name]), "none" if "none" in how else "distribution")
        for name, how in ways.items()
    )
    return Stability(experiment, method, largest, main, _largest(spreads.get(main, 0.0)), chaotic)


def in_variations(variable: xr.DataArray, spread: Spread) -> xr.DataArray:
    """Return a spread in units of the variable's variation, which is that of verification."""
    distance = spread_like(spread, variable)
    with np.errstate(all="ignore"):
        return xr.where(distance == 0, 0.0, distance / variation(variable, distance))


def markdown_table() -> str:
    """Return a MyST table of methods for each stored result, for the book."""
    found, unmeasured = evaluate()
    n_chaotic = sum(bool(s.chaotic) for s in found)
    parts = [f"Stable methods: {len(found) - n_chaotic} of {len(found)}.\n"]
    for experiment in dict.fromkeys(s.experiment for s in found):
        rows = [_row(s) for s in found if s.experiment == experiment]
        head = [
            "| Method | | Largest spread / variation | Spread | Chaotic |",
            "|---|---|---|---|---|",
        ]
        parts.append("\n".join([f"### `{experiment}`\n", *head, *rows]) + "\n")
    if unmeasured:
        listed = "; ".join(f"`{name}`" for name in unmeasured)
        parts.append(f"Not measured, so that any difference counts: {listed}.\n")
    return "\n".join(parts)


def _cells_of_methods(
    experiment: Experiment, tree: xr.DataTree
) -> dict[str, list[tuple[xr.Dataset, xr.Dataset]]]:
    """Method → of each of its cells the stored result, and its first chunk."""
    parameters = experiment.parameters.of_profile("paper")
    found: dict[str, list[tuple[xr.Dataset, xr.Dataset]]] = {}
    for cell in experiment.cells(parameters):
        group = tree[cell.label].to_dataset()
        trials = list(experiment.chunks(parameters, cell)[0].trials)
        found.setdefault(cell.method or cell.label, []).append((group, group.sel(trial=trials)))
    return found


def _compared(group: xr.Dataset) -> list[str]:
    """The variables that verification compares: all but times."""
    return [str(name) for name, v in group.data_vars.items() if v.attrs.get("units") != "s"]


def _where(masks: list[xr.DataArray]) -> str:
    """Where a variable is chaotic, of one mask for each cell."""
    touched = [mask for mask in masks if mask.any()]
    words = []
    if touched[0].dims == ("transitions",):
        first = min(int(n) for mask in touched for n in mask.transitions.values[mask.values])
        words.append(f"from {first} transitions on")
    if len(touched) < len(masks):
        words.append(f"in {len(touched)} of {len(masks)} cells")
    return " ".join(words)


def _row(s: Stability) -> str:
    """A method's row of the table."""
    together: dict[tuple[str, str], list[str]] = {}
    for c in s.chaotic:
        together.setdefault((c.where, c.how), []).append(f"`{c.variable}`")
    how = {"distribution": "compared in distribution", "none": "not compared"}
    parts = [
        ", ".join(names) + (f" {where}" if where else "") + f": {how[way]}"
        for (where, way), names in together.items()
    ]
    cells = [
        f"`{s.method}`", "**chaotic**" if s.chaotic else "stable", _power_of_ten(s.ratio),
        f"`{s.main}` {_number(s.spread)}", "; ".join(parts) or "–",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _largest(spread: Spread) -> float:
    return max(spread.values()) if isinstance(spread, dict) else spread


def _power_of_ten(x: float) -> str:
    """The next power of ten that is not smaller, such as 10⁻¹²."""
    if x == 0 or not x < sys.float_info.max:
        return "∞" if x else "0"
    exponent = math.ceil(math.log10(x) - 1e-9)
    return f"10{str(exponent).translate(SUPERSCRIPTS)}"


def _number(x: float) -> str:
    """A positive number with one digit, such as 3 × 10⁻¹²."""
    if x == 0 or not x < sys.float_info.max:
        return "∞" if x else "0"
    digit, _, exponent = f"{x:.0e}".partition("e")
    return f"{digit} × 10{str(int(exponent)).translate(SUPERSCRIPTS)}"
