"""SteinIS with a pool, on the problems of sections 2 to 5, without anything tuned.

Models, images, mixtures and functions are those of the stored results of these sections, so that
methods there can be compared in pairs. The method's constants were found on prototypes: on the
first nine images of section 5 and on those numbered 20 to 25, on the first of section 4's models
and section 2's mixtures, and on the bent mixture. `LOOKED_AT` names the images, which
statistics can leave out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import xarray as xr

from steinis_lib.companion.problems.decoder import DecoderPosterior
from steinis_lib.companion.runner.experiment import Cell, Chunk, Experiment
from steinis_lib.companion.sections.s2_mixtures import problem as gmm_estimation
from steinis_lib.companion.sections.s3_adaptive_is import problem as adaptive_problem
from steinis_lib.companion.sections.s4_rbm import problem as rbm_partition
from steinis_lib.companion.sections.s5_likelihood import problem as vae_likelihood
from steinis_lib.companion.sections.s8_pooled import floor
from steinis_lib.companion.sections.s8_pooled.measuring import along, divergence, weights
from steinis_lib.companion.sections.s8_pooled.settings import (
    CONDITIONS,
    WIDE,
    Pooled,
    image_label,
    mixture_label,
    rbm_label,
    without_label,
)
from steinis_lib.companion.sections.s8_pooled.without import NotWhitened, PrintedBandwidth
from steinis_lib.extensions.pooled import PooledSteinIS
from steinis_lib.importance import ImportanceSample

LOOKED_AT = (*range(9), *range(20, 26))
"""Images of section 5 on which prototypes of the method were tried."""
WITHOUT: dict[str, Callable[..., PooledSteinIS]] = {
    "nothing": PooledSteinIS,
    "affine": partial(PooledSteinIS, affine=False),
    "whitening": partial(NotWhitened, affine=False),
    "width": PrintedBandwidth,
    "pool": PooledSteinIS,
}
"""The ablations on images. Without whitening there is no affine part either, and without a pool
there are no more leaders than build a map."""
ABLATED_AT = 20
"""The latent dimension of the ablations."""
FEW = 100
"""Followers that expectations on mixtures are estimated from: one of section 2's sizes."""
SECTION_2 = gmm_estimation.GMMEstimation()
SECTION_4 = rbm_partition.RBMPartition()
SECTION_5 = vae_likelihood.VAELikelihood()


def cells(p: Pooled) -> list[Cell]:
    """Return a cell for each kind of problem, in each dimension."""
    found = [
        Cell(mixture_label(mixture), p.mixture_trials, partial(on_mixtures, mixture=mixture),
             SECTION_2.trials_per_chunk, method="mixtures")
        for mixture in gmm_estimation.MIXTURES
    ]  # fmt: skip
    found.append(Cell("bent", p.n_repeats, on_bent_mixture, 5))
    found += floor.cells(p)
    found += [
        Cell(rbm_label(condition, dim), p.rbm_trials, partial(on_rbm, condition=condition, dim=dim),
             SECTION_4.trials_per_chunk, method=f"rbm-{condition}")
        for condition in CONDITIONS
        for dim in p.rbm_dims
    ]  # fmt: skip
    found += [
        Cell(without_label(part, dim), p.n_images_without, partial(without, part=part, dim=dim),
             p.images_per_chunk, method=f"without-{part}")
        for dim in {min(p.latent_dims, key=lambda d: abs(d - ABLATED_AT))}
        for part in WITHOUT
    ]  # fmt: skip
    found += [
        Cell(image_label(dim), p.n_images if dim < WIDE else p.n_images_wide,
             partial(on_images, dim=dim), p.images_per_chunk, method="images")
        for dim in p.latent_dims
    ]  # fmt: skip
    return found


def on_images(p: Pooled, chunk: Chunk, *, dim: int) -> xr.Dataset:
    """Estimate log p(x), after some numbers of transitions and from some numbers of followers.

    Images beyond the first ones stop earlier: their later numbers are NaN.
    """
    few = [k for k in p.image_transitions if k < p.long_from]
    transitions = p.image_transitions if chunk.trials[0] < p.n_images_long else few
    found = _on_images(p, chunk, dim, PooledSteinIS, p.n_leaders, tuple(transitions))
    return found.reindex(transitions=list(p.image_transitions))


def without(p: Pooled, chunk: Chunk, *, part: str, dim: int) -> xr.Dataset:
    """The same without a part of the method, as long as all images go."""
    n_leaders = p.leaders_per_step if part == "pool" else p.n_leaders
    few = tuple(k for k in p.image_transitions if k < p.long_from)
    return _on_images(p, chunk, dim, WITHOUT[part], n_leaders, few)


def _on_images(
    p: Pooled, chunk: Chunk, dim: int, kind: Callable[..., PooledSteinIS], n_leaders: int,
    transitions: tuple[int, ...],
) -> xr.Dataset:  # fmt: skip
    model = vae_likelihood.model_of(dim)
    images, _ = vae_likelihood.problem(SECTION_5, model, "prior", chunk.trials)
    target = DecoderPosterior(model.decoder, images)
    sampler = kind(
        target, vae_likelihood.initial(model, "prior", images), n_leaders=n_leaders,
        n_followers=p.image_followers[-1], leaders_per_step=p.leaders_per_step,
    )  # fmt: skip
    state = sampler.init(chunk.generator(), batch_shape=(chunk.n_trials,))
    return along(sampler, state, transitions, partial(weights, sizes=p.image_followers))


def on_rbm(p: Pooled, chunk: Chunk, *, condition: str, dim: int) -> xr.Dataset:
    """Estimate log Z of models of section 4; `error` is what it is off."""
    target = rbm_partition.models(SECTION_4, condition, dim, chunk.n_trials, chunk.number)
    sampler = PooledSteinIS(
        target, rbm_partition.initial(condition, target), n_leaders=p.n_leaders,
        n_followers=p.rbm_followers, leaders_per_step=max(p.leaders_per_step, dim + 3),
    )  # fmt: skip
    state = sampler.init(chunk.generator(), batch_shape=(chunk.n_trials,))
    found = along(sampler, state, p.rbm_transitions, partial(weights, sizes=(p.rbm_followers,)))
    log_z = found.log_z.isel(size=0, drop=True)
    return found.assign(error=log_z - xr.DataArray(target.log_z.numpy(), dims="trial"))


def on_mixtures(p: Pooled, chunk: Chunk, *, mixture: str) -> xr.Dataset:
    """Estimate the expectations of section 2 from `FEW` of the followers, and from all of them.

    `error` is that of the first ones, `error_all` of all of them.
    """
    target, functions, exact = gmm_estimation.problems(
        SECTION_2, mixture, chunk.n_trials, chunk.number
    )
    sampler = PooledSteinIS(
        target, gmm_estimation.start(), n_leaders=p.n_leaders, n_followers=p.mixture_followers,
        leaders_per_step=p.leaders_per_step,
    )  # fmt: skip

    def measure(sample: ImportanceSample) -> xr.Dataset:
        found = weights(sample, (FEW, sample.n)).assign(divergence(sample))
        few = ImportanceSample(sample.particles[..., :FEW, :], sample.log_w[..., :FEW])
        for name, part in (("error", few), ("error_all", sample)):
            error = part.expectation(functions)[0] - exact
            found[name] = (("trial", "quantity"), error.numpy())
        return found.assign_coords(quantity=list(gmm_estimation.QUANTITIES))

    state = sampler.init(chunk.generator(), batch_shape=(chunk.n_trials,))
    return along(sampler, state, p.mixture_transitions, measure)


def on_bent_mixture(p: Pooled, chunk: Chunk) -> xr.Dataset:
    """Run on the bent mixture of section 3, from N(0, I)."""
    target = adaptive_problem.warped(adaptive_problem.AdaptiveComparison(), adaptive_problem.MAIN)
    sampler = PooledSteinIS(
        target, adaptive_problem.start(), n_leaders=p.n_leaders, n_followers=p.plane_followers,
        leaders_per_step=p.leaders_per_step,
    )  # fmt: skip
    state = sampler.init(chunk.generator(), batch_shape=(chunk.n_trials,))
    return along(sampler, state, p.plane_transitions, divergence)


EXPERIMENT = Experiment("pooled", Pooled, cells)
