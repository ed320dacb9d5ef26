"""Runs that are looked at on the way, and what is kept of their weighted followers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
import xarray as xr

from steinis_lib.extensions.pooled import PooledSteinIS, PooledSteinISState
from steinis_lib.importance import ImportanceSample


def along(
    sampler: PooledSteinIS,
    state: PooledSteinISState,
    transitions: Sequence[int],
    measure: Callable[[ImportanceSample], xr.Dataset],
) -> xr.Dataset:
    """Run, and measure the followers after each of these numbers of transitions, which rise.

    `scores` are those of one problem, `seconds` its share of the time.
    """
    (n_trials,) = state.followers.shape[:-2]
    began, parts, done = time.perf_counter(), [], 0
    for n_transitions in transitions:
        state = sampler.run(state, n_transitions - done)
        done = n_transitions
        found = measure(sampler.importance_sample(state))
        scores = np.full(n_trials, n_transitions * sampler.leaders_per_step)
        each = np.full(n_trials, (time.perf_counter() - began) / n_trials)
        parts.append(found.assign(scores=("trial", scores), seconds=_seconds(each)))
    return xr.concat(parts, "transitions").assign_coords(transitions=list(transitions))


def _seconds(each: np.ndarray) -> xr.Variable:
    return xr.Variable("trial", each, {"units": "s"})


def weights(sample: ImportanceSample, sizes: Sequence[int]) -> xr.Dataset:
    """Return log Ẑ from the first of the followers, and what all of them say."""
    first = [ImportanceSample(sample.particles[..., :n, :], sample.log_w[..., :n]) for n in sizes]
    each = {
        "mean_log_w": sample.log_w.mean(-1),
        "ess": sample.ess / sample.n,
        "pareto_k": sample.pareto_k,
    }
    found = xr.Dataset({name: ("trial", value.numpy()) for name, value in each.items()})
    log_z = torch.stack([part.log_z for part in first], -1)
    found["log_z"] = (("trial", "size"), log_z.numpy())
    return found.assign_coords(size=list(sizes))


def divergence(sample: ImportanceSample) -> xr.Dataset:
    """Return KL(q‖p) and its standard error, where Z = 1, and the relative ESS.

    It is the mean of r - 1 - log r with r = p/q, whose error is smaller than that of -mean log r.
    """
    each = torch.expm1(sample.log_w) - sample.log_w
    error = each.std(-1) / sample.n**0.5
    found = {"kl": each.mean(-1), "kl_error": error, "ess": sample.ess / sample.n}
    return xr.Dataset({name: ("trial", value.numpy()) for name, value in found.items()})
