"""Variants of SteinIS that go beyond the paper, each on the problem of another section.

Densities stay exactly tracked in all of them, so that Ẑ is unbiased; the bridge's is consistent.
Problems are those of the stored results of sections 2 to 5, with the same random parts, so that the
methods there can be compared. What is chosen on pilot runs has twelve candidates, as in the other
sections. The constants of `plane`, `modes` and `images` were found by hand, on prototypes of these
very problems.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

import torch
import xarray as xr
from torch import Tensor

from steinis_lib.companion.counting import Counted
from steinis_lib.companion.problems.rbm import GaussBernoulliRBM
from steinis_lib.companion.runner.experiment import Cell, Chunk, Experiment
from steinis_lib.companion.sections.s2_mixtures import problem as gmm_estimation
from steinis_lib.companion.sections.s3_adaptive_is import problem as adaptive_problem
from steinis_lib.companion.sections.s4_rbm import problem as rbm_partition
from steinis_lib.companion.sections.s7_extensions import modes, plane
from steinis_lib.companion.sections.s7_extensions.images import ENDS, on_images, tune_on_images
from steinis_lib.companion.sections.s7_extensions.settings import (
    IMAGE_VARIANTS,
    MIXTURE_SIZE,
    TRUTH,
    Beyond,
    end_kind,
    image_label,
    mixture_label,
    rbm_label,
    tuning_label,
    warped_label,
)
from steinis_lib.importance import ImportanceSample, importance_sampling
from steinis_lib.targets.base import Gaussian


def cells(p: Beyond) -> list[Cell]:
    """Return the pilots for images, and a cell for each variant on each problem."""
    found = [
        Cell(tuning_label(kind, dim), 1, partial(tune_on_images, kind=kind, dim=dim))
        for kind in ENDS
        for dim in p.latent_dims
    ]
    found += [
        Cell(warped_label(variant), p.n_repeats, partial(on_warped_mixture, variant=variant))
        for variant in plane.ON_WARPED
    ]
    found += [
        Cell(
            mixture_label(mixture, variant), p.mixture_trials,
            partial(on_mixtures, mixture=mixture, variant=variant), p.trials_per_chunk,
        )
        for mixture in gmm_estimation.MIXTURES
        for variant in plane.ON_MIXTURES
    ]  # fmt: skip
    found += [
        Cell(rbm_label(dim), p.rbm_trials, partial(on_rbm, dim=dim), method="rbm")
        for dim in p.rbm_dims
    ]
    found += [
        Cell(
            image_label(variant, dim), p.n_images,
            partial(on_images, variant=variant, dim=dim), p.images_per_chunk,
            pilots=(tuning_label(end_kind(variant), dim),), method=f"vae-{variant}",
        )
        for dim in p.latent_dims
        for variant in (TRUTH, *IMAGE_VARIANTS)
    ]  # fmt: skip
    return found


def on_warped_mixture(p: Beyond, chunk: Chunk, *, variant: str) -> xr.Dataset:
    """Run a variant once on the bent mixture of section 3."""
    target = adaptive_problem.warped(adaptive_problem.AdaptiveComparison(), adaptive_problem.MAIN)
    sample, costs = plane.run_variant(
        variant, target, adaptive_problem.start(), p.plane, p.n_followers, chunk.generator(),
        batch_shape=(1,),
    )  # fmt: skip
    return _dataset({
        "kl": -sample.log_w.mean(-1),
        "log_z": sample.log_z,
        "ess": sample.ess / sample.n,
        "pareto_k": sample.pareto_k,
        **costs,
    })  # fmt: skip


def on_mixtures(p: Beyond, chunk: Chunk, *, mixture: str, variant: str) -> xr.Dataset:
    """Run a variant on the first mixtures of section 2, and estimate the same expectations.

    Section 2 draws its mixtures in chunks. Each of its chunks that has one of our trials is run as
    a whole, one after the other from the same stream, and our trials are selected then.
    """
    size, generator = gmm_estimation.GMMEstimation().trials_per_chunk, chunk.generator()
    first, last = chunk.trials[0] // size, chunk.trials[-1] // size
    parts = [
        _on_chunk_of_section_2(p, mixture, variant, number, generator)
        for number in range(first, last + 1)
    ]
    return xr.concat(parts, "trial").sel(trial=list(chunk.trials))


def _on_chunk_of_section_2(
    p: Beyond, mixture: str, variant: str, number: int, generator: torch.Generator
) -> xr.Dataset:
    """Run a variant on all trials of a chunk of section 2."""
    theirs = gmm_estimation.GMMEstimation()
    size = theirs.trials_per_chunk
    target, functions, exact = gmm_estimation.problems(theirs, mixture, size, number)
    sample, costs = plane.run_variant(
        variant, target, gmm_estimation.start(), p.small_plane, MIXTURE_SIZE, generator,
        batch_shape=(size,),
    )  # fmt: skip
    dataset = _dataset({
        "log_z": sample.log_z,
        "kl": -sample.log_w.mean(-1),
        "ess": sample.ess / sample.n,
        **costs,
    })  # fmt: skip
    error = sample.expectation(functions)[0] - exact
    dataset["error"] = (("trial", "quantity"), error.numpy())
    trials = range(number * size, (number + 1) * size)
    return dataset.assign_coords(trial=trials, quantity=list(gmm_estimation.QUANTITIES))


def on_rbm(p: Beyond, chunk: Chunk, *, dim: int) -> xr.Dataset:
    """Fit Gaussians at the modes of a model of section 4, in its standard condition.

    The mixture is weighed; and HAIS and a bridge go on from it.
    """
    model, generator = _model(dim, chunk.number), chunk.generator()
    began = time.perf_counter()
    counted = Counted(model)
    q0 = Gaussian.isotropic(torch.zeros(dim, dtype=torch.float64))
    mixture, stages = modes.at_modes(counted, q0, p.rbm_exploring, generator)
    fitted = counted.n
    sample = importance_sampling(counted, mixture, (p.rbm_draws,), generator)
    seconds = time.perf_counter() - began
    annealed, calls = modes.ANNEALING.run(counted, mixture, modes.N_CHAINS, generator)
    before = counted.n
    bridged = modes.bridge(counted, mixture, p.rbm_draws, generator)
    few = ImportanceSample(sample.particles[:100], sample.log_w[:100])
    found = {
        "error": sample.log_z - model.log_z,
        "error_100": few.log_z - model.log_z,
        "standard_error": sample.log_z_se,
        "ess": sample.ess / sample.n,
        "error_annealed": annealed.log_z - model.log_z,
        "error_bridged": bridged.log_z - model.log_z,
        "standard_error_bridged": bridged.log_z_se,
        "pareto_k": sample.pareto_k,
        "likeliest": model.state_log_probs.amax(-1).exp(),
        "modes": torch.tensor(len(mixture.log_weights)),
        "seconds": torch.tensor(seconds),
        "evaluations": torch.tensor(fitted + p.rbm_draws),
        "evaluations_annealed": torch.tensor(fitted + calls),
        "evaluations_bridged": torch.tensor(fitted + counted.n - before),
        **{stage: torch.tensor(n) for stage, n in stages.items()},
    }
    return _dataset({name: value.reshape(1) for name, value in found.items()})


def _model(dim: int, trial: int) -> GaussBernoulliRBM:
    """The model of a trial of section 4, which draws its models in chunks."""
    theirs = rbm_partition.RBMPartition()
    number, place = divmod(trial, theirs.trials_per_chunk)
    batch = rbm_partition.models(theirs, "standard", dim, theirs.trials_per_chunk, number)
    return GaussBernoulliRBM(batch.coupling[place], batch.bias_x[place], batch.bias_h[place])


def _dataset(found: Mapping[str, Tensor]) -> xr.Dataset:
    """One number a trial for each name; `seconds` have their unit."""
    return xr.Dataset({
        name: (("trial",), value.numpy(), {"units": "s"} if name == "seconds" else {})
        for name, value in found.items()
    })  # fmt: skip


EXPERIMENT = Experiment("beyond", Beyond, cells)
