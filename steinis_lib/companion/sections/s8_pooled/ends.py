"""From q_K on: weights, HAIS and a bridge from a Gaussian q_K and from a nonlinear one.

A Gaussian flow fits q_K to the posterior of an image, as in section 7. Then either all that is left
of the evaluations goes into the end, or some of them into maps of SteinIS with a pool, which bend
q_K, and the end works in the coordinates in which the bent q_K is N(0, I) (`PulledBack`).
"""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import xarray as xr
from pydantic import Field

from steinis_lib.companion.parameters import Parameters, Rising
from steinis_lib.companion.problems.decoder import DecoderPosterior
from steinis_lib.companion.runner.experiment import Cell, Chunk, Experiment
from steinis_lib.companion.sections.s5_likelihood import problem as vae_likelihood
from steinis_lib.companion.sections.s7_extensions.images import (
    Annealing,
    Bridging,
    Flow,
    of_weights,
)
from steinis_lib.companion.vae.networks import BUNDLED
from steinis_lib.extensions.pooled import PooledSteinIS
from steinis_lib.extensions.pulled_back import PulledBack
from steinis_lib.importance import importance_sampling
from steinis_lib.stein.maps import StepMap
from steinis_lib.targets.base import Gaussian

FLOW = Flow(15, 60, 8)
"""One of section 7's candidates; it fits into all dimensions."""
ENDS: dict[str, Annealing | Bridging | None] = {
    "weights": None,
    "hais": Annealing(30, 2, 0.55),
    "bridge": Bridging(1 / 2, 40, 2, 0.6),
}
"""The ends, with one of section 7's settings each. None weighs draws of q_K."""
STARTS = ("flow", "maps")
"""The Gaussian q_K, and the one bent by maps."""


class Ends(Parameters):
    """Sizes."""

    QUICK: ClassVar[dict[str, Any]] = {
        "latent_dims": (10,),
        "n_images": 2,
        "images_per_chunk": 2,
        "repeats": 2,
        "evaluations": 1600,
        "n_leaders": 200,
        "n_maps": 2,
        "leaders_per_step": 60,
    }

    latent_dims: Annotated[tuple[int, ...], Rising] = Field((20, 50), description="d of z")
    n_images: int = Field(9, ge=2, description="test images, those of section 7")
    images_per_chunk: int = Field(3, ge=1, description="computed and stored together")
    repeats: int = Field(8, ge=2, description="runs on each image")
    evaluations: int = Field(4000, ge=1300, description="of the decoder, for one image")
    n_leaders: int = Field(4000, ge=2, description="|A|, the pool")
    n_maps: int = Field(6, ge=1, description="transitions of SteinIS")
    leaders_per_step: int = Field(200, ge=2, description="of a map, each with a score")


def label(start: str, end: str, dim: int) -> str:
    """Return the label of an end from a q_K."""
    return f"{start}-{end}-{dim}"


def cells(p: Ends) -> list[Cell]:
    """Return a cell for each end from each q_K, in each dimension."""
    if unknown := set(p.latent_dims) - set(BUNDLED):
        raise ValueError(f"latent_dims: there are models for {BUNDLED}, not for {sorted(unknown)}")
    return [
        Cell(label(start, end, dim), p.n_images, partial(estimate, start=start, end=end, dim=dim),
             p.images_per_chunk, method=f"{start}-{end}")
        for dim in p.latent_dims
        for start in STARTS
        for end in ENDS
    ]  # fmt: skip


def estimate(p: Ends, chunk: Chunk, *, start: str, end: str, dim: int) -> xr.Dataset:
    """Estimate log p(x) of each image several times."""
    model, generator = vae_likelihood.model_of(dim), chunk.generator()
    images, _ = vae_likelihood.problem(vae_likelihood.VAELikelihood(), model, "prior", chunk.trials)
    posterior = DecoderPosterior(model.decoder, images.repeat_interleave(p.repeats, 0))
    batch, left = (len(posterior.images),), p.evaluations - FLOW.evaluations
    began = time.perf_counter()
    q = FLOW.run(posterior, posterior.prior(), len(posterior.images), generator)
    finish = ENDS[end]
    if start == "flow" and finish is None:
        found = of_weights(importance_sampling(posterior, q, (*batch, left), generator))
    elif start == "flow":
        assert finish is not None
        found = finish.finish(posterior, q, left, generator)
    else:
        left -= p.n_maps * p.leaders_per_step
        maps: list[StepMap] = []
        sampler = _bent(p, posterior, q, left if finish is None else 1)
        state = sampler.run(
            sampler.init(generator, batch_shape=batch), p.n_maps,
            on_step=lambda _, info: maps.append(info.step_map),
        )  # fmt: skip
        if finish is None:
            found = of_weights(sampler.importance_sample(state))
        else:
            found = finish.finish(PulledBack(posterior, tuple(maps)), q, left, generator)
    each = (time.perf_counter() - began) / len(posterior.images)
    dims, shape = ("trial", "repeat"), (chunk.n_trials, p.repeats)
    variables: dict[str, Any] = {
        name: (dims, value.reshape(shape).numpy()) for name, value in found.items()
    }
    variables["seconds"] = (dims, np.full(shape, each), {"units": "s"})
    return xr.Dataset(variables, coords={"repeat": range(p.repeats)})


def _bent(p: Ends, posterior: DecoderPosterior, q: Gaussian, n_followers: int) -> PooledSteinIS:
    return PooledSteinIS(
        posterior, q, n_leaders=p.n_leaders, n_followers=n_followers,
        leaders_per_step=p.leaders_per_step,
    )  # fmt: skip


EXPERIMENT = Experiment("pooled-ends", Ends, cells)
