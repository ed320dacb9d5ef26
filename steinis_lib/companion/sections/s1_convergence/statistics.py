"""Summaries of the convergence curves: decay, monotonicity, and dKL/dt against KSD²."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import xarray as xr

from steinis_lib.companion.intervals import Array, Estimate, bootstrap, share
from steinis_lib.companion.sections.s1_convergence.experiment import GMMConvergence, leaders_label

K = TypeVar("K")
V = TypeVar("V")

RISE = 1e-3
"""A curve rises where it exceeds its smallest value so far by this fraction. The quadrature behind
the curves is far better than that from 50 leaders on, and good to 0.2 % for 25, whose rises are
much larger."""
TENTHS = 10
"""Parts of a stretch whose rates are compared."""
SHORTEST = 5
"""Recorded intervals of the shortest stretch that counts."""
FIGURE_2 = 200
"""|A| of the paper's Figure 2."""


def steady_decades(curve: Array, time: Array) -> Array:
    """Return the most decades that each curve falls in one stretch at a steady rate, ``(trials,)``.

    The rate is steady if the curve falls in each tenth of the stretch, and no tenth has more than
    twice the mean rate -d log₁₀(curve)/dt of another. An exponential scores all the decades that it
    covers, down to its floor. A stretch may begin at any recorded time, so that a transient does
    not count against a curve. It spans five recorded intervals at least, with straight lines
    between recorded logarithms, and no value in it is zero or negative. A power law (1 + t/τ)⁻ᵖ
    scores 0.34 p where recorded times are dense, and 0.39 p at most.
    """
    _need_finite(curve)
    positive = curve > 0
    log = np.log10(np.where(positive, curve, 1.0))
    n_bad = np.concatenate([np.zeros((len(curve), 1), int), (~positive).cumsum(1)], 1)
    decades = np.zeros(len(curve))
    for length in range(SHORTEST, len(time)):
        first = np.arange(len(time) - length)
        edges = first[:, None] + np.arange(TENTHS + 1) * length / TENTHS
        falls = -np.diff(_between(log, edges), axis=-1)
        rates = falls / np.diff(_between(time[None], edges), axis=-1)
        steady = (rates.min(-1) > 0) & (rates.max(-1) <= 2 * rates.min(-1))
        steady &= n_bad[:, first + length + 1] == n_bad[:, first]
        decades = np.maximum(decades, np.where(steady, falls.sum(-1), 0).max(-1))
    return decades


def _between(values: Array, at: Array) -> Array:
    """Return ``(trials, times)`` at places between times, linearly; ``(trials, *at.shape)``."""
    left = np.minimum(at.astype(int), values.shape[1] - 2)
    part = at - left
    return np.asarray((1 - part) * values[:, left] + part * values[:, left + 1])


def first_decade(curve: Array, time: Array) -> tuple[Array, Array, Array]:
    """Fit log(curve) = a - λt from its peak until it has fallen tenfold, or to the end.

    Returns
    -------
    rate, r_squared, reached
        λ per unit time, the fit's R², and whether the tenfold fall was reached; ``(trials,)``.
    """
    rate, r_squared = np.empty(len(curve)), np.empty(len(curve))
    reached = np.empty(len(curve), dtype=bool)
    for i, values in enumerate(curve):
        start = int(values[:-1].argmax())
        below = np.flatnonzero(values[start:] < values[start] / 10)
        reached[i] = len(below) > 0
        stop = start + max(int(below[0]) + 1, 3) if reached[i] else len(values)
        t, log = time[start:stop], np.log(np.maximum(values[start:stop], 1e-300))
        slope, intercept = np.polyfit(t, log, 1)
        residual = log - (slope * t + intercept)
        rate[i] = -slope
        r_squared[i] = 1 - residual.var() / max(log.var(), 1e-300)
    return rate, r_squared, reached


def rises(curve: Array, tolerance: float = RISE) -> Array:
    """Return whether each curve ever rises above its smallest value so far, ``(trials,)``."""
    _need_finite(curve)
    lowest = np.minimum.accumulate(curve, axis=1)
    return np.asarray((curve > lowest + tolerance * np.abs(lowest)).any(axis=1))


def _need_finite(curve: Array) -> None:
    if not np.isfinite(curve).all():
        raise ValueError("a curve holds NaN or infinity; the stored result is damaged")


def rate_mismatch(group: xr.Dataset, discrepancy: str) -> Array:
    """Return ∫|dKL/dt + D| dt / ∫D dt for each trial; zero if dKL/dt = -D, ``(trials,)``."""
    gap = abs(group.kl_rate + group[discrepancy]).integrate("time")
    return (gap / abs(group[discrepancy]).integrate("time")).values


def decades_of_kl(
    tree: xr.DataTree,
    *,
    system: str,
    kernel: str = "better",
    measure: str = "exact",
    leaders: int = FIGURE_2,
    target: str = "standard",
    until: int = 60,
) -> Estimate:
    """Decades over which KL(q_t‖p) decays at a steady rate, median over trials.

    Parameters
    ----------
    system, kernel, leaders, target, until
        Which runs; see `runs`. With the better kernel, the largest median counts.
    measure
        exact, by quadrature; or followers, estimated from them.
    """
    variable = _one_of("measure", measure, {"exact": "kl", "followers": "kl_followers"})
    return _decades(runs(tree, system, kernel, leaders, target, until), variable)


def decades_of_ksd(
    tree: xr.DataTree,
    *,
    system: str,
    kernel: str = "better",
    measure: str = "particles",
    leaders: int = FIGURE_2,
    target: str = "standard",
    until: int = 60,
) -> Estimate:
    """Decades over which the squared Stein discrepancy decays at a steady rate, as for KL.

    Parameters
    ----------
    measure
        particles, the V-statistic of those that build the maps (SVGD's particles, SteinIS's
        leaders); exact, of the density q_t; or followers, the U-statistic of these.
    """
    variable = _one_of(
        "measure", measure,
        {"particles": "ksd2_leaders", "exact": "ksd2", "followers": "ksd2_followers"},
    )  # fmt: skip
    return _decades(runs(tree, system, kernel, leaders, target, until), variable)


def _decades(groups: list[xr.Dataset], variable: str) -> Estimate:
    """Return the largest median of all groups; trials are resampled together."""
    each = [steady_decades(group[variable].values, group.time.values) for group in groups]
    value, low, high = bootstrap(np.stack(each, -1), lambda x: np.median(x, axis=0).max())
    return Estimate(float(value), float(low), float(high))


def kl_rate_is_ksd(
    tree: xr.DataTree, *, system: str = "mean-field", kernel: str = "rule", measure: str = "exact"
) -> Estimate:
    """Relative mismatch between dKL/dt and a discrepancy, median over trials.

    Parameters
    ----------
    measure
        exact, KSD² of q_t; particles, their V-statistic; or cross, the mean of κ_p over leaders
        and q_t, which is the exact law for given leaders.
    """
    variable = _one_of(
        "measure", measure, {"exact": "ksd2", "particles": "ksd2_leaders", "cross": "ksd2_cross"}
    )
    found = [rate_mismatch(group, variable) for group in runs(tree, system, kernel)]
    value, low, high = bootstrap(np.stack(found, -1), lambda x: np.median(x, axis=0).min())
    return Estimate(float(value), float(low), float(high))


def kl_rises(
    tree: xr.DataTree,
    *,
    system: str,
    kernel: str = "rule",
    measure: str = "exact",
    leaders: int = FIGURE_2,
    tolerance: float = RISE,
    until: int = 60,
) -> Estimate:
    """Share of trials in which KL rises somewhere; with the better kernel, the smallest share."""
    variable = _one_of("measure", measure, {"exact": "kl", "followers": "kl_followers"})
    groups = runs(tree, system, kernel, leaders, until=until)
    found = [share(rises(group[variable].values, tolerance)) for group in groups]
    return min(found, key=lambda e: e.value)


def runs(
    tree: xr.DataTree,
    system: str,
    kernel: str = "rule",
    leaders: int = FIGURE_2,
    target: str = "standard",
    until: int = 60,
) -> list[xr.Dataset]:
    """Return the runs that a reading chooses: one, or one for each kernel.

    Parameters
    ----------
    system
        steinis, svgd or mean-field.
    kernel
        rule, double or wide; or better: those of rule and wide, of which the better one counts.
    leaders
        |A| of SteinIS.
    target
        standard, or easy: means closer together.
    until
        t at the end.

    Raises
    ------
    ValueError
        If the result has no such runs.
    """
    base = system if leaders == FIGURE_2 else leaders_label(leaders)
    changed = _one_of("target", target, {"standard": "", "easy": "-easy"})
    changed += _one_of("until", until, {60: "", 200: "-long"})
    suffixes = {"rule": [""], "double": ["-double"], "wide": ["-wide"], "better": ["", "-wide"]}
    names = [f"{base}{suffix}{changed}" for suffix in _one_of("kernel", kernel, suffixes)]
    if missing := [name for name in names if name not in tree.children]:
        raise ValueError(f"there are no runs {missing}; the result has {list(tree.children)}")
    return [tree[name].to_dataset() for name in names]


def _one_of(axis: str, value: K, known: Mapping[K, V]) -> V:
    if value not in known:
        raise ValueError(f"{axis}: expected one of {list(known)}, got {value!r}")
    return known[value]


def by_leader_count(tree: xr.DataTree) -> list[tuple[int, xr.Dataset]]:
    """Return (|A|, curves) for all conditions that differ in |A| alone, smallest first."""
    p = GMMConvergence.model_validate_json(tree.attrs["parameters"])
    found = {m: tree[leaders_label(m)].to_dataset() for m in p.leader_counts}
    return sorted((found | {p.n_leaders: tree["steinis"].to_dataset()}).items())
