"""Summaries of the convergence curves: decay, monotonicity, and dKL/dt against KSD²."""

from __future__ import annotations

import numpy as np
import xarray as xr

from steinis_lib.companion.intervals import Array, Estimate, median, share
from steinis_lib.companion.sections.s1_convergence.experiment import GMMConvergence, leaders_label

RISE = 1e-3
"""A curve rises where it exceeds its smallest value so far by this fraction. The quadrature behind
the curves is far better than that from 50 leaders on, and good to 0.2 % for 25, whose rises are
much larger."""


def steady_decades(curve: Array, time: Array) -> Array:
    """Return the most decades that each curve falls at a steady rate, ``(trials,)``.

    Over all stretches of the curve in which the local decay rate -d log₁₀(curve)/dt is positive
    and varies by a factor of two at most, the largest fall. An exponential scores all the decades
    that it covers; a stretch may begin anywhere, so that a transient does not count against it.
    """
    decades = np.zeros(len(curve))
    for i, values in enumerate(curve):
        log = np.log10(np.maximum(values, 1e-300))
        rate = -np.diff(log) / np.diff(time)
        for start in range(len(rate)):
            if log[start] - log[start:].min() <= decades[i]:
                continue  # no stretch from here can beat the best so far
            rest = rate[start:]
            slowest, fastest = np.minimum.accumulate(rest), np.maximum.accumulate(rest)
            steady = (slowest > 0) & (fastest <= 2 * slowest)
            length = len(rest) if steady.all() else int(steady.argmin())
            decades[i] = max(decades[i], log[start] - log[start + length])
    return decades


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


def rises(curve: Array) -> Array:
    """Return whether each curve ever rises above its smallest value so far, ``(trials,)``."""
    if not np.isfinite(curve).all():
        raise ValueError("a curve holds NaN or infinity; the stored result is damaged")
    lowest = np.minimum.accumulate(curve, axis=1)
    return np.asarray((curve > lowest + RISE * np.abs(lowest)).any(axis=1))


def rate_mismatch(group: xr.Dataset, discrepancy: str) -> Array:
    """Return ∫|dKL/dt + D| dt / ∫D dt for each trial; zero if dKL/dt = -D, ``(trials,)``."""
    gap = abs(group.kl_rate + group[discrepancy]).integrate("time")
    return (gap / abs(group[discrepancy]).integrate("time")).values


def _decades(tree: xr.DataTree, method: str, variable: str) -> Estimate:
    group = tree[method].to_dataset()
    return median(steady_decades(group[variable].values, group.time.values))


def kl_exponential_steinis(tree: xr.DataTree) -> Estimate:
    """Decades over which the followers' exact KL decays at a steady rate."""
    return _decades(tree, "steinis", "kl")


def kl_exponential_svgd(tree: xr.DataTree) -> Estimate:
    """The same for the density that SVGD's maps push q_0 to."""
    return _decades(tree, "svgd", "kl")


def ksd_exponential_steinis(tree: xr.DataTree) -> Estimate:
    """Decades over which the followers' exact KSD² decays at a steady rate."""
    return _decades(tree, "steinis", "ksd2")


def ksd_exponential_svgd(tree: xr.DataTree) -> Estimate:
    """The same for KSD² of SVGD's own particles (V-statistic)."""
    return _decades(tree, "svgd", "ksd2_leaders")


def kl_rate_is_ksd(tree: xr.DataTree) -> Estimate:
    """Relative mismatch between dKL/dt and -KSD² in the mean field."""
    return median(rate_mismatch(tree["mean-field"].to_dataset(), "ksd2"))


def kl_rate_is_ksd_followers(tree: xr.DataTree) -> Estimate:
    """Relative mismatch between dKL/dt and -KSD² for SteinIS's followers."""
    return median(rate_mismatch(tree["steinis"].to_dataset(), "ksd2"))


def kl_monotone_mean_field(tree: xr.DataTree) -> Estimate:
    """Share of trials whose mean-field KL rises somewhere."""
    return share(rises(tree["mean-field"].kl.values))


def kl_monotone_followers(tree: xr.DataTree) -> Estimate:
    """Share of trials in which the followers' KL rises somewhere, over the |A| that were run."""
    found = [rises(group.kl.values) for _, group in by_leader_count(tree)]
    return share(np.concatenate(found))


def by_leader_count(tree: xr.DataTree) -> list[tuple[int, xr.Dataset]]:
    """Return (|A|, curves) for all conditions that differ in |A| alone, smallest first."""
    p = GMMConvergence.model_validate_json(tree.attrs["parameters"])
    found = {m: tree[leaders_label(m)].to_dataset() for m in p.leader_counts}
    return sorted((found | {p.n_leaders: tree["steinis"].to_dataset()}).items())
