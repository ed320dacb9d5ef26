"""The paper's claims on Figures 3 to 6, by SteinIS with a pool and whitened kernels.

Statistics are those of the claims' primary readings where the runs allow it. Where a claim is about
as many transitions, methods are compared at equal evaluations instead: a transition of ours takes
more scores than one of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import xarray as xr

from steinis_lib.companion.intervals import Array, Estimate, mean
from steinis_lib.companion.section import SecondLook
from steinis_lib.companion.sections.s3_adaptive_is import statistics as adaptive
from steinis_lib.companion.sections.s4_rbm import statistics as partition
from steinis_lib.companion.sections.s5_likelihood import statistics as likelihood
from steinis_lib.companion.sections.s8_pooled import images, machines, plane
from steinis_lib.companion.sections.s8_pooled.images import Errors


def mse_rate(ours: xr.DataTree, theirs: xr.DataTree) -> Estimate:
    """Slope of log MSE in log |B| on easy mixtures, from 100 to 1000, mean over tasks."""
    return plane.mse_rate(ours)


def near_direct(ours: xr.DataTree, theirs: xr.DataTree) -> Estimate:
    """MSE of expectations over that of direct sampling, on easy mixtures."""
    return plane.mse_ratio(ours, theirs, "easy", "direct", sizes=tuple(plane.SIZES))


def svgd_near(ours: xr.DataTree, theirs: xr.DataTree) -> Estimate:
    """MSE of expectations of SVGD over ours, with 100 particles and followers."""
    return _inverse(plane.mse_ratio(ours, theirs, "easy", "svgd"))


def path_integration(ours: xr.DataTree, theirs: xr.DataTree) -> Estimate:
    """MSE of Ẑ by path integration over ours, with 100 particles and followers."""
    return _inverse(plane.mse_ratio(ours, theirs, "easy", "svgd", tasks=("Z",)))


def warped_kl(ours: xr.DataTree, theirs: xr.DataTree) -> Estimate:
    """KL on the bent mixture after the last transition."""
    return mean(plane.bent_kl(ours))


def adaptive_order(ours: xr.DataTree, theirs: xr.DataTree) -> Estimate:
    """KL on the bent mixture over that of adaptive IS at its best scale."""
    return adaptive.ratio_of_means(plane.bent_kl(ours), adaptive.fixed_components_kl(theirs))


def rbm_to_hais(ours: xr.DataTree, theirs: xr.DataTree) -> Estimate:
    """Error over that of HAIS-1L from N(0, I), at the largest d."""
    return _rbm(ours, theirs, "hais-1l", _rbm_dims(ours, theirs)[-1])


def rbm_across_d(ours: xr.DataTree, theirs: xr.DataTree) -> Estimate:
    """The same at the worst d, after the last of our transitions."""
    ratios = [_rbm(ours, theirs, "hais-1l", d, last=True) for d in _rbm_dims(ours, theirs)]
    return max(ratios, key=lambda e: e.value)


def ais_to_rbm(ours: xr.DataTree, theirs: xr.DataTree) -> Estimate:
    """Error of AIS over ours from N(0, I), at the largest d."""
    return _inverse(_rbm(ours, theirs, "ais", _rbm_dims(ours, theirs)[-1]))


def _rbm(
    ours: xr.DataTree, theirs: xr.DataTree, method: str, dim: int, last: bool = False
) -> Estimate:
    numbers = images.sizes(ours).rbm_transitions
    mine = [machines.ours(ours, "standard", dim, k) for k in (numbers[-1:] if last else numbers)]
    return machines.rmse_ratio(
        *((e, machines.theirs(theirs, "standard", method, dim, e.evaluations)) for e in mine)
    )


def _rbm_dims(ours: xr.DataTree, theirs: xr.DataTree) -> list[int]:
    return [d for d in images.sizes(ours).rbm_dims if d in partition.dims(theirs)]


def vae_to_hais(ours: xr.DataTree, theirs: xr.DataTree) -> Estimate:
    """|Mean error| of HAIS-1L less ours, mean over d and over runs with equal evaluations."""
    pairs = [
        [(e, images.equal_evaluations(e, theirs, "hais-1l", d)) for e in _along(ours, theirs, d)]
        for d in _image_dims(ours)
    ]
    return _difference([_with_equal_cost(of_d) for of_d in pairs])


def ten_to_vae(ours: xr.DataTree, theirs: xr.DataTree) -> Estimate:
    """Our |mean error| less that of HAIS-10L after as many transitions or more."""
    pairs = [
        [(images.theirs(theirs, "hais-10l", d, e.transitions), e) for e in _along(ours, theirs, d)]
        for d in _image_dims(ours)
    ]
    return _difference(pairs)


def more_transitions(ours: xr.DataTree, theirs: xr.DataTree) -> Estimate:
    """Our |mean error| after the second number of transitions less that after the last one."""
    found = [_along(ours, theirs, d) for d in _image_dims(ours)]
    return _difference([[(of_d[-1], of_d[min(1, len(of_d) - 2)])] for of_d in found])


def performs_well(ours: xr.DataTree, theirs: xr.DataTree) -> Estimate:
    """Our |mean error| after the last transition, mean over d."""
    last = [[(e := _along(ours, theirs, d)[-1], e)] for d in _image_dims(ours)]
    values, own = _stacked(last)
    return _estimate(values, own, lambda x: np.nanmean(np.abs(_mean_of_those_there(x[..., 0]))))


def _image_dims(ours: xr.DataTree) -> list[int]:
    """The d of the paper's figure, or all that were run if none of these was."""
    run = images.sizes(ours).latent_dims
    return [d for d in run if d in likelihood.FIGURE_6] or list(run)


def _along(ours: xr.DataTree, theirs: xr.DataTree, dim: int) -> list[Errors]:
    return [images.ours(ours, theirs, dim, k) for k in images.sizes(ours).image_transitions]


def _with_equal_cost(pairs: list[tuple[Errors, Errors]]) -> list[tuple[Errors, Errors]]:
    """Leave out the pairs in which the other method has clearly fewer evaluations."""
    fair = [
        (mine, other)
        for mine, other in pairs
        if mine.evaluations <= images.ALLOWED * other.evaluations
    ]
    return fair or pairs


def _difference(pairs: list[list[tuple[Errors, Errors]]]) -> Estimate:
    """Return |mean error| of the second less that of the first, mean over d and over pairs."""
    values, own = _stacked(pairs)

    def summary(x: Array) -> Array:
        size = np.abs(_mean_of_those_there(x))
        return np.asarray(np.nanmean(size[..., 1] - size[..., 0]))

    return _estimate(values, own, summary)


def _mean_of_those_there(x: Array) -> Array:
    """The mean over images that were run; NaN where a resample has none, or there is no pair."""
    count = np.isfinite(x).sum(0)
    return np.asarray(np.where(count > 0, np.nansum(x, 0) / np.maximum(count, 1), np.nan))


def _stacked(pairs: list[list[tuple[Errors, Errors]]]) -> tuple[Array, Array]:
    """Return errors ``(images, d, pairs, 2)`` and the truth's, ``(images, d)``.

    An image that a pair was not run on has NaN there. It is resampled with all that it has.
    """
    every = sorted({int(i) for of_d in pairs for pair in of_d for e in pair for i in e.images})
    rows = {image: row for row, image in enumerate(every)}
    values = np.full((len(every), len(pairs), max(map(len, pairs)), 2), np.nan)
    own = np.zeros(values.shape[:2])
    for k, of_d in enumerate(pairs):
        for m, (one, other) in enumerate(of_d):
            both = np.intersect1d(one.images, other.images)
            at = [rows[int(i)] for i in both]
            for column, e in enumerate((one.of(both), other.of(both))):
                values[at, k, m, column] = e.values
                own[at, k] = e.own
    return values, own


def _estimate(values: Array, own: Array, summary: Callable[[Array], Array]) -> Estimate:
    return Estimate(*map(float, likelihood.over_images(values, own, summary)))


def _inverse(e: Estimate) -> Estimate:
    return Estimate(1 / e.value, 1 / e.high, 1 / e.low)


EQUAL = "at equal evaluations"
WITH_POOL: Mapping[str, SecondLook | str] = {
    "mse-rate": SecondLook(mse_rate, "from |B| = 100 to 1000, all tasks, easy mixtures"),
    "steinis-near-direct": SecondLook(
        near_direct, "expectations on easy mixtures, |B| = 100 and 1000, the same mixtures"
    ),
    "svgd-near-steinis": SecondLook(
        svgd_near, "expectations on easy mixtures, 100 particles and 100 followers"
    ),
    "path-integration-worse": SecondLook(
        path_integration, "Ẑ on easy mixtures, 100 particles and 100 followers"
    ),
    "warped-kl": SecondLook(warped_kl, "after the last of our transitions, estimated by followers"),
    "adaptive-is-kl": "not about SteinIS",
    "adaptive-is-order": SecondLook(
        adaptive_order, "after the last of our transitions, against weights of least variance"
    ),
    "mixtures-cannot": "not about SteinIS",
    "rbm-steinis-hais": SecondLook(rbm_to_hais, f"largest d, {EQUAL}"),
    "rbm-across-d": SecondLook(
        rbm_across_d, "worst d; where HAIS-1L is stored at more evaluations only, at those"
    ),
    "rbm-ais-steinis": SecondLook(ais_to_rbm, f"largest d, {EQUAL}"),
    "rbm-ais-hais": "not about SteinIS",
    "vae-steinis-hais": SecondLook(vae_to_hais, f"d = 20 and 50, {EQUAL}"),
    "vae-hais-ten": SecondLook(
        ten_to_vae, "d = 20 and 50, per transition; HAIS-10L at the next number that is stored"
    ),
    "vae-more-transitions": SecondLook(
        more_transitions, "d = 20 and 50, from our second number of transitions to the last"
    ),
    "vae-performs-well": SecondLook(performs_well, "d = 20 and 50, after the last transition"),
    "kl-exponential-svgd": "not about SteinIS",
    "ksd-exponential-svgd": "not about SteinIS",
    "kl-rate-is-ksd": "not about SteinIS",
}
