"""Comparing a chunk that was computed again with the stored result.

On another processor numbers differ by rounding. How far is measured (see `rounding`), and there are
two rules.

* *Stable* numbers agree within `FACTOR` times the spread that was measured.
* Where this would be as much as `CHAOTIC` of a variable's own variation over trials, the variable
  is *chaotic*: a rounding error decides what comes out. Its values in the chunk's trials are then
  compared with those in all other trials of the cell, by rank tests. Where the trials are too few
  for such a test, the variable is not compared.

A search for a setting has candidates, and which comes next can hang on a rounding error. It is
compared up to the first candidate that is another one; see `_compare_search`.

The first states of a chunk, which are one of its variables, are stable but where scores have 16
bits. They show that the program and its input are the same (see `runner.first_states`). Where a
rounding error may decide whether a particle moves, the states after the start may differ by `MOVES`
of their variation over trials: one particle in hundreds changes a mean by about a hundredth of it,
another stream of random numbers by about 1.4.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr
from scipy.stats import mannwhitneyu

from steinis_lib.companion.rounding import Spread, difference, spread_like
from steinis_lib.companion.runner import first_states
from steinis_lib.companion.tuning_records import FIELDS

RELATIVE, ABSOLUTE = 1e-6, 1e-9
"""What stable numbers may differ by in any case."""
FACTOR = 100.0
"""How many times the measured spread a tolerance is."""
CHAOTIC = 0.1
"""A number is chaotic where `FACTOR` spreads are more than this share of its variation."""
MOVES = 0.25
"""The share of their variation that first states may differ by, if decisions are in 32 bits."""
ALIKE = 2e-5
"""By what part the numbers of a candidate may differ; its score has six digits."""
FEW = 0.2
"""The share of candidates that must be alike: where HAIS is chaotic, half of them were."""
FIRST = 6
"""So many candidates of a search must be the same: no first grid is smaller."""
LEVEL = 4e-6
"""The level of each rank test: so many tests as a run has raise a false alarm with a probability
of at most their number times this."""


UNEQUAL = sys.float_info.max
"""The deviation of what is not a number on one side only, or not there. JSON has no infinity."""


@dataclass(frozen=True)
class Comparison:
    """What came of comparing a variable of a chunk, or the stable or chaotic part of it.

    Parameters
    ----------
    how
        "numbers": stable, within a tolerance. "distribution": chaotic, by rank tests. "none":
        chaotic, and the trials are too few.
    deviation
        By numbers: the largest difference in units of its tolerance. In distribution: log p of the
        smallest p in units of log `LEVEL`. In both cases more than 1 is a problem.
    problem
        What is wrong, for people; empty if nothing is.
    """

    variable: str
    how: Literal["numbers", "distribution", "none"]
    deviation: float = 0.0
    problem: str = ""


def compare(
    stored: xr.Dataset, fresh: xr.Dataset, spreads: Mapping[str, Spread]
) -> list[Comparison]:
    """Compare a freshly computed chunk with the stored result of its cell.

    Times, which are variables with the attribute ``units`` = "s", are not compared.

    Parameters
    ----------
    spreads
        Variable → its measured spread; 0 for those that are not there.
    """
    missing = sorted(set(fresh.trial.values.tolist()) - set(stored.trial.values.tolist()))
    if missing:
        return [Comparison("trial", "numbers", UNEQUAL, f"trials {missing} are not stored")]
    found: list[Comparison] = []
    if "candidate" in stored.dims and "candidate" in fresh.dims:
        found.append(_compare_search(stored.sel(trial=fresh.trial), fresh))
        stored, fresh = (d.drop_dims("candidate") for d in (stored, fresh))
    for name in sorted({*map(str, fresh.data_vars), *map(str, stored.data_vars)}):
        if name not in stored or name not in fresh:
            text = f"{name} is only in the {'fresh' if name in fresh else 'stored'} result"
            found.append(Comparison(name, "numbers", UNEQUAL, text))
        elif stored[name].attrs.get("units") != "s":
            found += _compare_variable(stored[name], fresh[name], spreads.get(name, 0.0))
    return found


def _compare_variable(
    stored: xr.DataArray, fresh: xr.DataArray, spread: Spread
) -> list[Comparison]:
    name = str(fresh.name)
    old = stored.sel(trial=fresh.trial)
    if dict(old.sizes) != dict(fresh.sizes):
        text = f"{name} is {dict(old.sizes)} in the stored result, {dict(fresh.sizes)} afresh"
        return [Comparison(name, "numbers", UNEQUAL, text)]
    chaotic = is_chaotic(stored, spread)
    allowed = (FACTOR * spread_like(spread, fresh)).where(~chaotic, 0.0)
    if first_states.DECISIONS in fresh.attrs:
        by_moves = _by_moves(stored)
        allowed = xr.where(by_moves > allowed, by_moves, allowed)
    found = []
    if not chaotic.all():
        found.append(_compare_numbers(old, fresh, allowed, chaotic))
    if chaotic.any():
        rest = stored.drop_sel(trial=fresh.trial)
        found.append(_compare_distributions(rest.where(chaotic), fresh.where(chaotic)))
    return found


def is_chaotic(stored: xr.DataArray, spread: Spread) -> xr.DataArray:
    """Say where a variable is chaotic, along the dimension for which its spread is kept apart."""
    allowed = FACTOR * spread_like(spread, stored)
    over = [d for d in stored.dims if d not in allowed.dims]
    size = abs(stored.astype(float)).where(np.isfinite(stored), 0.0).max(over)
    matters = allowed > ABSOLUTE + RELATIVE * size  # else it is within what is allowed anyway
    return matters & (allowed > CHAOTIC * variation(stored, allowed))


def variation(stored: xr.DataArray, like: xr.DataArray) -> xr.DataArray:
    """Return the standard deviation over all trials and dimensions but those of `like`.

    Of a single number it is that number's size.
    """
    finite = stored.astype(float).where(np.isfinite(stored))
    over = [d for d in stored.dims if d not in like.dims]
    if math.prod(stored.sizes[d] for d in over) == 1:
        return abs(finite).max(over).fillna(0.0)
    with np.errstate(over="ignore"):  # where a run diverged, it may be infinite
        return finite.std(over).fillna(0.0)


def _by_moves(stored: xr.DataArray) -> xr.DataArray:
    """Return what first states may differ by, as a few particles move otherwise; 0 at the start.

    Where all trials have the same numbers, a share of these is allowed.
    """
    over_trials = stored.std("trial")
    size = abs(stored).max("trial")
    allowed = MOVES * over_trials.where(over_trials > 0, size)
    start, _ = first_states.DIMENSIONS
    return allowed.where(xr.DataArray(np.arange(stored.sizes[start]) > 0, dims=start), 0.0)


def _compare_numbers(
    old: xr.DataArray, fresh: xr.DataArray, allowed: xr.DataArray, chaotic: xr.DataArray
) -> Comparison:
    """Compare stable numbers: those where `chaotic` is False."""
    size = abs(old.astype(float)).where(np.isfinite(old), 0.0)
    tolerance = ABSOLUTE + RELATIVE * size + allowed
    units = (difference(old, fresh) / tolerance).where(~chaotic, 0.0).transpose(*fresh.dims).values
    units = np.minimum(units, UNEQUAL)
    name, wrong = str(fresh.name), units > 1
    if not wrong.any():
        return Comparison(name, "numbers", float(units.max(initial=0.0)))
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = dict(zip(fresh.dims, first, strict=True))
    values = old.isel(place).item(), fresh.isel(place).item()
    text = (
        f"{name} differs in {int(wrong.sum())} of {wrong.size} numbers, first at {place}: "
        f"stored {values[0]!s}, afresh {values[1]!s}, tolerance "
        f"{tolerance.broadcast_like(fresh).isel(place).item():.3g}"
    )
    return Comparison(name, "numbers", float(units.max()), text)


def _compare_search(old: xr.Dataset, fresh: xr.Dataset) -> Comparison:
    """Compare the candidates of a search, up to the first one that is another setting.

    What a candidate was given must be the same. What came out must be alike for a share `FEW` of
    them at least, as those with large steps can be chaotic. Those that failed both times do not
    count.
    """
    columns = {str(v) for d in (old, fresh) for v in d.data_vars if "candidate" in d[v].dims}
    if alone := sorted(v for v in columns if v not in old or v not in fresh):
        text = f"{', '.join(alone)} of a search: only in one of the results"
        return Comparison("search", "numbers", UNEQUAL, text)
    n = min(old.sizes["candidate"], fresh.sizes["candidate"])

    def numbers(dataset: xr.Dataset, names: set[str]) -> np.ndarray:
        """What has these names, a row for each candidate."""
        parts = [dataset[v].transpose("candidate", ...).values[:n] for v in sorted(names)]
        return np.hstack([np.zeros((n, 0)), *(part.reshape(n, -1) for part in parts)])

    def alike(names: set[str]) -> np.ndarray:
        """Say of each candidate whether all its numbers of these names are alike."""
        pair = numbers(old, names), numbers(fresh, names)
        return np.isclose(*pair, ALIKE, ABSOLUTE, equal_nan=True).all(1)

    given, out = columns & {*FIELDS, "gradients"}, columns - {*FIELDS, "gradients"}
    same = alike(given)
    n_same = n if same.all() else int(same.argmin())
    if n_same < min(FIRST, n):
        text = f"candidate {n_same} of a search is another one than in the stored result"
        return Comparison("search", "numbers", UNEQUAL, text)
    scores = {"score"} & out or out
    worked = np.isfinite(np.hstack([numbers(d, scores) for d in (old, fresh)])).any(1)[:n_same]
    agree = alike(out)[:n_same] & worked
    share = agree.sum() / worked.sum() if worked.any() else 1.0
    deviation = FEW / share if share else UNEQUAL
    text = f"of {worked.sum()} candidates of a search only {agree.sum()} have the same numbers"
    return Comparison("search", "numbers", deviation, text if deviation > 1 else "")


def _compare_distributions(others: xr.DataArray, fresh: xr.DataArray) -> Comparison:
    """Compare a chunk's trials with all others by rank tests, of location and of dispersion.

    A trial's number is its mean over all other dimensions; NaN counts as the largest.
    """
    name = str(fresh.name)
    over = [d for d in fresh.dims if d != "trial"]
    here, there = (values.mean(over).fillna(np.inf).values for values in (fresh, others))
    if 2 / math.comb(len(here) + len(there), len(here)) > LEVEL:
        return Comparison(name, "none")
    tests = {"location": _rank_test(here, there)}
    if np.isfinite(centre := np.median(there)):
        tests["dispersion"] = _rank_test(abs(here - centre), abs(there - centre))
    which, p = min(tests.items(), key=lambda item: item[1])
    deviation = math.log(p) / math.log(LEVEL)
    text = (
        f"{name} is distributed otherwise than in the stored trials: {which}, p = {p:.2g}, "
        f"afresh {np.array2string(here, precision=4, threshold=8)}, median stored {centre:.4g}"
    )
    return Comparison(name, "distribution", deviation, text if deviation > 1 else "")


def _rank_test(here: np.ndarray, there: np.ndarray) -> float:
    """The exact p of the Mann-Whitney test. Ties are broken at random, which keeps it exact."""
    both = np.concatenate([here, there])
    at_random = np.random.default_rng(0).random(len(both))
    ranks = np.empty(len(both))
    ranks[np.lexsort((at_random, both))] = np.arange(len(both))
    return float(mannwhitneyu(ranks[: len(here)], ranks[len(here) :], method="exact").pvalue)
