"""Summaries of the comparison on warped mixtures: KL curves, optima, and refinement."""

from __future__ import annotations

import numpy as np
import xarray as xr

from steinis_lib.companion.intervals import Array, Estimate, bootstrap, mean
from steinis_lib.companion.sections.s3_adaptive_is.problem import (
    FAMILIES,
    MAIN,
    AdaptiveComparison,
    best_candidate,
    label,
    pilot_kl,
    pilot_label,
)


def curve(tree: xr.DataTree, name: str, variable: str = "kl") -> tuple[Array, Array, Array, Array]:
    """Return checkpoints, and the median over repeats there with a 95 % bootstrap interval."""
    group = tree[name].to_dataset()
    value, low, high = bootstrap(_finite(group[variable].values), lambda x: np.median(x, axis=0))
    return group.checkpoint.values, value, low, high


def at_end(tree: xr.DataTree, name: str, variable: str = "kl") -> Estimate:
    """Return the mean of a curve at its last checkpoint, or of a single number, over repeats.

    It is inf if a run diverged.
    """
    values = tree[name].to_dataset()[variable].values
    values = values[:, -1] if values.ndim > 1 else values
    return Estimate(np.inf, np.inf, np.inf) if np.isinf(values).any() else mean(values)


def runs(tree: xr.DataTree, target: str = MAIN) -> list[tuple[str, int]]:
    """Return family and |A| of all runs of SteinIS from q_0 on a target."""
    return [(family, m) for family in FAMILIES for m in _parameters(tree).leaders_on(target)]


def best_run(tree: xr.DataTree, target: str = MAIN) -> tuple[str, int]:
    """Return family and |A| of the run from q_0 whose exact KL is smallest at its end."""
    return min(runs(tree, target), key=lambda run: end_kl(tree, target, *run).value)


def end_kl(tree: xr.DataTree, target: str, family: str, m: int) -> Estimate:
    """Return the exact KL(q_ℓ‖p) of a run of SteinIS from q_0 at its last transition."""
    return at_end(tree, label(target, family, m), "kl_grid")


def optimum(
    tree: xr.DataTree, target: str, scale: float, objective: str = "reverse-kl"
) -> Estimate:
    """Return KL(q‖p) of optimal mixtures, the mean over placements of their components."""
    kl = tree[label(target, "optimum", scale)].to_dataset().kl
    return mean(kl.sel(objective=objective).values)


def early(tree: xr.DataTree, pilot: str) -> tuple[int, int]:
    """Return where the pilots of the chosen candidate did best: the checkpoint's index, and it.

    The start does not count.
    """
    record = tree[pilot].to_dataset()
    index = 1 + int(pilot_kl(record)[best_candidate(record), 1:].argmin())
    return index, int(record.checkpoint.values[index])


def refined(tree: xr.DataTree, which: str) -> tuple[Estimate, int]:
    """Return median KL after SteinIS over that before, and after how many transitions.

    These are as many as were best for the pilots.
    """
    index, transitions = early(tree, pilot_label(f"refine-{which}"))
    group = tree[label(MAIN, f"refine-{which}")].to_dataset()
    kl = _finite(group.kl.values[:, [0, index]])
    value, low, high = bootstrap(kl, lambda x: np.median(x[:, 1]) / np.median(x[:, 0]))
    return Estimate(float(value), float(low), float(high)), transitions


def _parameters(tree: xr.DataTree) -> AdaptiveComparison:
    return AdaptiveComparison.model_validate_json(tree.attrs["parameters"])


def _finite(kl: Array) -> Array:
    """KL with a huge number instead of inf, for runs that diverged: medians hardly change."""
    return np.where(kl == np.inf, 1e9, kl)


def warped_kl(tree: xr.DataTree) -> Estimate:
    """Exact KL(q_ℓ‖p) at the last transition, of the best of all settings and leader counts."""
    return end_kl(tree, MAIN, *best_run(tree))


def adaptive_is_kl(tree: xr.DataTree) -> Estimate:
    """KL(q‖p) of the optimal mixture, at the best scale of its components."""
    found = [optimum(tree, MAIN, scale) for scale in _parameters(tree).component_scales]
    return min(found, key=lambda e: e.value)


def refine_adaptive_is(tree: xr.DataTree) -> Estimate:
    """KL after SteinIS over before, from the optimum of adaptive IS."""
    return refined(tree, "poor")[0]
