"""Summaries of the estimates on mixtures: mean square errors, their slopes, and their ratios."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray as xr

from steinis_lib.companion.intervals import Array, Estimate, bootstrap, mean
from steinis_lib.companion.sections.s2_mixtures.experiment import GMMEstimation, label

EXPECTATIONS = {"E[x]": ["x1", "x2"], "E[x²]": ["x1²", "x2²"], "E[cos(wx+b)]": ["cos1", "cos2"]}
TASKS = (*EXPECTATIONS, "Z")
"""The four panels of Figure 3."""


def square_errors(
    tree: xr.DataTree,
    mixture: str,
    method: str,
    task: str,
    *,
    variable: str = "error",
    statistic: str = "v",
) -> tuple[Array, list[Array]]:
    """Return sizes and, for each, the square errors of independent trials.

    Errors of expectations are averaged over coordinates; that of Z is (Ẑ/Z - 1)², Z = 1.

    Parameters
    ----------
    method
        As in the labels of cells; "svgd" stands for SVGD at all its sizes, whose Z is by path
        integration.
    variable
        ``error``, or ``error_unweighted`` for plain averages of weighted samples.
    statistic
        Of path integration: the paper's "v", or "u".
    """
    sizes, errors = [], []
    for group in _groups(tree, mixture, method):
        for size in group.coords["size"].values:
            at = group.sel(size=size)
            if task != "Z":
                values = (at[variable].sel(quantity=EXPECTATIONS[task]) ** 2).mean("quantity")
            else:
                log_z = at.log_z.sel(statistic=statistic) if "statistic" in at.dims else at.log_z
                values = (np.exp(log_z) - 1) ** 2
            sizes.append(int(size))
            errors.append(values.values)
    return np.array(sizes), errors


def _groups(tree: xr.DataTree, mixture: str, method: str) -> list[xr.Dataset]:
    """The results of a method on a mixture: one for all sizes, or one for each size of SVGD."""
    if method != "svgd":
        return [tree[label(mixture, method)].to_dataset()]
    p = GMMEstimation.model_validate_json(tree.attrs["parameters"])
    return [tree[label(mixture, method, n)].to_dataset() for n in p.interacting_sizes]


def mse(errors: list[Array]) -> tuple[Array, Array, Array]:
    """Return log₁₀ of the mean square error at each size, with a 95 % bootstrap interval."""
    parts = [bootstrap(e, lambda x: np.log10(x.mean(0))) for e in errors]
    value, low, high = np.array(parts).T
    return value, low, high


def slope(sizes: Array, errors: list[Array]) -> Estimate:
    """Return the slope of log MSE in log size, by least squares, with a bootstrap interval.

    Trials are resampled whole where all sizes come from the same runs, else size by size.
    """
    x = np.log10(sizes)
    same_runs = len({len(e) for e in errors}) == 1
    return _resampled(
        errors, lambda means: float(np.polyfit(x, np.log10(means), 1)[0]), together=same_runs
    )


def ratio(ours: list[list[Array]], theirs: list[list[Array]]) -> Estimate:
    """Return the geometric mean, over tasks and sizes, of MSE(ours)/MSE(theirs)."""
    n = sum(len(errors) for errors in ours)
    flat = [*_flat(ours), *_flat(theirs)]
    return _resampled(
        flat,
        lambda means: float(np.exp(np.log(means[:n]).mean() - np.log(means[n:]).mean())),
        together=False,
    )


def _flat(groups: list[list[Array]]) -> list[Array]:
    return [errors for group in groups for errors in group]


def _resampled(
    errors: list[Array], summary: Callable[[Array], float], *, together: bool, repeats: int = 1000
) -> Estimate:
    """A summary of the means of several samples, with a percentile interval over trials."""
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(repeats):
        if together:
            rows = rng.integers(0, len(errors[0]), len(errors[0]))
            draws.append(summary(np.array([e[rows].mean() for e in errors])))
        else:
            draws.append(
                summary(np.array([e[rng.integers(0, len(e), len(e))].mean() for e in errors]))
            )
    low, high = np.percentile(draws, [2.5, 97.5])
    return Estimate(summary(np.array([e.mean() for e in errors])), float(low), float(high))


def compare(
    tree: xr.DataTree, mixture: str, one: str, other: str, tasks: tuple[str, ...]
) -> Estimate:
    """Return `ratio` of two methods on a mixture, over the sizes that both have."""
    ours, theirs = [], []
    for task in tasks:
        a, left = square_errors(tree, mixture, one, task)
        b, right = square_errors(tree, mixture, other, task)
        both = sorted(set(a) & set(b))
        ours.append([left[list(a).index(n)] for n in both])
        theirs.append([right[list(b).index(n)] for n in both])
    return ratio(ours, theirs)


def mse_rate(tree: xr.DataTree) -> Estimate:
    """Slope of log MSE of Ẑ in log |B| for SteinIS in the paper's family, easy mixtures."""
    return slope(*square_errors(tree, "easy", "steinis", "Z"))


def steinis_near_direct(tree: xr.DataTree) -> Estimate:
    """MSE of SteinIS in the paper's family over that of direct sampling, on expectations."""
    return compare(tree, "easy", "steinis", "direct", tuple(EXPECTATIONS))


def svgd_near_steinis(tree: xr.DataTree) -> Estimate:
    """MSE of SVGD's plain averages over that of SteinIS with the same settings."""
    return compare(tree, "easy", "svgd", "steinis-wide", tuple(EXPECTATIONS))


def path_integration_worse(tree: xr.DataTree) -> Estimate:
    """MSE of Ẑ by path integration over that of SteinIS with the same settings."""
    return compare(tree, "easy", "svgd", "steinis-wide", ("Z",))


def z_bias(tree: xr.DataTree, mixture: str, method: str) -> Estimate:
    """Mean of Ẑ/Z - 1 at the largest size, in per cent; not for SVGD."""
    log_z = tree[label(mixture, method)].log_z.isel(size=-1).values
    return mean(100 * (np.exp(log_z) - 1))
