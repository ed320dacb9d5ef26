"""Summaries of the checks of Algorithm 1."""

from __future__ import annotations

import numpy as np
import xarray as xr

from steinis_lib.companion.intervals import Estimate, mean, share
from steinis_lib.companion.results import attributes


def z_unbiased(tree: xr.DataTree) -> Estimate:
    """Mean of Ẑ/Z - 1 over trials with exact determinants, in per cent; Z = 1."""
    return mean(100 * (np.exp(tree["unbiased-exact"].log_z.values) - 1))


def first_order_shift(tree: xr.DataTree) -> Estimate:
    """Mean of log Ẑ(first-order) - log Ẑ(exact) on the same particles, in nats."""
    pair = tree["unbiased-first-order"].log_z.values - tree["unbiased-exact"].log_z.values
    return mean(pair)


def determinant_order(tree: xr.DataTree) -> Estimate:
    """Mean over trials of the exponent p in |first-order error| ∝ ε^p."""
    group = tree["determinant"].to_dataset()
    log_epsilon = np.log(group.epsilon.values)
    return mean(np.polyfit(log_epsilon, np.log(group.error.values).T, 1)[0])


def continuing_is_free(tree: xr.DataTree) -> Estimate:
    """Largest difference between K + K and 2K transitions, over all trials; exact."""
    worst = float(tree["continuing"].difference.values.max())  # a NaN must show
    return Estimate(worst, worst, worst)


def stopping_coverage(tree: xr.DataTree) -> Estimate:
    """Share of trials stopped by ESS with |log Ẑ - log Z| within two of their standard errors."""
    group = tree["stopping"].to_dataset()
    reached = group.ess.values >= threshold(tree)
    if not reached.any():
        raise ValueError(f"no trial reached ESS/|B| ≥ {threshold(tree):g}; nothing was stopped")
    return share((np.abs(group.log_z.values) <= 2 * group.log_z_se.values)[reached])


def threshold(tree: xr.DataTree) -> float:
    """Return the ESS fraction that the stopping check asked for."""
    return float(attributes(tree)["parameters"]["ess_threshold"])
