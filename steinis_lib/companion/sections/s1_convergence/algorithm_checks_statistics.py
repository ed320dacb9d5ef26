"""Summaries of the checks of Algorithm 1."""

from __future__ import annotations

import numpy as np
import xarray as xr

from steinis_lib.companion.intervals import Array, Estimate, bootstrap, mean, share
from steinis_lib.companion.results import attributes


def z_unbiased(
    tree: xr.DataTree, *, determinant: str = "exact", transitions: str = "fixed"
) -> Estimate:
    """Mean of Ẑ/Z - 1 over trials, in per cent; Z = 1.

    Parameters
    ----------
    determinant
        exact or first-order.
    transitions
        fixed; or "by ESS", each trial's own, as early stopping has it (exact determinants).
    """
    cell = "stopping" if transitions == "by ESS" else f"unbiased-{determinant}"
    return mean(100 * (np.exp(tree[cell].log_z.values) - 1))


def first_order_shift(tree: xr.DataTree) -> Estimate:
    """Mean of log Ẑ(first-order) - log Ẑ(exact) on the same particles, in nats."""
    pair = tree["unbiased-first-order"].log_z.values - tree["unbiased-exact"].log_z.values
    return mean(pair)


def determinant_order(tree: xr.DataTree, *, steps: str = "all") -> Estimate:
    """Mean over trials of the exponent p in |first-order error| ∝ ε^p.

    Parameters
    ----------
    steps
        all, or the two smallest or the two largest step sizes.
    """
    which = {"all": slice(None), "smallest": slice(2), "largest": slice(-2, None)}[steps]
    group = tree["determinant"].to_dataset().isel(epsilon=which)
    log_epsilon = np.log(group.epsilon.values)
    return mean(np.polyfit(log_epsilon, np.log(group.error.values).T, 1)[0])


def continuing_is_free(tree: xr.DataTree) -> Estimate:
    """Largest difference between K + K and 2K transitions, over all trials; exact."""
    worst = float(tree["continuing"].difference.values.max())  # a NaN must show
    return Estimate(worst, worst, worst)


def stopping(
    tree: xr.DataTree, *, measure: str = "coverage", errors: float = 2.0, trials: str = "stopped"
) -> Estimate:
    """Whether the accuracy of log Ẑ at the stop is as told.

    Parameters
    ----------
    measure
        coverage, the share of trials with log Ẑ within so many of their own standard errors of
        log Z; or ratio, the root mean square error over that of the standard errors.
    errors
        So many.
    trials
        stopped, by the effective sample size; or all, with those that never reached it.
    """
    group = tree["stopping"].to_dataset()
    chosen = _reached(tree) if trials == "stopped" else np.ones(len(group.ess), dtype=bool)
    error, told = np.abs(group.log_z.values[chosen]), group.log_z_se.values[chosen]
    if measure == "coverage":
        return share(error <= errors * told)
    squares = np.square(np.stack([error, told], -1))

    def summary(x: Array) -> Array:
        found, said = x.mean(0)
        return np.asarray(np.sqrt(found / said))

    value, low, high = bootstrap(squares, summary)
    return Estimate(float(value), float(low), float(high))


def _reached(tree: xr.DataTree) -> Array:
    """Return which trials the effective sample size stopped."""
    reached = np.asarray(tree["stopping"].ess.values >= threshold(tree))
    if not reached.any():
        raise ValueError(f"no trial reached ESS/|B| ≥ {threshold(tree):g}; nothing was stopped")
    return reached


def threshold(tree: xr.DataTree) -> float:
    """Return the ESS fraction that the stopping check asked for."""
    return float(attributes(tree)["parameters"]["ess_threshold"])
