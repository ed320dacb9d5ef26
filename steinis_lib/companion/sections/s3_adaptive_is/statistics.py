"""Summaries of the comparison on warped mixtures: KL curves, optima, and refinement."""

from __future__ import annotations

import numpy as np
import xarray as xr

from steinis_lib.companion.intervals import Array, Estimate, bootstrap, mean
from steinis_lib.companion.sections.s3_adaptive_is.problem import best_candidate, merits


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


def runs(tree: xr.DataTree, target: str = "main") -> list[str]:
    """Return the names of all runs of SteinIS from q_0 on a target."""
    return [name for name in map(str, tree.children) if name.startswith(f"{target}-steinis")]


def best_run(tree: xr.DataTree, target: str = "main") -> str:
    """Return the run of SteinIS from q_0 whose exact KL is smallest at its end."""
    return min(runs(tree, target), key=lambda name: at_end(tree, name, "kl_grid").value)


def optimum(tree: xr.DataTree, name: str, objective: str = "reverse-kl") -> Estimate:
    """Return KL(q‖p) of optimal mixtures, the mean over placements of their components."""
    return mean(tree[name].to_dataset().kl.sel(objective=objective).values)


def optima(tree: xr.DataTree, target: str = "main") -> list[str]:
    """Return the names of the optima on a target, one for each scale of the components."""
    return [name for name in map(str, tree.children) if name.startswith(f"{target}-optimum")]


def early(tree: xr.DataTree, pilot: str) -> tuple[int, int]:
    """Return where the pilots of the chosen candidate did best: the checkpoint's index, and it.

    The start does not count.
    """
    record = tree[pilot].to_dataset()
    index = 1 + int(merits(record)[best_candidate(record), 1:].argmin())
    return index, int(record.checkpoint.values[index])


def refined(tree: xr.DataTree, which: str) -> tuple[Estimate, int]:
    """Return median KL after SteinIS over that before, and the transitions: what pilots liked."""
    index, transitions = early(tree, f"main-pilot-refine-{which}")
    kl = _finite(tree[f"main-refine-{which}"].to_dataset().kl.values[:, [0, index]])
    value, low, high = bootstrap(kl, lambda x: np.median(x[:, 1]) / np.median(x[:, 0]))
    return Estimate(float(value), float(low), float(high)), transitions


def _finite(kl: Array) -> Array:
    """KL with a huge number for the inf of runs that diverged; medians do not mind."""
    return np.where(kl == np.inf, 1e9, kl)


def warped_kl(tree: xr.DataTree) -> Estimate:
    """Exact KL(q_ℓ‖p) at the last transition, of the best of all settings and leader counts."""
    return at_end(tree, best_run(tree), "kl_grid")


def adaptive_is_kl(tree: xr.DataTree) -> Estimate:
    """KL(q‖p) of the optimal mixture, at the best scale of its components."""
    return min((optimum(tree, name) for name in optima(tree)), key=lambda e: e.value)


def refine_adaptive_is(tree: xr.DataTree) -> Estimate:
    """KL after SteinIS over before, from the optimum of adaptive IS."""
    return refined(tree, "poor")[0]
