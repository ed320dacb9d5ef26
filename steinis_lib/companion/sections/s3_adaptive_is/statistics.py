"""Summaries of the comparison on warped mixtures: KL curves, optima, and refinement.

Words for readings, which the ledger uses:

kernel
    The family of SteinIS: "rule", "double", "wide", "adagrad", or "better": the one of those that
    were run there whose statistic is smallest.
leaders
    |A|: a number, or "better", in the same sense.
target
    "main", "easy" or "hard".
measure
    How KL(q_ℓ‖p) is measured: "exact", by a sum over q0; "particles", a mean over followers with
    tracked densities; "kde-samples" and "kde-grid", by kernel density estimates of followers, with
    `factor` times Scott's bandwidth. The last two are there for the largest |A| only.
weights
    Of adaptive IS with fixed components: those of least "variance"; the "optimal" ones for
    KL(q‖p); and what stochastic optimisation reached, "averaged" over iterations or "last".
scale
    σ of these components: a number, or "better": the one of those tried with the smallest KL.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xarray as xr
from scipy import stats

from steinis_lib.companion.intervals import Array, Estimate, bootstrap, mean
from steinis_lib.companion.sections.s3_adaptive_is.problem import (
    MAIN,
    REFINED,
    AdaptiveComparison,
    families_on,
    label,
    pilot_label,
    refinement,
)
from steinis_lib.companion.settings import FAMILIES

KERNELS = dict(zip(("rule", "double", "wide", "adagrad"), FAMILIES, strict=True))
"""The families of SteinIS by their words in the ledger."""
OPTIMA = {"variance": "variance", "optimal": "reverse-kl"}
"""Weights that are exactly optimal, and their objective in the stored result."""
REACHED = {"averaged": "kl", "last": "kl_last"}
"""Weights that adaptive IS reached, and the variable that has their KL."""


def curve(tree: xr.DataTree, name: str, variable: str = "kl") -> tuple[Array, Array, Array, Array]:
    """Return checkpoints, and the median over repeats there with a 95 % bootstrap interval."""
    group = tree[name].to_dataset()
    value, low, high = bootstrap(_finite(group[variable].values), lambda x: np.median(x, axis=0))
    return group.checkpoint.values, value, low, high


def at_end(tree: xr.DataTree, name: str, variable: str = "kl") -> Estimate:
    """Return the mean of a curve at its last checkpoint, or of a single number, over repeats.

    It is inf if a run diverged.
    """
    return _mean(_ends(tree, name, variable))


def _ends(tree: xr.DataTree, name: str, variable: str = "kl") -> Array:
    values = tree[name].to_dataset()[variable].values
    return np.asarray(values[:, -1] if values.ndim > 1 else values)


def _mean(values: Array) -> Estimate:
    return Estimate(np.inf, np.inf, np.inf) if np.isinf(values).any() else mean(values)


def _smallest(samples: Iterable[Array]) -> Array:
    """The sample with the smallest mean."""
    return min(samples, key=lambda values: float(values.mean()))


def runs(tree: xr.DataTree, target: str = MAIN) -> list[tuple[str, int]]:
    """Return family and |A| of all runs of SteinIS from q_0 on a target."""
    leaders = _parameters(tree).leaders_on(target)
    return [(family, m) for family in families_on(target) for m in leaders]


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
    return mean(_optima(tree, target, scale, objective))


def _optima(tree: xr.DataTree, target: str, scale: float, objective: str) -> Array:
    kl = tree[label(target, "optimum", scale)].to_dataset().kl
    return np.asarray(kl.sel(objective=objective).values)


def best_curve(record: xr.Dataset) -> Array:
    """Return the mean KL of the chosen candidate's pilots along checkpoints.

    `record` is that of a search, with one trial.
    """
    return np.asarray(record.kl.values[0, int(np.nanargmax(record.score.values[0]))])


def early(tree: xr.DataTree, pilot: str) -> tuple[int, int]:
    """Return where the pilots of the chosen candidate did best: the checkpoint's index, and it.

    The start does not count.
    """
    record = tree[pilot].to_dataset()
    index = 1 + int(best_curve(record)[1:].argmin())
    return index, int(record.checkpoint.values[index])


def refined(tree: xr.DataTree, which: str, family: str) -> tuple[Estimate, int]:
    """Return median KL after SteinIS over that before, and after how many transitions.

    These are as many as were best for the pilots.
    """
    kind = refinement(which, family)
    index, transitions = early(tree, pilot_label(kind))
    group = tree[label(MAIN, kind)].to_dataset()
    kl = _finite(group.kl.values[:, [0, index]])
    value, low, high = bootstrap(kl, lambda x: np.median(x[:, 1]) / np.median(x[:, 0]))
    return Estimate(float(value), float(low), float(high)), transitions


def _parameters(tree: xr.DataTree) -> AdaptiveComparison:
    return AdaptiveComparison.model_validate_json(tree.attrs["parameters"])


def _finite(kl: Array) -> Array:
    """KL with a huge number instead of inf, for runs that diverged: medians hardly change."""
    return np.where(kl == np.inf, 1e9, kl)


def families_of(kernel: str, among: Iterable[str]) -> tuple[str, ...]:
    """Return the families of SteinIS that a word of the ledger stands for.

    Raises
    ------
    ValueError
        If there is no such word, or its family was not run there.
    """
    run = tuple(among)
    found = run if kernel == "better" else (KERNELS.get(kernel, ""),)
    if not {*found} <= {*run}:
        words = ", ".join(word for word, family in KERNELS.items() if family in run)
        raise ValueError(f"kernel {kernel!r}: expected one of {words}, better")
    return found


def steinis_kl(
    tree: xr.DataTree,
    *,
    kernel: str = "better",
    leaders: str | int = "better",
    target: str = MAIN,
    measure: str = "exact",
    factor: float = 1.0,
) -> Array:
    """Return KL(q_ℓ‖p) of runs of SteinIS at their end, ``(runs,)``.

    Raises
    ------
    ValueError
        If there are no such runs.
    """
    families = families_of(kernel, families_on(target))
    if measure in ("kde-samples", "kde-grid"):
        return _smallest(_density_estimates(tree, family, measure, factor) for family in families)
    variables = {"exact": "kl_grid", "particles": "kl"}
    sizes = _parameters(tree).leaders_on(target)
    if measure not in variables or leaders not in ("better", *sizes):
        raise ValueError(
            f"measure {measure!r}, leaders {leaders!r}: expected exact, particles, kde-samples or "
            f"kde-grid, and better or one of {sizes}"
        )
    numbers = sizes if leaders == "better" else [int(leaders)]
    return _smallest(
        _ends(tree, label(target, family, m), variables[measure])
        for family in families
        for m in numbers
    )


def _density_estimates(tree: xr.DataTree, family: str, measure: str, factor: float) -> Array:
    group = tree[label(MAIN, f"kde-{family}")].to_dataset()
    variable = "by_samples" if measure == "kde-samples" else "by_grid"
    return np.asarray(group[variable].sel(factor=factor).values)


def fixed_components_kl(
    tree: xr.DataTree,
    *,
    weights: str = "variance",
    scale: str | float = "better",
    target: str = MAIN,
) -> Array:
    """Return KL(q‖p) of mixtures of fixed components, one for each placement of them.

    Raises
    ------
    ValueError
        If there are no such weights or scales.
    """
    p = _parameters(tree)
    scales = p.optimum_scales if weights in OPTIMA else p.component_scales
    known = weights in OPTIMA or (weights in REACHED and target == MAIN)
    if not known or scale not in ("better", *scales):
        raise ValueError(
            f"weights {weights!r}, scale {scale!r}, target {target!r}: expected variance or "
            f"optimal, or on {MAIN} averaged or last; and better or one of {scales}"
        )
    found = []
    for s in scales if scale == "better" else [float(scale)]:
        if weights in OPTIMA:
            found.append(_optima(tree, target, s, OPTIMA[weights]))
        else:
            found.append(_ends(tree, label(target, "adaptive", s), REACHED[weights]))
    return _smallest(found)


def free_components_kl(tree: xr.DataTree, components: int, target: str = MAIN) -> Array:
    """Return KL(q‖p) of the mixtures that M-PMC fits, ``(runs,)``."""
    return _ends(tree, label(target, "pmc", components))


def ratio_of_means(ours: Array, theirs: Array) -> Estimate:
    """Return the ratio of the means of two independent samples, with a 95 % interval.

    It is by the delta method for its logarithm, with Student's t for the smaller sample. It is inf
    if a value of ours is.
    """
    if np.isinf(ours).any():
        return Estimate(np.inf, np.inf, np.inf)
    value = ours.mean() / theirs.mean()
    error = np.hypot(stats.sem(ours) / ours.mean(), stats.sem(theirs) / theirs.mean())
    half = stats.t.ppf(0.975, min(len(ours), len(theirs)) - 1) * error
    return Estimate(float(value), float(value * np.exp(-half)), float(value * np.exp(half)))


def warped_kl(
    tree: xr.DataTree,
    *,
    kernel: str = "better",
    leaders: str | int = "better",
    target: str = MAIN,
    measure: str = "exact",
    factor: float = 1.0,
) -> Estimate:
    """KL(q_ℓ‖p) of SteinIS at the last transition."""
    return _mean(
        steinis_kl(
            tree, kernel=kernel, leaders=leaders, target=target, measure=measure, factor=factor
        )
    )


def adaptive_is_kl(
    tree: xr.DataTree,
    *,
    weights: str = "variance",
    scale: str | float = "better",
    target: str = MAIN,
) -> Estimate:
    """KL(q‖p) of adaptive IS, whose components are fixed."""
    return _mean(fixed_components_kl(tree, weights=weights, scale=scale, target=target))


def adaptive_is_order(
    tree: xr.DataTree,
    *,
    kernel: str = "better",
    leaders: str | int = "better",
    target: str = MAIN,
    weights: str = "variance",
    scale: str | float = "better",
) -> Estimate:
    """KL of SteinIS at its end over that of adaptive IS.

    `weights` may be "free" here: means and covariances adapt as well, by M-PMC, with the most
    components that were run on the target.
    """
    ours = steinis_kl(tree, kernel=kernel, leaders=leaders, target=target)
    if weights == "free":
        components = _parameters(tree).components_on(target)[-1]
        return ratio_of_means(ours, free_components_kl(tree, components, target))
    theirs = fixed_components_kl(tree, weights=weights, scale=scale, target=target)
    return ratio_of_means(ours, theirs)


def mixtures_cannot(
    tree: xr.DataTree,
    *,
    weights: str = "free",
    components: int = 200,
    scale: str | float = "better",
    target: str = MAIN,
) -> Estimate:
    """KL(q‖p) of the closest mixture of Gaussians that was found.

    Parameters
    ----------
    weights
        "free": means and covariances adapt as well, by M-PMC, with so many `components`. Or those
        of fixed components, with this `scale`.
    """
    if weights == "free":
        return mean(free_components_kl(tree, components, target))
    return adaptive_is_kl(tree, weights=weights, scale=scale, target=target)


def refine_adaptive_is(
    tree: xr.DataTree, *, kernel: str = "better", start: str = "poor"
) -> Estimate:
    """KL after SteinIS over before, from a fitted mixture; see `fitted`.

    Raises
    ------
    ValueError
        If there is no such mixture, or the family was not run from it.
    """
    if start not in REFINED:
        raise ValueError(f"start {start!r}: expected one of {', '.join(REFINED)}")
    families = families_of(kernel, REFINED[start])
    return min((refined(tree, start, family)[0] for family in families), key=lambda e: e.value)
