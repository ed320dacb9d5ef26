"""The likelihood of images under deep generative models (section 5.4, Figure 6).

Each image x is a problem of its own: Z = p(x), with p̄(z) = p(x, z) over the decoder's latent z.
There are three conditions at each latent dimension. "prior": test images of MNIST, and
q_0 = N(0, I). "encoder": the same images, and q_0 is the encoder's q(z | x). "simulated": images
drawn from the decoder, and the encoder's q_0.

A posterior sample is known for simulated images, so bidirectional Monte Carlo bounds their log p(x)
on both sides. The same long runs, upwards only, are the truth for the test images.
"""

from __future__ import annotations

from functools import partial

import torch
import xarray as xr
from torch import Tensor

from steinis_lib.baselines.geometric_path import linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.companion.methods import (
    METHODS,
    TUNED,
    Reading,
    Sampler,
    Setting,
    along_transitions,
    annealing_candidates,
    build_sampler,
    readings,
    tuned_as,
)
from steinis_lib.companion.problems.decoder import DecoderPosterior
from steinis_lib.companion.runner.experiment import Cell, Chunk, Experiment
from steinis_lib.companion.sections.s5_likelihood.bidirectional import bidirectional
from steinis_lib.companion.sections.s5_likelihood.problem import (
    CONDITIONS,
    EXACT_UP_TO,
    NAME,
    VAELikelihood,
    bounds_label,
    initial,
    label,
    model_of,
    problem,
    truth_label,
    tuning_label,
)
from steinis_lib.companion.tuning import chosen, tune_sampler, tuning_record
from steinis_lib.stein.maps import Determinant


def candidates(method: str) -> list[Setting]:
    """Return twelve candidates for every tuned method, so that all have the same budget."""
    if method == "steinis":  # the paper's own family: α and β, its bandwidth rule
        return [Setting(a, b, 1.0) for a in (0.01, 0.1, 1.0, 10.0) for b in (0.0, 0.3, 0.6)]
    if method == "steinis-wide":  # and a multiplier of the bandwidth
        schedules = ((0.01, 0.0), (0.05, 0.3), (0.15, 0.3), (0.5, 0.6))
        return [Setting(a, b, m) for a, b in schedules for m in (8.0, 24.0, 60.0)]
    return annealing_candidates(method, smallest=0.0125)


def cells(p: VAELikelihood) -> list[Cell]:
    """Return the long runs, and tuning and estimates of all methods, at each latent dimension."""
    found = []
    for dim in p.latent_dims:
        step = tuning_label("encoder", "hais-10l", dim)  # whose step the long runs take
        found += [
            Cell(
                truth_label(dim), p.n_images, partial(long_runs, dim=dim), p.images_per_chunk,
                pilots=(step,), method="truth",
            ),
            Cell(
                bounds_label(dim), p.n_simulated, partial(bound, dim=dim), p.images_per_chunk,
                pilots=(step,), method="bounds",
            ),
        ]  # fmt: skip
        for condition in CONDITIONS:
            if condition != "simulated":
                found += [
                    Cell(
                        tuning_label(condition, method, dim),
                        1,
                        partial(tune_method, condition=condition, method=method, dim=dim),
                        method=f"{condition}-tuning-{method}",
                    )
                    for method in TUNED
                ]
            for method in METHODS:
                tuning = _tuning_of(condition, method, dim)
                found.append(
                    Cell(
                        label(condition, method, dim),
                        _n_images(p, condition, method),
                        partial(estimate, condition=condition, method=method, dim=dim),
                        p.images_per_chunk,
                        pilots=() if tuning is None else (tuning,),
                        method=f"{condition}-{method}",
                    )
                )
    return found


def _tuning_of(condition: str, method: str, dim: int) -> str | None:
    """The cell that chose a method's setting. Simulated images take the settings of "encoder"."""
    if method == "is":
        return None
    return tuning_label("encoder" if condition == "simulated" else condition, tuned_as(method), dim)


def _n_images(p: VAELikelihood, condition: str, method: str) -> int:
    n = p.n_simulated if condition == "simulated" else p.n_images
    return min(n, p.n_images_long) if method == "hais-10l" else n


def estimate(
    p: VAELikelihood, chunk: Chunk, *, condition: str, method: str, dim: int
) -> xr.Dataset:
    """Run one chunk of images with one method."""
    model = model_of(dim)
    images, _ = problem(p, model, condition, chunk.trials)
    tuning = _tuning_of(condition, method, dim)
    setting = None if tuning is None else chosen(chunk.pilots[tuning])
    points = p.transitions_long if method == "hais-10l" else p.transitions
    found = readings(
        method, DecoderPosterior(model.decoder, images), initial(model, condition, images), setting,
        points[-1:] if condition == "simulated" else points, chunk.generator(),
        batch_shape=(chunk.n_trials,), n_leaders=p.n_leaders, n_followers=p.n_followers,
        determinant=_determinant(dim),
    )  # fmt: skip
    return along_transitions({r.n_transitions: _measured(r) for r in found})


def _measured(reading: Reading) -> dict[str, Tensor]:
    """What is kept of a method's estimate, each ``(images,)``."""
    sample = reading.sample
    found = {
        "log_z": sample.log_z,
        "mean_log_w": sample.log_w.mean(-1),
        "ess": sample.ess / sample.n,
        "pareto_k": sample.pareto_k,
        "evaluations": torch.full_like(sample.ess, reading.n_evaluations),
    }
    if reading.steinis is not None:
        _, after, _ = reading.steinis
        found["n_folds"] = after.n_folds
    return found


def long_runs(p: VAELikelihood, chunk: Chunk, *, dim: int) -> xr.Dataset:
    """Estimate log p(x) of test images by long runs of many chains, from the encoder's Gaussian."""
    model = model_of(dim)
    images, _ = problem(p, model, "encoder", chunk.trials)
    sampler = HAIS(
        DecoderPosterior(model.decoder, images), initial(model, "encoder", images),
        n_particles=p.truth_chains, schedule=linear_schedule(p.truth_transitions),
        step_size=_long_step(chunk, dim), n_leapfrog=p.truth_leapfrogs,
    )  # fmt: skip
    end = sampler.run(sampler.init(chunk.generator(), batch_shape=(chunk.n_trials,)))
    sample = sampler.importance_sample(end)
    return _per_image({
        "log_z": sample.log_z,
        "standard_error": sample.log_z_se,
        "ess": sample.ess / sample.n,
        "pareto_k": sample.pareto_k,
    })  # fmt: skip


def bound(p: VAELikelihood, chunk: Chunk, *, dim: int) -> xr.Dataset:
    """Bound log p(x) of simulated images on both sides, from the encoder's Gaussian."""
    model = model_of(dim)
    images, latents = problem(p, model, "simulated", chunk.trials)
    assert latents is not None
    bounds = bidirectional(
        DecoderPosterior(model.decoder, images), initial(model, "encoder", images), latents,
        chunk.generator(), n_chains=p.truth_chains, schedule=linear_schedule(p.truth_transitions),
        step_size=_long_step(chunk, dim), n_leapfrog=p.truth_leapfrogs,
    )  # fmt: skip
    return _per_image({"lower": bounds.lower, "upper": bounds.upper})


def _long_step(chunk: Chunk, dim: int) -> float:
    """The leapfrog step of long runs: that chosen for HAIS-10L from the encoder's Gaussian."""
    return chosen(chunk.pilots[tuning_label("encoder", "hais-10l", dim)]).alpha


def _per_image(values: dict[str, Tensor]) -> xr.Dataset:
    return xr.Dataset({name: ("trial", v.numpy()) for name, v in values.items()})


def tune_method(
    p: VAELikelihood, chunk: Chunk, *, condition: str, method: str, dim: int
) -> xr.Dataset:
    """Try all candidates of a method on the same pilot images, the last of the random order."""
    model = model_of(dim)
    images, _ = problem(p, model, condition, range(1000 - p.tuning_images, 1000))
    target, q0 = DecoderPosterior(model.decoder, images), initial(model, condition, images)
    k = p.tuning_transitions // 10 if method == "hais-10l" else p.tuning_transitions

    def build(setting: Setting) -> Sampler:
        return build_sampler(
            method, target, q0, setting, k, n_leaders=p.n_leaders, n_followers=p.n_followers,
            determinant=_determinant(dim),
        )  # fmt: skip

    generator = chunk.stream(f"{label(condition, method, dim)}-pilots", 0)
    return tuning_record(
        tune_sampler(candidates(method), build, k, generator, repeats=p.tuning_images)
    )


def _determinant(dim: int) -> Determinant:
    return "exact" if dim <= EXACT_UP_TO else "first-order"


EXPERIMENT = Experiment(NAME, VAELikelihood, cells)
