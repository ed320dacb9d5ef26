"""Summaries of the estimates on mixtures: mean square errors, their slopes, and their ratios.

Intervals are over trials: a trial is resampled with all its sizes, tasks and methods, because they
share its mixture, and mostly a run as well. Mixtures are the same for all methods, so that trial i
is the same problem everywhere.

Words for readings, which the ledger uses:

kernel
    The family of SteinIS: "rule", "double", "wide", "adagrad", or "better": that of the four
    with the smallest mean square error on the same tasks. The choice is a part of what is
    resampled.
target
    "easy", "hard", "fixed" or "mild".
task
    One of `TASKS`; "expectations": the first three of them; "all".
average
    "weighted", or "plain": averages over SteinIS's followers without weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
import xarray as xr

from steinis_lib.companion.intervals import Array, Estimate, bootstrap, mean, resamples
from steinis_lib.companion.sections.s2_mixtures.experiment import label, svgd_sizes
from steinis_lib.companion.sections.s2_mixtures.problem import GMMEstimation
from steinis_lib.companion.settings import FAMILIES

EXPECTATIONS = {"E[x]": ["x1", "x2"], "E[x²]": ["x1²", "x2²"], "E[cos(wx+b)]": ["cos1", "cos2"]}
TASKS = (*EXPECTATIONS, "Z")
"""The four panels of Figure 3."""
KERNELS = dict(zip(("rule", "double", "wide", "adagrad"), FAMILIES, strict=True))
"""The families of SteinIS by their words in the ledger."""

THINNED = 3
"""How many trials there are for each one that is drawn for an interval."""

Average = Literal["weighted", "plain"]


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
        As in the labels of cells; "svgd" and "svgd-rule" stand for SVGD at all its sizes, whose Z
        is by path integration.
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
    if not method.startswith("svgd"):
        return [tree[label(mixture, method)].to_dataset()]
    p = GMMEstimation.model_validate_json(tree.attrs["parameters"])
    sizes = svgd_sizes(p, mixture, method)
    return [tree[label(mixture, method, n)].to_dataset() for n in sizes]


def mse(errors: list[Array]) -> tuple[Array, Array, Array]:
    """Return log₁₀ of the mean square error at each size, with a 95 % bootstrap interval."""
    parts = [bootstrap(e, lambda x: np.log10(x.mean(0))) for e in errors]
    value, low, high = np.array(parts).T
    return value, low, high


def slope(sizes: Array, errors: list[Array]) -> Estimate:
    """Return the slope of log MSE in log size, by least squares, with an interval over trials."""
    return mean_slope(sizes, [errors])


def mean_slope(sizes: Array, tasks: list[list[Array]]) -> Estimate:
    """Return the mean of the slopes of several tasks, whose errors are at the same sizes."""
    return _over_trials(_flat(tasks), lambda means: _slope(sizes, means, len(tasks)))


def _slope(sizes: Array, means: Array, n_tasks: int) -> Array:
    """The slope for each row of means ``(repeats, tasks · sizes)``, mean over tasks."""
    x = np.log10(sizes) - np.log10(sizes).mean()
    logs = np.log10(means).reshape(-1, n_tasks, len(sizes)).mean(1)
    return np.asarray(logs @ x / (x @ x))


def ratio(ours: list[list[Array]], theirs: list[list[Array]]) -> Estimate:
    """Return the geometric mean, over tasks and sizes, of MSE(ours)/MSE(theirs)."""
    return _over_trials([*_flat(ours), *_flat(theirs)], _geometric_ratio)


def _geometric_ratio(means: Array) -> Array:
    """The geometric mean of the first half of the columns over that of the second half."""
    ours, theirs = np.split(np.log(means), 2, axis=1)
    return np.asarray(np.exp(ours.mean(1) - theirs.mean(1)))


def _flat(groups: list[list[Array]]) -> list[Array]:
    return [errors for group in groups for errors in group]


def _over_trials(errors: list[Array], summary: Callable[[Array], Array]) -> Estimate:
    """A summary of the means of several samples, with a percentile interval over trials.

    Entry i of each sample belongs to trial i. Trials are drawn once for all samples. Where samples
    differ in length, the trials that only the longer ones have are drawn among themselves.

    A few trials dominate a mean square error, and a sample that has none of them does not know it.
    With as many draws as trials, the intervals were too short: rules called a false claim
    "reproduced" in up to 21 % of simulations. So there are `THINNED` times fewer draws.

    Parameters
    ----------
    summary
        Maps means ``(repeats, samples)`` to ``(repeats,)``.
    """
    rng, repeats = np.random.default_rng(0), resamples(1000)
    cuts = [0, *sorted({len(e) for e in errors})]
    counts = np.concatenate([_counts(b - a, repeats, rng) for a, b in pairwise(cuts)], 1)
    means = np.stack([counts[:, : len(e)] @ e / len(e) for e in errors], 1)
    low, high = np.percentile(summary(means), [2.5, 97.5])
    value = summary(np.array([[e.mean() for e in errors]])).item()
    return Estimate(value, float(low), float(high))


def _counts(n: int, repeats: int, rng: np.random.Generator) -> Array:
    """How often each of n trials is drawn, ``(repeats, n)``, scaled to the sum n."""
    drawn = max(1, n // THINNED)
    return rng.multinomial(drawn, np.full(n, 1 / n), repeats) * (n / drawn)


def compare(
    tree: xr.DataTree,
    mixture: str,
    one: str,
    other: str,
    tasks: Sequence[str],
    *,
    average: Average = "weighted",
    statistic: str = "v",
    size: str | int = "all",
) -> Estimate:
    """Return `ratio` of two methods on a mixture, over the sizes that both have.

    Parameters
    ----------
    average
        Of SteinIS, if one of the methods is SteinIS.
    statistic
        Of path integration.
    size
        "all", or one number of samples.

    Raises
    ------
    ValueError
        If the methods have no such size in common.
    """
    return ratio(
        *_pairs(tree, mixture, one, other, tasks, average=average, statistic=statistic, size=size)
    )


def _pairs(
    tree: xr.DataTree,
    mixture: str,
    one: str,
    other: str,
    tasks: Sequence[str],
    *,
    average: Average,
    statistic: str,
    size: str | int,
) -> tuple[list[list[Array]], list[list[Array]]]:
    """Square errors of two methods, for each task and size; see `compare`."""
    ours, theirs = [], []
    for task in tasks:
        a, left = _errors(tree, mixture, one, task, average, statistic)
        b, right = _errors(tree, mixture, other, task, average, statistic)
        both = sorted(set(a) & set(b)) if size == "all" else [size]
        if not both or not {*both} <= {*a} & {*b}:
            raise ValueError(
                f"size {size!r}: {one} has {a.tolist()} and {other} has {b.tolist()}; expected "
                "'all', or a number that both have"
            )
        ours.append([left[list(a).index(n)] for n in both])
        theirs.append([right[list(b).index(n)] for n in both])
    return ours, theirs


def _errors(
    tree: xr.DataTree, mixture: str, method: str, task: str, average: Average, statistic: str = "v"
) -> tuple[Array, list[Array]]:
    plain = average == "plain" and method in FAMILIES
    variable = "error_unweighted" if plain else "error"
    return square_errors(tree, mixture, method, task, variable=variable, statistic=statistic)


def tasks_of(task: str) -> tuple[str, ...]:
    """Return the tasks that a word of the ledger stands for.

    Raises
    ------
    ValueError
        If there is no such word.
    """
    groups = {"all": TASKS, "expectations": tuple(EXPECTATIONS)} | {t: (t,) for t in TASKS}
    if task not in groups:
        raise ValueError(f"task {task!r}: expected one of {', '.join(groups)}")
    return groups[task]


def families_of(kernel: str) -> tuple[str, ...]:
    """Return the families of SteinIS that a word of the ledger stands for: one, or all four.

    Raises
    ------
    ValueError
        If there is no such word.
    """
    if kernel == "better":
        return FAMILIES
    if kernel not in KERNELS:
        raise ValueError(f"kernel {kernel!r}: expected one of {', '.join(KERNELS)}, better")
    return (KERNELS[kernel],)


def over_families(
    families: Sequence[str],
    level: Callable[[str], list[Array]],
    samples: Callable[[str], list[Array]],
    summary: Callable[[Array], Array],
) -> Estimate:
    """Return a summary of the family with the smallest mean square error, and its interval.

    Which family that is, is chosen anew in each resample. So the interval knows that another one
    might have been chosen.

    Parameters
    ----------
    level
        Family → the samples whose means are to have the smallest geometric mean.
    samples, summary
        Family → the samples of which the means are summarised, as in `_over_trials`.
    """
    parts = [[*level(family), *samples(family)] for family in families]
    n_levels = len(level(families[0]))

    def of_best(means: Array) -> Array:
        blocks = np.split(means, np.cumsum([len(part) for part in parts])[:-1], axis=1)
        levels = np.stack([np.log(block[:, :n_levels]).mean(1) for block in blocks])
        values = np.stack([summary(block[:, n_levels:]) for block in blocks])
        return np.asarray(np.take_along_axis(values, levels.argmin(0)[None], 0)[0])

    return _over_trials(_flat(parts), of_best)


def mse_rate(
    tree: xr.DataTree,
    *,
    kernel: str = "better",
    target: str = "easy",
    task: str = "all",
    average: Average = "weighted",
    smallest: int = 0,
) -> Estimate:
    """Slope of log MSE of SteinIS in log |B|, mean over tasks, from |B| = `smallest` on."""
    tasks = tasks_of(task)
    families = families_of(kernel)
    sizes = _errors(tree, target, families[0], tasks[0], average)[0]
    kept = sizes >= smallest
    return over_families(
        families,
        _level(tree, families, target, tasks, average),
        lambda family: [
            errors
            for t in tasks
            for errors, keep in zip(_errors(tree, target, family, t, average)[1], kept, strict=True)
            if keep
        ],
        lambda means: _slope(sizes[kept], means, len(tasks)),
    )


def _level(
    tree: xr.DataTree,
    families: Sequence[str],
    target: str,
    tasks: Sequence[str],
    average: Average,
    size: str | int = "all",
) -> Callable[[str], list[Array]]:
    """By what families are compared: square errors of the tasks, in trials that all have."""
    least = min(tree[label(target, family)].sizes["trial"] for family in families)

    def samples(family: str) -> list[Array]:
        found = []
        for task in tasks:
            sizes, errors = _errors(tree, target, family, task, average)
            found += [e[:least] for n, e in zip(sizes, errors, strict=True) if size in ("all", n)]
        return found

    return samples


def _to_other(
    tree: xr.DataTree,
    kernel: str,
    target: str,
    other: str,
    tasks: Sequence[str],
    *,
    average: Average = "weighted",
    statistic: str = "v",
    size: str | int = "all",
) -> Estimate:
    """MSE of SteinIS over that of another method; see `compare`."""
    families = families_of(kernel)

    def samples(family: str) -> list[Array]:
        ours, theirs = _pairs(
            tree, target, family, other, tasks, average=average, statistic=statistic, size=size
        )
        return [*_flat(ours), *_flat(theirs)]

    level = _level(tree, families, target, tasks, average, size)
    return over_families(families, level, samples, _geometric_ratio)


def steinis_near_direct(
    tree: xr.DataTree,
    *,
    kernel: str = "better",
    target: str = "easy",
    task: str = "expectations",
    average: Average = "weighted",
    size: str | int = "all",
) -> Estimate:
    """MSE of SteinIS over that of direct sampling with as many draws."""
    tasks = tasks_of(task)
    return _to_other(tree, kernel, target, "direct", tasks, average=average, size=size)


def svgd_near_steinis(
    tree: xr.DataTree,
    *,
    kernel: str = "better",
    target: str = "easy",
    task: str = "expectations",
    average: Average = "weighted",
    size: str | int = "all",
) -> Estimate:
    """MSE of SVGD's averages over that of SteinIS with as many followers; see `_svgd`."""
    tasks = tasks_of(task)
    return _inverse(
        _to_other(tree, kernel, target, _svgd(kernel), tasks, average=average, size=size)
    )


def path_integration_worse(
    tree: xr.DataTree,
    *,
    kernel: str = "better",
    target: str = "easy",
    statistic: str = "v",
    size: str | int = "all",
) -> Estimate:
    """MSE of Ẑ by path integration over that of SteinIS with as many followers; see `_svgd`."""
    return _inverse(
        _to_other(tree, kernel, target, _svgd(kernel), ("Z",), statistic=statistic, size=size)
    )


def _svgd(kernel: str) -> str:
    """SVGD with the same settings for "rule"; else with the tuned multiple of the bandwidth."""
    return "svgd-rule" if kernel == "rule" else "svgd"


def _inverse(estimate: Estimate) -> Estimate:
    return Estimate(1 / estimate.value, 1 / estimate.high, 1 / estimate.low)


def z_bias(tree: xr.DataTree, mixture: str, method: str) -> Estimate:
    """Mean of Ẑ/Z - 1 at the largest size, in per cent; not for SVGD."""
    log_z = tree[label(mixture, method)].log_z.isel(size=-1).values
    return mean(100 * (np.exp(log_z) - 1))
