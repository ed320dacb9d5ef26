"""Summaries of running times: Table 1, its extrapolation, exponents, and error per second."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from steinis_lib.companion.intervals import Array, Estimate, bootstrap, median
from steinis_lib.companion.sections.s5_likelihood import statistics as vae_likelihood
from steinis_lib.companion.sections.s5_likelihood.problem import EXACT_UP_TO
from steinis_lib.companion.sections.s6_running_time.cost_growth import GROWTH
from steinis_lib.companion.sections.s6_running_time.experiment import RunningTime, table_label

Pick = Callable[[Array], Any]

PAPER = {
    "steinis": {10: 224.40, 20: 226.17, 50: 261.76},
    "hais-10l": {10: 600.15, 20: 691.86, 50: 755.44},
    "hais-1l": {10: 157.76, 20: 223.30, 50: 256.23},
    "ais": {10: 146.75, 20: 206.89, 50: 230.14},
}
"""Table 1, seconds."""
TRANSITIONS, IMAGES = 1000, 1000
"""What seconds are given for, as in the paper."""
LAST = 3
"""Exponents are fitted to so many sizes, the largest."""
CLAIMED = ("growth-leaders", "growth-followers", "growth-exact")
"""The growths that the formula's exponents are judged by: 2 in |A|, 1 in |B|, 3 in d."""
TIMED = {"first-order": "steinis", "exact": "steinis-exact"}
"""Determinants of SteinIS → the timing with them."""


def dims(tree: xr.DataTree) -> list[int]:
    """Return the latent dimensions of a result, rising."""
    return list(_parameters(tree).latent_dims)


def _seconds(tree: xr.DataTree, method: str, dim: int) -> tuple[Array, Array]:
    """Return numbers of transitions ``(k,)`` and seconds of runs, ``(trials, k)``."""
    found = tree[table_label(dim)].to_dataset().seconds.sel({"method": method})
    return found.transitions.values, found.transpose("trial", "transitions").values


def per_transition(tree: xr.DataTree, method: str, dim: int) -> Array:
    """Return seconds per transition of the longest runs, for the whole batch, ``(trials,)``."""
    k, seconds = _seconds(tree, method, dim)
    return np.asarray(seconds[:, -1] / k[-1])


def per_image(tree: xr.DataTree, method: str, dim: int) -> Array:
    """Return seconds per transition and image, ``(trials,)``."""
    return np.asarray(per_transition(tree, method, dim) / _parameters(tree).n_images)


def whole(tree: xr.DataTree, method: str, dim: int) -> Estimate:
    """Return seconds for 1000 transitions and 1000 images, extrapolated; median over trials."""
    return median(per_image(tree, method, dim) * TRANSITIONS * IMAGES)


def ratios(tree: xr.DataTree, ours: str, theirs: str, dim: int) -> Array:
    """Return seconds of `ours` over those of `theirs` in the same trial, ``(trials,)``."""
    return np.asarray(per_transition(tree, ours, dim) / per_transition(tree, theirs, dim))


def ratio(tree: xr.DataTree, ours: str, theirs: str, dim: int) -> Estimate:
    """Return the median over trials of `ratios`."""
    return median(ratios(tree, ours, theirs, dim))


def time_table(
    tree: xr.DataTree,
    *,
    method: str = "all",
    d: int | str = "all",
    determinant: str = "first-order",
) -> Estimate:
    """Return the largest factor between our ratios to HAIS-1L and those of the paper's Table 1.

    A factor is at least 1: a ratio that is half the paper's is off by a factor of two, as one that
    is twice the paper's is. Trials are resampled for all ratios together.

    Parameters
    ----------
    method
        steinis, hais-10l, ais, or all of them.
    d
        A latent dimension, or all.
    determinant
        Of SteinIS: first-order or exact.
    """
    methods = [name for name in PAPER if name != "hais-1l"] if method == "all" else [method]
    logs = []
    for dim in dims(tree) if d == "all" else [int(d)]:
        for name in methods:
            ours = TIMED[determinant] if name == "steinis" else name
            paper = PAPER[name][dim] / PAPER["hais-1l"][dim]
            logs.append(np.log(ratios(tree, ours, "hais-1l", dim) / paper))
    return _bootstrap(np.stack(logs, -1), lambda x: np.exp(np.abs(np.median(x, axis=0)).max()))


def time_comparable(
    tree: xr.DataTree, *, d: int | str = "worst", determinant: str = "first-order"
) -> Estimate:
    """Return seconds of SteinIS over those of HAIS-1L.

    Parameters
    ----------
    d
        A latent dimension; worst, the one at which the ratio is farthest from 1, up or down; or
        mean, the geometric mean over all.
    determinant
        first-order or exact.
    """
    picks: dict[str, Pick] = {"worst": _farthest_from_zero, "mean": np.mean}
    return _over_dims(tree, TIMED[determinant], "hais-1l", d, picks)


def ten_to_steinis(
    tree: xr.DataTree, *, d: int | str = "worst", determinant: str = "first-order"
) -> Estimate:
    """Return seconds of HAIS-10L over those of SteinIS.

    Parameters
    ----------
    d
        A latent dimension; worst, the one at which the ratio is smallest; or mean, the geometric
        mean over all.
    determinant
        first-order or exact.
    """
    return _over_dims(tree, "hais-10l", TIMED[determinant], d, {"worst": np.min, "mean": np.mean})


def _farthest_from_zero(logs: Array) -> float:
    return float(logs[np.abs(logs).argmax()])


def _over_dims(
    tree: xr.DataTree, ours: str, theirs: str, d: int | str, picks: Mapping[str, Pick]
) -> Estimate:
    """Return the median ratio at one d, or what `picks` makes of its logarithms at all."""
    chosen = dims(tree) if d in picks else [int(d)]
    logs = np.stack([np.log(ratios(tree, ours, theirs, dim)) for dim in chosen], -1)
    pick = picks.get(str(d), np.mean)
    return _bootstrap(logs, lambda x: np.exp(pick(np.median(x, axis=0))))


def _bootstrap(trials: Array, summary: Pick) -> Estimate:
    value, low, high = bootstrap(trials, summary)
    return Estimate(float(value), float(low), float(high))


def linearity(tree: xr.DataTree, method: str, dim: int) -> Estimate:
    """Return the cost of a transition in the longest over that in the shortest runs."""
    k, seconds = _seconds(tree, method, dim)
    each = seconds / k
    return median(each[:, -1] / each[:, 0])


def line(tree: xr.DataTree, method: str, dim: int) -> tuple[Estimate, Estimate]:
    """Fit seconds = slope × transitions + intercept in each trial; return medians of both."""
    k, seconds = _seconds(tree, method, dim)
    slope, intercept = np.polyfit(k, seconds.T, 1)
    return median(slope), median(intercept)


def evaluations(tree: xr.DataTree, method: str, dim: int) -> float:
    """Return decoder evaluations per transition and image, as counted."""
    found = tree[table_label(dim)].to_dataset().evaluations.sel({"method": method})
    each = (found / found.transitions).values
    if not np.all(each == each.flat[0]):
        raise ValueError(f"{method}, d = {dim}: evaluations per transition differ between runs")
    return float(each.flat[0])


def growth(tree: xr.DataTree, label: str) -> tuple[Array, Array]:
    """Return sizes ``(k,)``, and seconds for one transition, or score, ``(trials, k)``."""
    found = tree[label].to_dataset().seconds.transpose("trial", "size")
    return found["size"].values, found.values


def typical(seconds: Array) -> tuple[Array, Array, Array]:
    """Return the median over trials with a 95 % interval, each ``(k,)``."""
    return bootstrap(seconds, lambda x: np.median(x, axis=0))


def exponent(tree: xr.DataTree, label: str) -> Estimate:
    """Return the exponent at the large end: of median seconds, over the `LAST` sizes."""
    sizes, seconds = growth(tree, label)
    return _bootstrap(seconds, lambda x: _slope(sizes, np.median(x, axis=0)))


def formula(label: str, sizes: Array) -> Array:
    """Return |A|α(d) + |A|²β(d) + |A||B|β(d), + |B|d³ where exact, with α(d) = β(d) = d.

    For "growth-score", α(d) = d alone; that is what the paper calls typical.
    """
    if label not in GROWTH:
        return np.asarray(sizes, dtype=float)
    costs = []
    for size in sizes:
        a, b, d = GROWTH[label].at(int(size))
        cubic = b * d**3 if GROWTH[label].determinant == "exact" else 0
        costs.append(a * d + a * a * d + a * b * d + cubic)
    return np.array(costs, dtype=float)


def formula_exponent(label: str, sizes: Array) -> float:
    """Return the exponent that a fit to the formula itself gives at the same sizes."""
    return float(_slope(sizes, formula(label, sizes)))


def cost_formula(tree: xr.DataTree, *, term: str = "all", bound: str = "above") -> Estimate:
    """Return the largest difference between a measured exponent and the formula's.

    Parameters
    ----------
    term
        What is varied: leaders, followers, exact (d³), dim (β(d)) or score (α(d)); or all of the
        first three, which are the formula's terms.
    bound
        above, because O(·) is an upper bound: only an exponent above the formula's contradicts it,
        and the difference is negative where all are below; or both, where its size counts.
    """
    labels = CLAIMED if term == "all" else (f"growth-{term}",)
    both = [growth(tree, label) for label in labels]
    expected = [formula_exponent(n, sizes) for n, (sizes, _) in zip(labels, both, strict=True)]

    def summary(picked: Array) -> Array:
        found = [_slope(sizes, np.median(seconds[picked], axis=0)) for sizes, seconds in both]
        off = np.array(found) - expected
        return np.asarray((np.abs(off) if bound == "both" else off).max())

    return _bootstrap(np.arange(len(both[0][1])), summary)


def batch_ratio(tree: xr.DataTree, label: str) -> Estimate:
    """Return the cost per image in the largest batch over that in the one nearest to Table 1's."""
    sizes, seconds = growth(tree, label)
    near = int(np.argmin(np.abs(np.log(sizes / _parameters(tree).n_images))))
    each = seconds / sizes
    return median(each[:, -1] / each[:, near])


def timed_as(method: str, dim: int) -> str:
    """Return the timing that goes with a method of experiment `vae`, and its determinants."""
    if method.startswith("steinis"):
        return "steinis-exact" if dim <= EXACT_UP_TO else "steinis"
    return method


def error_against_time(
    tree: xr.DataTree, likelihood: xr.DataTree, method: str, dim: int
) -> tuple[Array, Array]:
    """Return seconds per image ``(k,)`` and errors of log p̂(x) from the prior, ``(images, k)``.

    `likelihood` is the result of experiment `vae`; seconds are transitions times the median time
    of one.
    """
    k, error = vae_likelihood.errors(likelihood, "prior", method, dim)
    return k * float(np.median(per_image(tree, timed_as(method, dim), dim))), error


def seconds_until(seconds: Array, error: Array, nats: float = 1.0) -> float | None:
    """Return the first of `seconds` at which the RMS error is below `nats`, if there is one."""
    reached = np.flatnonzero(vae_likelihood.rms_error(error)[0] < nats)
    return float(seconds[reached[0]]) if len(reached) else None


def error_at(seconds: Array, error: Array, at: float) -> Estimate | None:
    """Return the RMS error after `at` seconds, on a log-log line between neighbours.

    None if that lies outside of what was run.
    """
    if not seconds[0] <= at <= seconds[-1] * (1 + 1e-12):
        return None

    def summary(x: Array) -> Array:
        rms = np.sqrt(np.square(x).mean(0))
        return np.asarray(np.exp(np.interp(np.log(at), np.log(seconds), np.log(rms))))

    return _bootstrap(error, summary)


def _parameters(tree: xr.DataTree) -> RunningTime:
    return RunningTime.model_validate_json(tree.attrs["parameters"])


def _slope(sizes: Array, seconds: Array) -> Array:
    x, y = np.log(sizes[-LAST:]), np.log(seconds[-LAST:])
    x = x - x.mean()
    return np.asarray((x * y).sum() / (x * x).sum())
