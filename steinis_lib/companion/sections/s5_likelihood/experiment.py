"""The likelihood of images under deep generative models (section 5.4, Figure 6).

Each image x is a problem of its own: Z = p(x), with p̄(z) = p(x, z) over the decoder's latent z.
There are three conditions at each latent dimension. "prior": test images of MNIST, and
q_0 = N(0, I). "encoder": the first of the same images, and q_0 is the encoder's q(z | x).
"simulated": images drawn from the decoder, and the encoder's q_0. All methods are run from the
prior; those that the other conditions need are `FROM_ENCODER`.

What log p(x) is comes from runs of another kind; see `truth`.
"""

from __future__ import annotations

from functools import partial

import torch
import xarray as xr
from torch import Tensor

from steinis_lib.companion.method_readings import Reading, along_transitions, readings
from steinis_lib.companion.methods import Sampler, build_sampler
from steinis_lib.companion.problems.decoder import DecoderPosterior
from steinis_lib.companion.runner.experiment import Cell, Chunk, Experiment
from steinis_lib.companion.sections.s5_likelihood.problem import (
    AT_HAND,
    CONDITIONS,
    EXACT_UP_TO,
    NAME,
    VAELikelihood,
    bounds_label,
    bridge_label,
    initial,
    label,
    model_of,
    problem,
    truth_label,
    tuning_label,
)
from steinis_lib.companion.sections.s5_likelihood.truth import (
    bound,
    by_bridge,
    by_hais,
    rough_log_z,
)
from steinis_lib.companion.settings import FAMILIES, METHODS, TUNED, Setting, axes_of, tuned_as
from steinis_lib.companion.tuning import tune_sampler
from steinis_lib.companion.tuning_records import chosen, tuning_record
from steinis_lib.stein.maps import Determinant

EXTRA = ("steinis-leaders", "hais-1l-partial", "ais-unadjusted")
"""The methods that have `n_images_extra` images from the prior."""
FROM_ENCODER = ("is", *FAMILIES, "hais-1l", "hais-10l", "ais")
"""The methods of conditions "encoder" and "simulated"."""
LONG_PER_CHUNK = 2
"""Images of HAIS-10L that are computed and stored together: each takes ten times as long."""
SMALLEST_STEP = 0.0125
"""Of a leapfrog, in the first grid of the tuning: posteriors are narrow."""


def methods(condition: str) -> tuple[str, ...]:
    """Return the methods that are run under a condition."""
    return METHODS if condition == "prior" else FROM_ENCODER


def cells(p: VAELikelihood) -> list[Cell]:
    """Return truths and bounds, and tuning and estimates of all methods, at each dimension."""
    found = []
    for dim in p.latent_dims:
        found += [
            Cell(name, n, partial(compute, dim=dim), p.images_per_chunk, method=name.split("-")[0])
            for name, n, compute in (
                (truth_label(dim), p.n_images, by_hais),
                (bridge_label(dim), p.n_images, by_bridge),
                (bounds_label(dim), p.n_simulated, bound),
            )
        ]
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
                    if method in methods(condition)
                ]
            for method in methods(condition):
                tuning = tuning_of(condition, method, dim)
                found.append(
                    Cell(
                        label(condition, method, dim),
                        images_of(p, condition, method),
                        partial(estimate, condition=condition, method=method, dim=dim),
                        LONG_PER_CHUNK if method == "hais-10l" else p.images_per_chunk,
                        pilots=() if tuning is None else (tuning,),
                        method=f"{condition}-{method}",
                    )
                )
    return found


def tuning_of(condition: str, method: str, dim: int) -> str | None:
    """Return the label of the cell that chose a method's setting; plain IS has none.

    Simulated images take the settings of "encoder".
    """
    if method == "is":
        return None
    return tuning_label("encoder" if condition == "simulated" else condition, tuned_as(method), dim)


def images_of(p: VAELikelihood, condition: str, method: str) -> int:
    """Return how many images a method gets under a condition."""
    if condition != "prior":
        return p.n_images_encoder if condition == "encoder" else p.n_simulated
    if method == "hais-10l":
        return p.n_images_long
    return p.n_images_extra if method in EXTRA else p.n_images


def transitions_of(p: VAELikelihood, condition: str, method: str) -> tuple[int, ...]:
    """Return after how many transitions estimates are kept, rising.

    HAIS-10L leaves out the most where it does not start from the prior, as it costs most. Simulated
    images have one number.
    """
    points = p.transitions
    if method == "hais-10l" and condition != "prior":
        points = points[:-1] or points
    return points[-1:] if condition == "simulated" else points


def estimate(
    p: VAELikelihood, chunk: Chunk, *, condition: str, method: str, dim: int
) -> xr.Dataset:
    """Run one chunk of images with one method."""
    model = model_of(dim)
    images, _ = problem(p, model, condition, chunk.trials)
    tuning = tuning_of(condition, method, dim)
    setting = None if tuning is None else chosen(chunk.pilots[tuning])
    found = readings(
        method, DecoderPosterior(model.decoder, images), initial(model, condition, images), setting,
        transitions_of(p, condition, method), chunk.generator(),
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
    }
    if reading.steinis is not None:
        _, after, _ = reading.steinis
        found["n_folds"] = after.n_folds
    evaluations = torch.full_like(sample.ess, reading.n_evaluations)
    return reading.or_nothing(found) | {"evaluations": evaluations}


def tune_method(
    p: VAELikelihood, chunk: Chunk, *, condition: str, method: str, dim: int
) -> xr.Dataset:
    """Search for a method's setting on pilot images, the last of the random order.

    HAIS-10L takes a tenth of the transitions, so that its pilots cost what those of others do. For
    "steinis-leaders", whose mean log-weight is no bound, the error of log Ẑ decides.
    """
    model = model_of(dim)
    images, _ = problem(p, model, condition, range(AT_HAND - p.tuning_images, AT_HAND))
    target, q0 = DecoderPosterior(model.decoder, images), initial(model, condition, images)
    k = p.tuning_transitions // 10 if method == "hais-10l" else p.tuning_transitions

    def build(setting: Setting) -> Sampler:
        return build_sampler(
            method, target, q0, setting, k, n_leaders=p.n_leaders, n_followers=p.n_followers,
            determinant=_determinant(dim),
        )  # fmt: skip

    tried = tune_sampler(
        axes_of(method, SMALLEST_STEP), build, k,
        chunk.stream(f"{label(condition, method, dim)}-pilots", 0),
        n_candidates=p.n_candidates, repeats=p.tuning_images,
        reference=rough_log_z(target, chunk.stream(f"rough-{dim}", 0)),
        merit="error" if method == "steinis-leaders" else "mean-log-w",
    )  # fmt: skip
    return tuning_record(tried)


def _determinant(dim: int) -> Determinant:
    return "exact" if dim <= EXACT_UP_TO else "first-order"


EXPERIMENT = Experiment(NAME, VAELikelihood, cells)
