"""Summaries of the RBM's log Ẑ: root mean square errors, medians, quantiles, and their ratios."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from steinis_lib.companion.intervals import Array, Estimate, bootstrap
from steinis_lib.companion.sections.s4_rbm.experiment import RBMPartition, label

STEINIS = ("steinis", "steinis-wide")
AIS = ("ais", "ais-unadjusted")
CLOSE = 0.5
"""Nats. A few trials dominate mean errors; the share of errors below this does not depend on
them."""


def group(tree: xr.DataTree, condition: str, method: str, dim: int) -> xr.Dataset:
    """Return one method's results in one cell."""
    return tree[label(condition, method, dim)].to_dataset()


def dims(tree: xr.DataTree) -> list[int]:
    """Return the d of condition "standard", rising."""
    return list(RBMPartition.model_validate_json(tree.attrs["parameters"]).dims)


def errors(tree: xr.DataTree, condition: str, method: str, dim: int) -> tuple[Array, Array]:
    """Return numbers of transitions ``(k,)`` and errors of log Ẑ in nats, ``(trials, k)``."""
    found = group(tree, condition, method, dim)
    return found.transitions.values, found.error.transpose("trial", "transitions").values


def rmse(values: Array) -> tuple[Array, Array, Array]:
    """Return the root mean square over trials with a 95 % bootstrap interval, each ``(k,)``."""
    return bootstrap(values, _rmse)


def median_error(values: Array) -> tuple[Array, Array, Array]:
    """Return the median of |error| over trials with a 95 % bootstrap interval, each ``(k,)``."""
    return bootstrap(np.abs(values), lambda x: np.median(x, axis=0))


def rmse_ratio(tree: xr.DataTree, ours: str, theirs: str, condition: str = "standard") -> Estimate:
    """Return RMSE(ours)/RMSE(theirs) at the largest d, the geometric mean over transitions.

    Methods meet the same models, so trials are resampled in pairs.
    """
    dim = dims(tree)[-1]
    (a, one), (b, other) = (errors(tree, condition, method, dim) for method in (ours, theirs))
    both = [k for k in a if k in b]
    n = min(len(one), len(other))
    pair = np.stack([
        one[:n, [list(a).index(k) for k in both]], other[:n, [list(b).index(k) for k in both]]
    ], -1)  # fmt: skip

    def summary(x: Array) -> Array:
        log = np.log(_rmse(x))
        return np.asarray(np.exp((log[:, 0] - log[:, 1]).mean()))

    value, low, high = bootstrap(pair, summary)
    return Estimate(float(value), float(low), float(high))


def steinis_to_hais(tree: xr.DataTree) -> Estimate:
    """RMSE of the better family of SteinIS over that of HAIS-1L with full refresh."""
    return _smallest([rmse_ratio(tree, name, "hais-1l") for name in STEINIS])


def ais_to_slower(tree: xr.DataTree) -> Estimate:
    """RMSE of the better AIS over that of SteinIS or HAIS-1L, whichever is the nearer."""
    to_hais = _smallest([rmse_ratio(tree, name, "hais-1l") for name in AIS])
    to_steinis = [_smallest([rmse_ratio(tree, name, family) for name in AIS]) for family in STEINIS]
    best = max(to_steinis, key=lambda e: e.value)  # the family that does better
    return _smallest([to_hais, best])


def ais_to_hais(tree: xr.DataTree) -> Estimate:
    """RMSE of the better AIS over that of HAIS-1L with full refresh."""
    return _smallest([rmse_ratio(tree, name, "hais-1l") for name in AIS])


def _smallest(estimates: Sequence[Estimate]) -> Estimate:
    return min(estimates, key=lambda e: e.value)


def _rmse(values: Array) -> Array:
    return np.asarray(np.sqrt(np.square(values).mean(0)))
