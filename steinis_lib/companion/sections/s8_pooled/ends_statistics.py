"""Errors of the ends from a Gaussian q_K and from one bent by maps; see `ends`."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from steinis_lib.companion.intervals import Estimate, bootstrap
from steinis_lib.companion.sections.s5_likelihood.statistics import truth
from steinis_lib.companion.sections.s8_pooled.ends import label

Array = NDArray[Any]


def errors(tree: xr.DataTree, vae: xr.DataTree, start: str, end: str, dim: int) -> Array:
    """Return log p̂(x) less the truth of section 5, ``(images, repeats)``, in nats."""
    found = tree[label(start, end, dim)].to_dataset().log_z
    exact = truth(vae, dim).log_z.sel(trial=found.trial)
    return np.asarray((found - exact).transpose("trial", "repeat").values)


def rmse(values: Array) -> Estimate:
    """Return the root mean square over images and repeats; images are resampled."""
    return _estimate(np.square(values).mean(1), lambda x: np.sqrt(x.mean(0)))


def rmse_ratio(ours: Array, theirs: Array) -> Estimate:
    """Return the ratio of two root mean squares on the same images, resampled in pairs."""
    squares = np.stack([np.square(values).mean(1) for values in (ours, theirs)], -1)
    return _estimate(squares, lambda x: np.sqrt(x[:, 0].mean() / x[:, 1].mean()))


def _estimate(values: Array, summary: Any) -> Estimate:
    value, low, high = bootstrap(values, summary)
    return Estimate(float(value), float(low), float(high))
