"""Errors of log p(x) on the images of section 5, and those of methods there at equal cost.

`tree` is this section's result, `section` that of section 5, whose truth errors are against. In
each repeat of the bootstrap over images the truth is moved by a draw of its own error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from steinis_lib.companion.intervals import Array, Estimate, mean
from steinis_lib.companion.sections.s5_likelihood import statistics as likelihood
from steinis_lib.companion.sections.s5_likelihood.problem import label
from steinis_lib.companion.sections.s8_pooled.experiment import LOOKED_AT, WITHOUT
from steinis_lib.companion.sections.s8_pooled.settings import Pooled, image_label, without_label

ALLOWED = 1.02
"""Evaluations count as equal if theirs are at most so many times ours; they may be fewer."""


@dataclass(frozen=True)
class Errors:
    """Errors of log p̂(x) in nats, ``(images,)``, and what an image costs.

    Parameters
    ----------
    own
        Standard errors of the truth, ``(images,)``.
    images
        The images' numbers.
    """

    values: Array
    own: Array
    images: Array
    transitions: int
    evaluations: int

    def rmse(self) -> Estimate:
        """Return the root mean square error."""
        return _scalar(likelihood.rms_error(self.values, self.own))

    def mean(self) -> Estimate:
        """Return the mean error."""
        return _scalar(likelihood.mean_error(self.values, self.own))

    def of(self, images: Array) -> Errors:
        """Return the errors on some of the images, in their order."""
        at = [int(np.flatnonzero(self.images == i)[0]) for i in images]
        return Errors(
            self.values[at], self.own[at], self.images[at], self.transitions, self.evaluations
        )

    def not_looked_at(self) -> Errors:
        """Return the errors on images that no prototype was tried on."""
        return self.of(np.setdiff1d(self.images, LOOKED_AT))


def sizes(tree: xr.DataTree) -> Pooled:
    """Return the parameters that a result was computed with."""
    return Pooled.model_validate_json(tree.attrs["parameters"])


def ours(
    tree: xr.DataTree, section: xr.DataTree, dim: int, transitions: int,
    followers: int | None = None, without: str | None = None,
) -> Errors:  # fmt: skip
    """Return errors of SteinIS with a pool, on the images that went so far.

    Parameters
    ----------
    followers
        |B|: the first of them; all if None.
    without
        One of the parts in `experiment.WITHOUT`.
    """
    at = _run(tree, dim, without).sel(transitions=transitions)
    log_z = at.log_z.isel(size=-1) if followers is None else at.log_z.sel(size=followers)
    done = np.flatnonzero(np.isfinite(log_z.values))
    used = int(at.scores.values[done[0]]) + int(log_z.coords["size"])
    return _against_truth(log_z.isel(trial=done), section, dim, transitions, used)


def theirs(
    section: xr.DataTree, method: str, dim: int, transitions: int | None = None,
    evaluations: float = np.inf,
) -> Errors:  # fmt: skip
    """Return errors of a method of section 5 from the prior.

    Parameters
    ----------
    transitions
        The fewest of its stored numbers that are not less, the last one if all are. None: the most
        with not more than `ALLOWED` × `evaluations`, the fewest if none is.
    """
    found = section[label("prior", method, dim)].to_dataset()
    costs, numbers = found.evaluations.values[0], found.transitions.values
    fits = costs <= ALLOWED * evaluations if transitions is None else numbers < transitions
    places = int(fits.sum()) - (transitions is None)
    at = int(np.clip(places, 0, len(numbers) - 1))
    log_z = found.log_z.isel(transitions=at)
    return _against_truth(log_z, section, dim, int(numbers[at]), int(costs[at]))


def equal_evaluations(mine: Errors, section: xr.DataTree, method: str, dim: int) -> Errors:
    """Return errors of a method of section 5 that has the evaluations of ours; see `theirs`."""
    return theirs(section, method, dim, evaluations=mine.evaluations)


def rmse_ratio(mine: Errors, other: Errors) -> Estimate:
    """Return RMSE(ours)/RMSE(theirs) on the images that both have, resampled in pairs."""
    both = np.intersect1d(mine.images, other.images)
    mine, other = mine.of(both), other.of(both)
    values = np.stack([mine.values, other.values], -1)
    return _scalar(likelihood.over_images(values, mine.own, _ratio_of_rms))


def _ratio_of_rms(values: Array) -> Array:
    first, second = np.square(values).mean(0)
    return np.asarray(np.sqrt(first / second))


def divergence(tree: xr.DataTree, section: xr.DataTree, dim: int, without: str) -> Estimate:
    """Return KL(q‖p) without a part of the method, mean over images: log p(x) less mean log w."""
    at = _run(tree, dim, without).isel(transitions=-1)
    exact = likelihood.truth(section, dim).log_z.sel(trial=at.trial)
    return mean((exact - at.mean_log_w).values)


def parts(tree: xr.DataTree) -> tuple[int, list[str], int]:
    """Return the d of the ablations, their names in `WITHOUT`, and the last transition of all."""
    d = next(d for d in sizes(tree).latent_dims if without_label("nothing", d) in tree.children)
    return d, list(WITHOUT), int(_run(tree, d, "nothing").transitions.values[-1])


def share_of_images(tree: xr.DataTree, dim: int, transitions: int, name: str) -> Estimate:
    """Return the mean of `ess` or `pareto_k` over the images that went so far."""
    values = _run(tree, dim, None)[name].sel(transitions=transitions).values
    return mean(values[np.isfinite(values)])


def _run(tree: xr.DataTree, dim: int, without: str | None) -> xr.Dataset:
    return tree[image_label(dim) if without is None else without_label(without, dim)].to_dataset()


def _against_truth(
    log_z: xr.DataArray, section: xr.DataTree, dim: int, transitions: int, evaluations: int
) -> Errors:
    exact = likelihood.truth(section, dim).sel(trial=log_z.trial)
    return Errors(
        values=(log_z - exact.log_z).values,
        own=exact.standard_error.values,
        images=log_z.trial.values,
        transitions=transitions,
        evaluations=evaluations,
    )


def _scalar(found: tuple[Array, Array, Array]) -> Estimate:
    return Estimate(*map(float, found))
