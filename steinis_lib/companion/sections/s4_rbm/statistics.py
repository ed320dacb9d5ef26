"""Summaries of the RBM's log Ẑ: errors of each method, and their ratios.

A *measure* reduces the errors of a method over trials to one number that is small where the method
is good:

* "rmse": the root mean square error, which a few trials dominate,
* "median": the median of |error|,
* "mean": |mean error|, where errors of opposite sign cancel,
* "missed": the share of trials that are off by more than half a nat.

Ratios compare two methods on the same models, so trials are resampled in pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr

from steinis_lib.companion.intervals import Array, Estimate, bootstrap
from steinis_lib.companion.sections.s4_rbm import experiment
from steinis_lib.companion.sections.s4_rbm.experiment import label
from steinis_lib.companion.sections.s4_rbm.problem import RBMPartition
from steinis_lib.companion.settings import FAMILIES

KERNELS = {
    "rule": "steinis",
    "double": "steinis-double",
    "wide": "steinis-wide",
    "adagrad": "steinis-adagrad",
    "leaders": "steinis-leaders",
}
"""The choice `kernel` of a reading → the method."""
REFRESH = {"full": "hais-1l", "partial": "hais-1l-partial"}
"""The choice `refresh` of a reading → the method."""
LANGEVIN = {"ratio": "ais", "plain": "ais-unadjusted"}
"""The choice `langevin` of a reading → the method."""
CLOSE = 0.5
"""Nats. A few trials dominate mean errors; the share of errors below this does not depend on
them."""


def _rmse(values: Array) -> Array:
    return np.asarray(np.sqrt(np.square(values).mean(0)))


def _median(values: Array) -> Array:
    return np.asarray(np.median(np.abs(values), axis=0))


def _mean(values: Array) -> Array:
    return np.asarray(np.abs(values.mean(0)))


def _missed(values: Array) -> Array:
    """Half a trial is added, so that ratios and logs exist where no trial is off."""
    off = np.abs(values) > CLOSE
    return np.asarray((off.sum(0) + 0.5) / (len(values) + 1))


MEASURES: dict[str, Callable[[Array], Array]] = {
    "rmse": _rmse,
    "median": _median,
    "mean": _mean,
    "missed": _missed,
}
"""The choice `measure` of a reading → errors ``(trials, …)`` to a number for each column."""


def group(tree: xr.DataTree, condition: str, method: str, dim: int) -> xr.Dataset:
    """Return one method's results in one cell."""
    return tree[label(condition, method, dim)].to_dataset()


def parameters(tree: xr.DataTree) -> RBMPartition:
    """Return the parameters that a result was computed with."""
    return RBMPartition.model_validate_json(tree.attrs["parameters"])


def dims(tree: xr.DataTree) -> list[int]:
    """Return the d of condition "standard" at which methods are tuned, rising."""
    return list(parameters(tree).dims)


def all_dims(tree: xr.DataTree, method: str) -> list[int]:
    """Return every d of condition "standard" at which a method was run, rising."""
    p = parameters(tree)
    return [d for d in experiment.all_dims(p) if method in experiment.methods(p, "standard", d)]


def errors(tree: xr.DataTree, condition: str, method: str, dim: int) -> tuple[Array, Array]:
    """Return numbers of transitions ``(k,)`` and errors of log Ẑ in nats, ``(trials, k)``."""
    found = group(tree, condition, method, dim)
    return found.transitions.values, found.error.transpose("trial", "transitions").values


def rmse(values: Array) -> tuple[Array, Array, Array]:
    """Return the root mean square over trials with a 95 % bootstrap interval, each ``(k,)``."""
    return bootstrap(values, _rmse)


def median_error(values: Array) -> tuple[Array, Array, Array]:
    """Return the median of |error| over trials with a 95 % bootstrap interval, each ``(k,)``."""
    return bootstrap(values, _median)


def ratio(
    tree: xr.DataTree,
    ours: Sequence[str],
    theirs: str,
    *,
    start: str = "standard",
    measure: str = "rmse",
    transitions: str | int = "all",
    d: str | int = "largest",
) -> Estimate:
    """Return measure(ours)/measure(theirs) with its interval over trials.

    Parameters
    ----------
    ours
        Methods, of which the one with the smallest ratio is taken.
    start
        The condition.
    measure
        One of `MEASURES`.
    transitions
        "all": the geometric mean over the numbers of transitions at which both methods were run;
        "best": the one of them at which the ratio is smallest; "last": the largest; or a number.
    d
        "largest"; a number; or over all d at which methods are tuned, for "last" transitions only,
        "worst": the largest ratio, or "mean": the geometric mean.

    Raises
    ------
    ValueError
        If a choice is none of these, or no result has that number of transitions or that d.
    """
    if measure not in MEASURES:
        raise ValueError(f"measure must be one of {', '.join(MEASURES)}; got {measure!r}")
    if isinstance(transitions, str) and transitions not in ("all", "best", "last"):
        raise ValueError(f"transitions must be all, best, last or a number; got {transitions!r}")
    if d in ("worst", "mean") and transitions != "last":
        raise ValueError(f"d {d} needs transitions 'last', the only ones that every d has")

    def summary(pairs: Array) -> Array:
        measured = np.log(MEASURES[measure](pairs))  # (d, k, 2)
        return np.exp(_reduced(measured[..., 0] - measured[..., 1], transitions, d))

    paired = [_paired(tree, one, theirs, start, transitions, d) for one in ours]
    best = min(paired, key=lambda pairs: float(summary(pairs)))
    value, low, high = bootstrap(best, summary)
    return Estimate(float(value), float(low), float(high))


def steinis_to_hais(
    tree: xr.DataTree,
    kernel: str = "better",
    refresh: str = "full",
    start: str = "standard",
    measure: str = "rmse",
    transitions: str | int = "all",
    d: str | int = "largest",
) -> Estimate:
    """Return the error of SteinIS over that of HAIS-1L."""
    ours, theirs = _kernels(kernel), _one(REFRESH, "refresh", refresh)
    return ratio(tree, ours, theirs, start=start, measure=measure, transitions=transitions, d=d)


def steinis_to_hais_across_d(
    tree: xr.DataTree,
    kernel: str = "better",
    refresh: str = "full",
    measure: str = "rmse",
    d: str | int = "worst",
) -> Estimate:
    """Return the error of SteinIS over that of HAIS-1L, both after all transitions."""
    return steinis_to_hais(tree, kernel, refresh, measure=measure, transitions="last", d=d)


def ais_to_steinis(
    tree: xr.DataTree,
    kernel: str = "better",
    langevin: str = "ratio",
    start: str = "standard",
    measure: str = "rmse",
    transitions: str | int = "all",
    d: str | int = "largest",
) -> Estimate:
    """Return the error of AIS over that of SteinIS, so that large means: SteinIS does better.

    "best" transitions are those at which AIS does worst in comparison.
    """
    inverse = [
        ratio(
            tree, _kernels(kernel), one, start=start, measure=measure, transitions=transitions, d=d
        )
        for one in _langevin(langevin)
    ]
    return min(map(_inverse, inverse), key=lambda e: e.value)


def ais_to_hais(
    tree: xr.DataTree,
    refresh: str = "full",
    langevin: str = "ratio",
    start: str = "standard",
    measure: str = "rmse",
    transitions: str | int = "all",
    d: str | int = "largest",
) -> Estimate:
    """Return the error of AIS over that of HAIS-1L."""
    theirs = _one(REFRESH, "refresh", refresh)
    return ratio(
        tree, _langevin(langevin), theirs,
        start=start, measure=measure, transitions=transitions, d=d,
    )  # fmt: skip


def _one(options: dict[str, str], name: str, value: str) -> str:
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(options)}; got {value!r}")
    return options[value]


def _kernels(kernel: str) -> Sequence[str]:
    """The methods of a choice; "better" is the best of the four families."""
    return FAMILIES if kernel == "better" else (_one(KERNELS, "kernel", kernel),)


def _langevin(langevin: str) -> Sequence[str]:
    """The methods of a choice; "better" is the better of both."""
    if langevin == "better":
        return tuple(LANGEVIN.values())
    return (_one(LANGEVIN, "langevin", langevin),)


def _inverse(estimate: Estimate) -> Estimate:
    return Estimate(1 / estimate.value, 1 / estimate.high, 1 / estimate.low)


def _paired(
    tree: xr.DataTree, one: str, other: str, start: str, transitions: str | int, d: str | int
) -> Array:
    """Return errors of two methods in the same trials, ``(trials, d, transitions, 2)``."""
    places = dims(tree) if d in ("worst", "mean") else [dims(tree)[-1] if d == "largest" else d]
    columns: list[list[Array]] = []
    for dim in places:
        pair = [errors(tree, start, method, int(dim)) for method in (one, other)]
        both = [int(k) for k in pair[0][0] if k in pair[1][0]]
        chosen = both[-1:] if transitions == "last" else both
        if isinstance(transitions, int):
            if transitions not in both:
                raise ValueError(f"{one} and {other} were run with {both} transitions at d = {dim}")
            chosen = [transitions]
        columns.append([e[:, [list(k).index(c) for c in chosen]] for k, e in pair])
    n = min(len(e) for pair in columns for e in pair)
    return np.stack([np.stack([e[:n] for e in pair], -1) for pair in columns], 1)


def _reduced(log_ratio: Array, transitions: str | int, d: str | int) -> Array:
    """Reduce log ratios ``(d, k)`` over transitions, then over d."""
    over_k = log_ratio.min(-1) if transitions == "best" else log_ratio.mean(-1)
    return np.asarray(over_k.max() if d == "worst" else over_k.mean())
