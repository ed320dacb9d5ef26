"""Measure how often the rules of the ledger call a true claim false, and a false one true.

Each claim's primary reading is judged on made-up data, by the same code as the stored result. The
data are the stored trials, changed so that the statistic has the value that is wanted
(`populations`), from which trials are drawn with replacement, as many as are stored:

    python benchmarks/error_rates.py

writes ``data/error_rates.json``. Claims whose experiment has no stored result with the present
parameters are left out, and said to be.

A claim is true with a value in the *middle* of the range `reproduced` (or, where that has one end,
as far inside of it as `partly` is outside), and just true or just false at its *edge*. *Outside* is
at the edge of `partly`. Where both ranges have the same end, it is no edge.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr
from populations import POPULATIONS, Population, tree_of
from scipy.optimize import brentq

from steinis_lib.companion import checkout
from steinis_lib.companion.claims import Claim, ledger
from steinis_lib.companion.fairness_page import ERROR_RATES, LIMIT, rates_of
from steinis_lib.companion.intervals import Estimate, resampling
from steinis_lib.companion.obtain import stored
from steinis_lib.companion.reading_claims import Range, Reading
from steinis_lib.companion.registry import STATISTICS
from steinis_lib.core.files import replacing

REPEATS = 400
"""Made-up results of each population at an edge; of the others, whose rates are near 0, half as
many."""
RESAMPLES = 300
"""Resamples behind each interval of theirs; the published intervals have more."""
CLOSE = 0.1
"""How near a population's value must be to the wanted one, in units of the distance between the
edges of both ranges. Shares of few trials cannot have any value."""
FARTHEST = 64.0
"""The number of a make that is not exceeded."""

Where = Literal["middle", "edge", "outside"]
Statistic = Callable[[xr.DataTree], Estimate]


class UnreachableError(ValueError):
    """No population has the value that is wanted."""


@dataclass(frozen=True)
class Case:
    """A value that the statistic of a population is to have.

    Parameters
    ----------
    where
        See the module's description.
    side
        Which edge: "lower" or "upper"; "" for the middle.
    value
        The value.
    within
        How near to it is near enough.
    """

    where: Where
    side: str
    value: float
    within: float


def cases(reproduced: Range, partly: Range) -> list[Case]:
    """Return the values at which a rule is tried.

    Raises
    ------
    ValueError
        If neither end of the ranges is an edge.
    """
    found: list[Case] = []
    ends = list(zip(("lower", "upper"), reproduced, partly, strict=True))
    gaps = {side: abs(inner - outer) for side, inner, outer in ends if inner != outer}
    if not gaps:
        raise ValueError(f"ranges {reproduced} and {partly} have no edge between them")
    a, b = reproduced
    if math.isinf(a):
        middle = b - gaps["upper"]
    elif math.isinf(b):
        middle = a + gaps["lower"]
    else:
        middle = (a + b) / 2
    found.append(Case("middle", "", middle, CLOSE * max(gaps.values())))
    for side, inner, outer in ends:
        if side in gaps:
            found.append(Case("edge", side, inner, CLOSE * gaps[side]))
            found.append(Case("outside", side, outer, CLOSE * gaps[side]))
    return found


class _Recorded:
    """A result that notes which of its cells are read."""

    def __init__(self, tree: xr.DataTree) -> None:
        self.children, self.attrs = tree.children, tree.attrs
        self.read: dict[str, xr.DataTree] = {}

    def __getitem__(self, label: str) -> xr.DataTree:
        self.read[label] = self.children[label]
        return self.children[label]


def cells_read(statistic: Statistic, tree: xr.DataTree) -> xr.DataTree:
    """Return the part of a result that a statistic reads, with trials in order.

    Raises
    ------
    ValueError
        If the trials of a cell are not numbered from 0 on.
    """
    recorded: Any = _Recorded(tree)
    with resampling(1):
        statistic(recorded)
    groups = {label: node.to_dataset().sortby("trial") for label, node in recorded.read.items()}
    for label, group in groups.items():
        if group.trial.values.tolist() != list(range(group.sizes["trial"])):
            raise ValueError(f"{label}: trials are {group.trial.values}, expected 0, 1, 2, …")
    return tree_of(groups, tree)


def draw(tree: xr.DataTree, rng: np.random.Generator, apart: bool = False) -> xr.DataTree:
    """Draw trials with replacement, as many as there are, the same in all cells.

    Where cells differ in their number of trials, those that only the larger ones have are drawn
    among themselves. Pilots, which are no trials, stay as they are.

    Parameters
    ----------
    apart
        Draw for each cell anew.
    """
    groups = {label: node.to_dataset() for label, node in tree.children.items()}
    sizes = {label: g.sizes["trial"] for label, g in groups.items() if "candidate" not in g.dims}
    picked = _picked(sizes.values(), rng)
    for label, n in sizes.items():
        chosen = _picked([n], rng) if apart else picked[:n]
        groups[label] = groups[label].isel(trial=chosen).assign_coords(trial=np.arange(n))
    return tree_of(groups, tree)


def _picked(sizes: Iterable[int], rng: np.random.Generator) -> np.ndarray:
    cuts = [0, *sorted(set(sizes))]
    return np.concatenate([rng.integers(a, b, b - a) for a, b in pairwise(cuts)])


def with_value(
    population: Population, tree: xr.DataTree, statistic: Statistic, case: Case
) -> tuple[xr.DataTree, float]:
    """Return the population whose statistic has the value of a case, and what it has.

    Raises
    ------
    UnreachableError
        If there is none within what is near enough.
    """

    def at(amount: float) -> float:
        with resampling(1):
            return statistic(population.of(tree, amount)).value - case.value

    centre = brentq(at, *_bracket(at), xtol=1e-7, rtol=1e-7)
    best = min((centre, centre - 1e-6, centre + 1e-6), key=lambda amount: abs(at(amount)))
    if not abs(at(best)) <= case.within:
        raise UnreachableError(
            f"no population has {case.value:g} ({case.where}); the nearest has "
            f"{case.value + at(best):g}"
        )
    return population.of(tree, best), case.value + at(best)


def _bracket(at: Callable[[float], float]) -> tuple[float, float]:
    """Return two numbers between which a function changes its sign."""
    start, width = at(0.0), 0.25
    while width <= FARTHEST:
        for other in (width, -width):
            if at(other) * start <= 0:
                return (0.0, other)
        width *= 2
    raise UnreachableError("the statistic does not come to the wanted value, whatever is changed")


def measure(claim: Claim, tree: xr.DataTree, repeats: int, seed: int) -> dict[str, Any]:
    """Return a claim's entry of the table: how often each verdict came out in each case."""
    reading = primary(claim)
    entry = _heading(claim, reading)
    population = POPULATIONS[claim.id]
    if population is None:
        return entry | {"exact": True}

    def statistic(data: xr.DataTree) -> Estimate:
        return STATISTICS[claim.id](data, **reading.choices)

    part = cells_read(statistic, tree)
    sizes = {n.sizes["trial"] for n in part.children.values() if "candidate" not in n.sizes}
    rows = []
    for number, case in enumerate(cases(*claim.ranges_of(reading))):
        whole, value = with_value(population, part, statistic, case)
        rng = np.random.default_rng([seed, zlib.crc32(claim.id.encode()), number])
        with resampling(RESAMPLES):
            verdicts = [
                claim.judge(statistic(draw(whole, rng, population.apart)), reading)
                for _ in range(repeats if case.where == "edge" else repeats // 2)
            ]
        counts = {name: verdicts.count(name) for name in ("reproduced", "partly", "not reproduced")}
        rows.append({"where": case.where, "side": case.side, "value": value, "counts": counts})
    return entry | {"how": population.how, "trials": sorted(sizes), "cases": rows}


def primary(claim: Claim) -> Reading:
    """Return the reading whose verdict is the claim's."""
    return next(reading for reading in claim.readings if reading.primary)


def _heading(claim: Claim, reading: Reading) -> dict[str, Any]:
    """What an entry was measured for: it is out of date if the ledger says something else."""
    reproduced, partly = claim.ranges_of(reading)
    return {
        "reading": reading.name,
        "choices": dict(reading.choices),
        "reproduced": [_plain(end) for end in reproduced],
        "partly": [_plain(end) for end in partly],
    }


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def table(
    claims: Iterable[Claim], repeats: int, seed: int, report: Callable[[str], None] = print
) -> dict[str, Any]:
    """Return the entries of claims that have been run, by their ids."""
    trees: dict[str, xr.DataTree | None] = {}
    found: dict[str, Any] = {}
    for claim in claims:
        name = claim.experiment_of(primary(claim))
        if name and name not in trees:
            trees[name] = stored(name)
        tree = trees.get(name)
        started = time.process_time()
        if tree is None:
            why = f"{name or 'its experiment'} has no stored result with the present parameters"
            found[claim.id] = {"skipped": why}
        elif claim.id not in POPULATIONS:
            found[claim.id] = {"skipped": "no population is made up for it yet"}
        else:
            try:
                found[claim.id] = measure(claim, tree, repeats, seed)
            except UnreachableError as error:
                found[claim.id] = {"skipped": str(error)}
        report(_line(claim.id, found[claim.id], time.process_time() - started))
    return found


def _line(name: str, entry: dict[str, Any], seconds: float) -> str:
    if "skipped" in entry:
        return f"{name}: skipped, {entry['skipped']}"
    if "exact" in entry:
        return f"{name}: exact"
    words = ", ".join(f"{rate} {value:.1%}" for rate, value in rates_of(entry).items())
    return f"{name}: {words} ({seconds:.1f} s)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the table, and say which rates are too large."""
    parser = argparse.ArgumentParser(description="Measure the error rates of the ledger's rules.")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="these claims alone")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=ERROR_RATES)
    options = parser.parse_args(arguments)
    claims = ledger()
    if unknown := set(options.only) - {claim.id for claim in claims}:
        parser.error(f"no claims {', '.join(sorted(unknown))} in the ledger")
    chosen = [claim for claim in claims if claim.id in options.only or not options.only]
    found = table(chosen, options.repeats, options.seed, lambda line: print(line, flush=True))
    if options.only and options.output.exists():
        old = json.loads(options.output.read_text("utf-8"))["claims"]
        found = {c.id: {**old, **found}[c.id] for c in claims if c.id in {**old, **found}}
    record = {
        "commit": checkout.commit(),
        "repeats": options.repeats,
        "resamples": RESAMPLES,
        "seed": options.seed,
        "claims": found,
    }
    with replacing(options.output) as scratch:
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        scratch.write_text(text + "\n", "utf-8")
    wrong = {
        name: {rate: value for rate, value in rates_of(entry).items() if value >= LIMIT}
        for name, entry in found.items()
        if "cases" in entry
    }
    for name, rates in wrong.items():
        for rate, value in rates.items():
            print(f"{name}: {rate} is {value:.1%}, expected below {LIMIT:.0%}", file=sys.stderr)
    return int(any(wrong.values()))


if __name__ == "__main__":
    sys.exit(main())
