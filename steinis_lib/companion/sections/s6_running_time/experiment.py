"""Running time (Table 1), and how it grows (the cost formula of section 3; see `cost_growth`).

Table 1: seconds for 1000 transitions in the setting of Figure 6. A trial times all methods in one
process, in turn, in an order that shifts with the trial; ratios within a trial are then fair even
where the machine's speed drifts. Runs are short, for several numbers of transitions and of images,
so that the data show whether time is proportional to these, and can be extrapolated.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import xarray as xr
from pydantic import Field, model_validator

from steinis_lib.companion.counting import Counted
from steinis_lib.companion.methods import build_sampler
from steinis_lib.companion.parameters import Parameters, Rising
from steinis_lib.companion.problems.decoder import DecoderPosterior
from steinis_lib.companion.runner.experiment import Cell, Chunk, Experiment
from steinis_lib.companion.sections.s6_running_time.cost_growth import (
    GROWTH,
    Growth,
    over_sizes,
    time_scores,
    time_transitions,
)
from steinis_lib.companion.settings import Setting
from steinis_lib.companion.vae import mnist
from steinis_lib.companion.vae import networks as vae
from steinis_lib.stein.maps import Determinant

DETERMINANTS: dict[str, Determinant] = {"steinis": "first-order", "steinis-exact": "exact"}
STEPS = {"steinis": 0.05, "steinis-exact": 0.05, "hais-1l": 0.05, "hais-10l": 0.05, "ais": 0.001}
"""Method → its step. None is tuned, because a transition takes as long whatever its step."""
METHODS = tuple(STEPS)
IMAGES = {"images-steinis": "steinis", "images-hais-1l": "hais-1l"}
"""Label of a cell that varies the number of images → the method that it times."""
SCORE = "growth-score"
"""Label of the cell that varies d of the decoder."""


class RunningTime(Parameters):
    """Sizes and settings; |A| and the importance samples are the paper's."""

    QUICK: ClassVar[dict[str, Any]] = {
        "latent_dims": (10,),
        "n_trials": 3,
        "n_images": 4,
        "transitions": (1, 2, 4),
        "growth_trials": 3,
        "growth_transitions": 2,
        "image_counts": (2, 4, 8),
        "leader_counts": (200, 400, 800),
        "follower_counts": (2000, 4000, 8000),
        "dims": (64, 128, 256),
        "exact_dims": (32, 64, 128),
        "score_dims": (10, 20, 50),
    }

    latent_dims: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Rising] = Field(
        (10, 20, 50), min_length=1, description="d of z; there is a trained model for 10, 20, 50"
    )
    n_trials: int = Field(12, ge=2, description="timings of each method at each d")
    n_images: int = Field(32, ge=1, le=1000, description="images in a batch; the paper has 1000")
    n_leaders: int = Field(60, ge=2, description="|A| of SteinIS")
    n_followers: int = Field(60, ge=2, description="importance samples of each method")
    transitions: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Rising] = Field(
        (2, 4, 8), min_length=2, description="of the timed runs, rising; the paper has 1000"
    )
    growth_trials: int = Field(12, ge=2, description="timings of each growth")
    growth_transitions: int = Field(3, ge=1, description="transitions, or scores, in each of them")
    image_counts: Annotated[tuple[Annotated[int, Field(ge=1, le=1000)], ...], Rising] = Field(
        (8, 16, 32, 64, 128), min_length=2, description="images in a batch, rising"
    )
    leader_counts: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Rising] = Field(
        (250, 500, 1000, 2000), min_length=2, description="|A|, rising"
    )
    follower_counts: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Rising] = Field(
        (4000, 8000, 16000, 32000), min_length=2, description="|B|, rising"
    )
    dims: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Rising] = Field(
        (64, 128, 256, 512), min_length=2, description="d with first-order determinants, rising"
    )
    exact_dims: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Rising] = Field(
        (32, 64, 128, 256), min_length=2, description="d with exact determinants, rising"
    )
    score_dims: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Rising] = Field(
        (10, 20, 50, 100, 200), min_length=2, description="d of the timed decoder, rising"
    )

    @model_validator(mode="after")
    def _models_exist(self) -> RunningTime:
        vae.check_bundled(self.latent_dims)
        return self


def cells(p: RunningTime) -> list[Cell]:
    """Return a cell for Table 1 at each d, and a cell for each growth; a chunk is one trial."""
    table = [
        Cell(table_label(d), p.n_trials, partial(time_table, dim=d), method="table")
        for d in p.latent_dims
    ]
    growths: dict[str, Callable[[RunningTime, Chunk], xr.Dataset]] = {
        **{label: partial(time_images, method=method) for label, method in IMAGES.items()},
        **{label: partial(time_growth, growth=growth) for label, growth in GROWTH.items()},
        SCORE: time_decoder,
    }
    return table + [Cell(label, p.growth_trials, timing) for label, timing in growths.items()]


def table_label(dim: int) -> str:
    """Return the label of the cell with Table 1 at a latent dimension."""
    return f"table-{dim}"


def time_table(p: RunningTime, chunk: Chunk, dim: int) -> xr.Dataset:
    """Time all methods, for each number of transitions in turn.

    The order of the methods shifts by one from trial to trial.
    """
    generator = chunk.generator()
    shift = chunk.number % len(METHODS)
    order = METHODS[shift:] + METHODS[:shift]
    for name in METHODS:
        timed_run(p, name, dim, p.n_images, 1, generator)  # warms up
    found = {
        (name, k): timed_run(p, name, dim, p.n_images, k, generator)
        for k in p.transitions
        for name in order
    }
    values = np.array([[found[name, k] for k in p.transitions] for name in METHODS])
    dims = ("method", "transitions")
    variables = {
        "seconds": (dims, values[..., 0], {"units": "s"}),
        "mean_log_w": (dims, values[..., 1]),
        "evaluations": (dims, values[..., 2]),
    }
    coords = {"method": list(METHODS), "transitions": list(p.transitions)}
    return _one_trial(xr.Dataset(variables, coords))


def time_images(p: RunningTime, chunk: Chunk, method: str) -> xr.Dataset:
    """Time a method on batches of several numbers of images, at the smallest latent dimension."""
    dim, n, generator = p.latent_dims[0], p.growth_transitions, chunk.generator()

    def timed(n_images: int) -> tuple[float, float]:
        return timed_run(p, method, dim, n_images, n, generator)[:2]

    return _one_trial(over_sizes(p.image_counts, n, timed))


def time_growth(p: RunningTime, chunk: Chunk, growth: Growth) -> xr.Dataset:
    """Time transitions of SteinIS, with one size varied."""
    n, generator = p.growth_transitions, chunk.generator()

    def timed(size: int) -> tuple[float, float]:
        return time_transitions(growth, size, n, generator)

    return _one_trial(over_sizes(getattr(p, growth.sizes), n, timed))


def time_decoder(p: RunningTime, chunk: Chunk) -> xr.Dataset:
    """Time the score of a decoder, with its latent dimension varied."""
    n, generator = p.growth_transitions, chunk.generator()
    return _one_trial(over_sizes(p.score_dims, n, lambda d: time_scores(d, n, generator)))


def timed_run(
    p: RunningTime, method: str, dim: int, n_images: int, k: int, generator: torch.Generator
) -> tuple[float, float, int]:
    """Return seconds for k transitions, the mean log-weight, and evaluations for each image.

    The clock runs, and evaluations count, during the transitions alone; the start at q_0 and the
    final weights are left out. The images are the first of the test set.
    """
    images = mnist.binarise(mnist.bundled()[:n_images])
    posterior = DecoderPosterior(vae.bundled(dim).decoder, images)
    target, q0 = Counted(posterior), posterior.prior()
    posterior.score(q0.mean.unsqueeze(0))  # computes now what is computed once for each image
    sampler: Any = build_sampler(
        method, target, q0, Setting(STEPS[method]), k, n_leaders=p.n_leaders,
        n_followers=p.n_followers, determinant=DETERMINANTS.get(method, "exact"),
    )  # fmt: skip
    state = sampler.init(generator, batch_shape=(n_images,))
    before, start = target.n, time.perf_counter()
    state = sampler.run(state, k)
    seconds, evaluations = time.perf_counter() - start, (target.n - before) // n_images
    log_w = sampler.importance_sample(state).log_w
    return seconds, float(log_w.mean()), evaluations


def _one_trial(found: xr.Dataset) -> xr.Dataset:
    """Add the dimension `trial`, and the number of threads that PyTorch used.

    Threads are a coordinate, because they are the machine's: verification compares variables.
    """
    threads = ("trial", [torch.get_num_threads()])
    return found.expand_dims("trial").assign_coords(threads=threads)


EXPERIMENT = Experiment("running-time", RunningTime, cells)
