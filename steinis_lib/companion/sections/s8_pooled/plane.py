"""Errors on the mixtures of section 2, and KL on the bent mixture of section 3.

`tree` is this section's result, `section` that of section 2. Mixtures are the same, and numbers of
samples are `FEW` and all followers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from steinis_lib.companion.intervals import Array, Estimate, mean
from steinis_lib.companion.sections.s2_mixtures import statistics as mixtures
from steinis_lib.companion.sections.s2_mixtures.statistics import EXPECTATIONS, TASKS
from steinis_lib.companion.sections.s8_pooled.settings import mixture_label

SIZES = {100: ("error", 0), 1000: ("error_all", -1)}
"""|B| → the variable with the errors of expectations, and the place of log Ẑ."""


def square_errors(tree: xr.DataTree, mixture: str, task: str, size: int) -> Array:
    """Return the square errors of a panel of section 2 after the last transition, ``(trials,)``."""
    at = tree[mixture_label(mixture)].to_dataset().isel(transitions=-1)
    variable, place = SIZES[size]
    if task == "Z":
        return np.asarray((np.exp(at.log_z.isel(size=place).values) - 1) ** 2)
    return np.asarray((at[variable].sel(quantity=EXPECTATIONS[task]) ** 2).mean("quantity").values)


def their_square_errors(
    tree: xr.DataTree, section: xr.DataTree, mixture: str, method: str, task: str, size: int
) -> Array:
    """Return those of a method of section 2 with so many samples, on the mixtures of ours."""
    n = tree[mixture_label(mixture)].sizes["trial"]
    sizes, errors = mixtures.square_errors(section, mixture, method, task)
    if size not in sizes:
        raise ValueError(f"{method} has sizes {sizes.tolist()} on {mixture} mixtures, not {size}")
    return errors[list(sizes).index(size)][:n]


def mse_ratio(
    tree: xr.DataTree, section: xr.DataTree, mixture: str, method: str,
    tasks: Sequence[str] = tuple(EXPECTATIONS), sizes: Sequence[int] = (100,),
) -> Estimate:  # fmt: skip
    """Return MSE(ours)/MSE(theirs), the geometric mean over tasks and numbers of samples."""
    ours = [[square_errors(tree, mixture, t, n) for n in sizes] for t in tasks]
    theirs = [
        [their_square_errors(tree, section, mixture, method, t, n) for n in sizes] for t in tasks
    ]
    return mixtures.ratio(ours, theirs)


def mse_rate(tree: xr.DataTree, mixture: str = "easy") -> Estimate:
    """Return the slope of log MSE in log |B| over `SIZES`, the mean over all tasks."""
    errors = [[square_errors(tree, mixture, t, n) for n in SIZES] for t in TASKS]
    return mixtures.mean_slope(np.array(list(SIZES)), errors)


def bent_kl(tree: xr.DataTree, transitions: int | None = None) -> Array:
    """Return KL(q‖p) of the runs on the bent mixture, ``(runs,)``; None: after the last one."""
    kl = tree["bent"].to_dataset().kl
    at = kl.isel(transitions=-1) if transitions is None else kl.sel(transitions=transitions)
    return np.asarray(at.values)


def bent_curve(tree: xr.DataTree) -> dict[int, Estimate]:
    """Return transitions → mean KL on the bent mixture."""
    numbers = tree["bent"].to_dataset().transitions.values
    return {int(k): mean(bent_kl(tree, int(k))) for k in numbers}
