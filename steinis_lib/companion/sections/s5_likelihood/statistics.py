"""Summaries of the log-likelihoods of images: errors against the truth, and their differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray as xr

from steinis_lib.companion.intervals import Array, Estimate, bootstrap, mean
from steinis_lib.companion.sections.s5_likelihood.problem import (
    VAELikelihood,
    bounds_label,
    label,
    truth_label,
)

STEINIS = ("steinis", "steinis-wide")
AIS = ("ais", "ais-unadjusted")
FIGURE_6 = (20, 50)
"""The latent dimensions of the paper's figure. Claims are judged at these."""


def group(tree: xr.DataTree, condition: str, method: str, dim: int) -> xr.Dataset:
    """Return one method's results under one condition."""
    return tree[label(condition, method, dim)].to_dataset()


def dims(tree: xr.DataTree) -> list[int]:
    """Return the latent dimensions of a result, rising."""
    return list(VAELikelihood.model_validate_json(tree.attrs["parameters"]).latent_dims)


def truth(tree: xr.DataTree, dim: int) -> xr.Dataset:
    """Return the long runs on test images."""
    return tree[truth_label(dim)].to_dataset()


def bounds(tree: xr.DataTree, dim: int) -> xr.Dataset:
    """Return the bounds for simulated images."""
    return tree[bounds_label(dim)].to_dataset()


def errors(tree: xr.DataTree, condition: str, method: str, dim: int) -> tuple[Array, Array]:
    """Return numbers of transitions ``(k,)`` and errors of log p̂(x) in nats, ``(images, k)``.

    Against the long runs for test images, and against the middle of the bounds for simulated ones.
    """
    found = group(tree, condition, method, dim)
    if condition == "simulated":
        both = bounds(tree, dim)
        exact = (both.lower + both.upper) / 2
    else:
        exact = truth(tree, dim).log_z
    error = (found.log_z - exact.sel(trial=found.trial)).transpose("trial", "transitions")
    return found.transitions.values, error.values


def mean_error(values: Array) -> tuple[Array, Array, Array]:
    """Return the mean over images with a 95 % bootstrap interval, each ``(k,)``."""
    return bootstrap(values, lambda x: x.mean(0))


def rms_error(values: Array) -> tuple[Array, Array, Array]:
    """Return the root mean square over images with a 95 % bootstrap interval, each ``(k,)``."""
    return bootstrap(values, lambda x: np.sqrt(np.square(x).mean(0)))


def gap(tree: xr.DataTree, dim: int) -> Estimate:
    """Return the upper minus the lower bound of simulated images, mean in nats."""
    both = bounds(tree, dim)
    return mean((both.upper - both.lower).values)


def difference(
    tree: xr.DataTree, ours: str, theirs: str, condition: str = "prior", dim: int | None = None
) -> Estimate:
    """Return |mean error| of `theirs` less that of `ours`, in nats; positive if ours is nearer.

    The mean over images, then the absolute value, then the average over the numbers of transitions
    and latent dimensions (20 and 50, or just `dim`) that both have. Images are resampled in pairs.
    """
    parts = []
    for d in dims(tree) if dim is None else [dim]:
        if dim is None and d not in FIGURE_6:
            continue
        (a, one), (b, other) = (errors(tree, condition, m, d) for m in (ours, theirs))
        n, both = min(len(one), len(other)), [k for k in a if k in b]
        for k in both:
            parts.append(np.stack([other[:n, list(b).index(k)], one[:n, list(a).index(k)]], -1))
    n = min(map(len, parts))
    pairs = np.stack([part[:n] for part in parts], 1)  # (images, points, 2)

    def summary(x: Array) -> Array:
        size = np.abs(x.mean(0))
        return np.asarray((size[:, 0] - size[:, 1]).mean())

    value, low, high = bootstrap(pairs, summary)
    return Estimate(float(value), float(low), float(high))


def steinis_ahead(tree: xr.DataTree) -> Estimate:
    """How much nearer the better family of SteinIS is than HAIS-1L."""
    return _of(max, [difference(tree, name, "hais-1l") for name in STEINIS])


def ais_behind(tree: xr.DataTree) -> Estimate:
    """How much nearer than the better AIS both are, SteinIS's better family and HAIS-1L."""
    to_hais = _of(min, [difference(tree, "hais-1l", name) for name in AIS])
    to_steinis = [_of(min, [difference(tree, family, name) for name in AIS]) for family in STEINIS]
    return _of(min, [to_hais, _of(max, to_steinis)])


def ten_ahead(tree: xr.DataTree) -> Estimate:
    """How much nearer HAIS-10L is than the better family of SteinIS."""
    return _of(min, [difference(tree, "hais-10l", name) for name in STEINIS])


def _of(choose: Callable[..., Estimate], estimates: list[Estimate]) -> Estimate:
    return choose(estimates, key=lambda e: e.value)
