"""Summaries of the log-likelihoods of images: errors against the truth, and their differences.

A *measure* reduces the errors of a method over images to one number that is small where the method
is good:

* "mean": |mean error|, as the paper's figure shows means over images,
* "rmse": the root mean square error,
* "median": the median of |error|,
* "height": minus the mean error, so that the higher curve is the better one, right or not.

The truth is an estimate too. In each repeat of the bootstrap over images it is moved by a normal
draw of its standard error, so that intervals have its uncertainty in them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr

from steinis_lib.companion.intervals import Array, Estimate, bootstrap, mean
from steinis_lib.companion.sections.s5_likelihood.problem import (
    VAELikelihood,
    bounds_label,
    bridge_label,
    label,
    truth_label,
)
from steinis_lib.companion.settings import FAMILIES

KERNELS = {
    "rule": "steinis",
    "double": "steinis-double",
    "wide": "steinis-wide",
    "adagrad": "steinis-adagrad",
    "leaders": "steinis-leaders",
}
"""The choice `kernel` of a reading → the method."""
REFRESH = {"full": "hais-1l", "partial": "hais-1l-partial"}
"""The choice `refresh` of a reading → the method."""
FIGURE_6 = (20, 50)
"""The latent dimensions of the paper's figure: the choice "both" of `d`."""


def _size_of_mean(values: Array) -> Array:
    return np.asarray(np.abs(values.mean(0)))


def _rms(values: Array) -> Array:
    return np.asarray(np.sqrt(np.square(values).mean(0)))


def _median(values: Array) -> Array:
    return np.asarray(np.median(np.abs(values), axis=0))


def _depth(values: Array) -> Array:
    return np.asarray(-values.mean(0))


MEASURES: dict[str, Callable[[Array], Array]] = {
    "mean": _size_of_mean,
    "rmse": _rms,
    "median": _median,
    "height": _depth,
}
"""The choice `measure` of a reading → errors ``(images, …)`` to a number for each column."""


def group(tree: xr.DataTree, condition: str, method: str, dim: int) -> xr.Dataset:
    """Return one method's results under one condition."""
    return tree[label(condition, method, dim)].to_dataset()


def dims(tree: xr.DataTree) -> list[int]:
    """Return the latent dimensions of a result, rising."""
    return list(VAELikelihood.model_validate_json(tree.attrs["parameters"]).latent_dims)


def routes(tree: xr.DataTree, dim: int) -> tuple[xr.Dataset, xr.Dataset]:
    """Return what HAIS, and what a bridge, say of log p(x) of the test images, in one order."""
    ours, theirs = (tree[name(dim)].to_dataset() for name in (truth_label, bridge_label))
    return ours, theirs.sel(trial=ours.trial)


def truth(tree: xr.DataTree, dim: int) -> xr.Dataset:
    """Return log p(x) of the test images with its standard error: both routes, by precision."""
    ours, theirs = routes(tree, dim)
    precision = [1 / route.standard_error**2 for route in (ours, theirs)]
    total = precision[0] + precision[1]
    log_z = (precision[0] * ours.log_z + precision[1] * theirs.log_z) / total
    return xr.Dataset({"log_z": log_z, "standard_error": total**-0.5})


def agreement(tree: xr.DataTree, dim: int) -> Array:
    """Return HAIS less the bridge, in standard errors of the difference, ``(images,)``."""
    ours, theirs = routes(tree, dim)
    sigma = np.hypot(ours.standard_error.values, theirs.standard_error.values)
    return np.asarray((ours.log_z.values - theirs.log_z.values) / sigma)


def truth_difference(tree: xr.DataTree, dim: int) -> Estimate:
    """Return HAIS less the bridge, mean over the test images in nats."""
    ours, theirs = routes(tree, dim)
    return mean((ours.log_z - theirs.log_z).values)


def bounds(tree: xr.DataTree, dim: int) -> xr.Dataset:
    """Return the bounds for simulated images."""
    return tree[bounds_label(dim)].to_dataset()


def gap(tree: xr.DataTree, dim: int) -> Estimate:
    """Return the upper minus the lower bound of simulated images, mean in nats."""
    both = bounds(tree, dim)
    return mean((both.upper - both.lower).values)


def errors(tree: xr.DataTree, condition: str, method: str, dim: int) -> tuple[Array, Array]:
    """Return numbers of transitions ``(k,)`` and errors of log p̂(x) in nats, ``(images, k)``.

    Against the truth for test images, and against the middle of the bounds for simulated ones.
    """
    found = group(tree, condition, method, dim)
    if condition == "simulated":
        both = bounds(tree, dim)
        exact = (both.lower + both.upper) / 2
    else:
        exact = truth(tree, dim).log_z
    error = (found.log_z - exact.sel(trial=found.trial)).transpose("trial", "transitions")
    return found.transitions.values, error.values


def truth_errors(tree: xr.DataTree, condition: str, method: str, dim: int) -> Array:
    """Return the standard errors of the truth that `errors` are against, ``(images,)``.

    For simulated images: half the distance of the bounds.
    """
    found = group(tree, condition, method, dim)
    if condition == "simulated":
        both = bounds(tree, dim)
        return np.asarray(abs(both.upper - both.lower).sel(trial=found.trial).values / 2)
    return np.asarray(truth(tree, dim).standard_error.sel(trial=found.trial).values)


def mean_error(values: Array, own: Array | None = None) -> tuple[Array, Array, Array]:
    """Return the mean over images with a 95 % interval, each ``(k,)``.

    Parameters
    ----------
    values
        Errors ``(images, k)``.
    own
        Standard errors of the truth, ``(images,)``; None (default) if it is exact.
    """
    return over_images(values, own, lambda x: np.asarray(x.mean(0)))


def rms_error(values: Array, own: Array | None = None) -> tuple[Array, Array, Array]:
    """Return the root mean square over images with a 95 % interval; see `mean_error`."""
    return over_images(values, own, _rms)


def difference(
    tree: xr.DataTree,
    ours: Sequence[str],
    theirs: str,
    *,
    start: str = "prior",
    measure: str = "mean",
    transitions: str | int = "all",
    d: str | int = "both",
) -> Estimate:
    """Return measure(theirs) - measure(ours) in nats: positive if ours is nearer to the truth.

    Images are the same for both methods, and are resampled in pairs.

    Parameters
    ----------
    ours
        Methods, of which the one with the largest difference is taken.
    start
        The condition, which says what q_0 is.
    measure
        One of `MEASURES`.
    transitions
        "all": the mean over the numbers of transitions at which both methods were run; "best": the
        one of them at which the difference is largest; "last": the largest; or a number.
    d
        "both": the mean over the latent dimensions of the paper's figure; or one of them.

    Raises
    ------
    ValueError
        If a choice is none of these, or no result has that number of transitions or that d.
    """
    reduce = _measure(measure)
    if isinstance(transitions, str) and transitions not in ("all", "best", "last"):
        raise ValueError(f"transitions must be all, best, last or a number; got {transitions!r}")

    def summary(pairs: Array) -> Array:
        measured = reduce(pairs)  # (d, k, 2)
        ahead = (measured[..., 1] - measured[..., 0]).mean(0)
        return np.asarray(ahead.max() if transitions == "best" else ahead.mean())

    paired = [_together(tree, (one, theirs), start, transitions, d) for one in ours]
    values, own = max(paired, key=lambda pair: float(summary(pair[0])))
    return _estimate(values, own, summary)


def steinis_ahead(
    tree: xr.DataTree,
    kernel: str = "better",
    refresh: str = "full",
    start: str = "prior",
    measure: str = "mean",
    transitions: str | int = "all",
    d: str | int = "both",
) -> Estimate:
    """Return how much nearer SteinIS is than HAIS-1L."""
    theirs = _one(REFRESH, "refresh", refresh)
    return difference(
        tree, _kernels(kernel), theirs, start=start, measure=measure, transitions=transitions, d=d
    )


def ten_ahead(
    tree: xr.DataTree,
    kernel: str = "better",
    start: str = "prior",
    measure: str = "mean",
    transitions: str | int = "all",
    d: str | int = "both",
) -> Estimate:
    """Return how much nearer HAIS-10L is than SteinIS, on the images that it was run on.

    "best" transitions are those at which SteinIS does best in comparison.
    """
    behind = difference(
        tree, _kernels(kernel), "hais-10l",
        start=start, measure=measure, transitions=transitions, d=d,
    )  # fmt: skip
    return Estimate(-behind.value, -behind.high, -behind.low)


def gain(
    tree: xr.DataTree,
    kernel: str = "better",
    start: str = "prior",
    measure: str = "mean",
    d: str | int = "both",
    since: int = 300,
) -> Estimate:
    """Return how many nats SteinIS comes nearer from `since` transitions to the last ones.

    "better" is the kernel that comes nearest to the truth in the end, not that with the largest
    gain, which would be one that begins badly.
    """
    reduce = _measure(measure)

    def summary(values: Array) -> Array:
        measured = reduce(values)  # (d, 2)
        return np.asarray((measured[:, 0] - measured[:, 1]).mean())

    last = {one: _together(tree, (one,), start, "last", d)[0] for one in _kernels(kernel)}
    nearest = min(last, key=lambda one: float(reduce(last[one]).mean()))
    early, own = _together(tree, (nearest,), start, since, d)
    return _estimate(np.concatenate([early, last[nearest]], 2)[..., 0], own, summary)


def distance(
    tree: xr.DataTree,
    kernel: str = "better",
    start: str = "prior",
    measure: str = "mean",
    transitions: str | int = "last",
    d: str | int = "both",
) -> Estimate:
    """Return how far SteinIS is from the truth in nats, the mean over d."""
    reduce = _measure(measure)
    if transitions in ("all", "best"):
        raise ValueError(f"transitions must be last or a number; got {transitions!r}")

    def summary(values: Array) -> Array:
        return np.asarray(reduce(values).mean())

    found = [_together(tree, (one,), start, transitions, d) for one in _kernels(kernel)]
    values, own = min(found, key=lambda pair: float(summary(pair[0])))
    return _estimate(values, own, summary)


def _one(options: dict[str, str], name: str, value: str) -> str:
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(options)}; got {value!r}")
    return options[value]


def _kernels(kernel: str) -> Sequence[str]:
    """The methods of a choice; "better" is the best of the four families."""
    return FAMILIES if kernel == "better" else (_one(KERNELS, "kernel", kernel),)


def _measure(name: str) -> Callable[[Array], Array]:
    if name not in MEASURES:
        raise ValueError(f"measure must be one of {', '.join(MEASURES)}; got {name!r}")
    return MEASURES[name]


def _together(
    tree: xr.DataTree, names: Sequence[str], start: str, transitions: str | int, d: str | int
) -> tuple[Array, Array]:
    """Return errors ``(images, d, k, methods)`` and those of the truth, ``(images, d)``.

    Images and numbers of transitions are those that all the methods were run with.
    """
    columns: list[list[Array]] = []
    own: list[Array] = []
    for dim in FIGURE_6 if d == "both" else [int(d)]:
        found = [errors(tree, start, name, dim) for name in names]
        common = [int(k) for k in found[0][0] if all(k in others for others, _ in found)]
        chosen = common[-1:] if transitions == "last" else common
        if isinstance(transitions, int):
            if transitions not in common:
                raise ValueError(
                    f"{' and '.join(names)} were run with {common} transitions at d = {dim}, "
                    f"not with {transitions}"
                )
            chosen = [transitions]
        columns.append([e[:, [list(k).index(c) for c in chosen]] for k, e in found])
        own.append(truth_errors(tree, start, names[0], dim))
    n = min(len(e) for column in columns for e in column)
    values = np.stack([np.stack([e[:n] for e in column], -1) for column in columns], 1)
    return values, np.stack([e[:n] for e in own], 1)


def _estimate(values: Array, own: Array, summary: Callable[[Array], Array]) -> Estimate:
    value, low, high = over_images(values, own, summary)
    return Estimate(float(value), float(low), float(high))


def over_images(
    values: Array, own: Array | None, summary: Callable[[Array], Array]
) -> tuple[Array, Array, Array]:
    """Return a summary and its 95 % interval, by bootstrap over images, the first axis.

    In each repeat the truth is moved by a draw of its standard errors `own`, ``(images, …)``, if it
    has any.
    """
    if own is None:
        return bootstrap(values, summary)
    rng = np.random.default_rng(1)
    axes = (*own.shape, *[1] * (values.ndim - own.ndim))

    def moved(picked: Array) -> Array:
        shift = (rng.standard_normal(own.shape) * own).reshape(axes)
        return summary(values[picked] - shift[picked])

    _, low, high = bootstrap(np.arange(len(values)), moved)
    return summary(values), low, high
