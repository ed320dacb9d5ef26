"""Running time (Table 1), and how it grows (the cost formula of section 3; see `cost_growth`).

Table 1: seconds for 1000 transitions in the setting of Figure 6. A trial times all methods in one
process, in turn, in an order that shifts with the trial; ratios within a trial are then fair even
where the machine's speed drifts. Runs are short, for several numbers of transitions and of images,
so that the data show whether time is proportional to these, and can be extrapolated.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import xarray as xr
from pydantic import Field, model_validator

from steinis_lib.companion.candidates import Setting, annealing, steinis
from steinis_lib.companion.counting import Counted
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner.engine import Experiment, Task, stream
from steinis_lib.companion.sections.s6_running_time.cost_growth import (
    GROWTH,
    over_sizes,
    scores,
    transitions,
)
from steinis_lib.companion.vae import mnist
from steinis_lib.companion.vae import networks as vae
from steinis_lib.stein.maps import Determinant
from steinis_lib.targets.decoder import DecoderPosterior

NAME = "running-time"
DETERMINANTS: dict[str, Determinant] = {"steinis": "first-order", "steinis-exact": "exact"}
STEPS = {"steinis": 0.05, "steinis-exact": 0.05, "hais-1l": 0.05, "hais-10l": 0.05, "ais": 0.001}
"""Method → its step; none is tuned, for a transition takes as long whatever its step."""
METHODS = tuple(STEPS)
ROUNDING = 0.1
"""Nats by which another processor may differ in the mean log-weight of a run in 32 bits."""


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

    latent_dims: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (10, 20, 50), min_length=1, description="d of z; there is a trained model for 10, 20, 50"
    )
    n_trials: int = Field(12, ge=2, description="timings of each method at each d")
    n_images: int = Field(32, ge=1, le=1000, description="images in a batch; the paper has 1000")
    n_leaders: int = Field(60, ge=2, description="|A| of SteinIS")
    n_followers: int = Field(60, ge=2, description="importance samples of each method")
    transitions: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (2, 4, 8), min_length=2, description="of the timed runs, rising; the paper has 1000"
    )
    growth_trials: int = Field(12, ge=2, description="timings of each growth")
    growth_transitions: int = Field(3, ge=1, description="transitions, or scores, in each of them")
    image_counts: tuple[Annotated[int, Field(ge=1, le=1000)], ...] = Field(
        (8, 16, 32, 64, 128), min_length=2, description="images in a batch, rising"
    )
    leader_counts: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        (250, 500, 1000, 2000), min_length=2, description="|A|, rising"
    )
    follower_counts: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (4000, 8000, 16000, 32000), min_length=2, description="|B|, rising"
    )
    dims: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (64, 128, 256, 512), min_length=2, description="d with first-order determinants, rising"
    )
    exact_dims: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (32, 64, 128, 256), min_length=2, description="d with exact determinants, rising"
    )
    score_dims: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (10, 20, 50, 100, 200), min_length=2, description="d of the timed decoder, rising"
    )

    @model_validator(mode="after")
    def _sizes(self) -> RunningTime:
        rising = ("latent_dims", "transitions", "image_counts", *(g.sizes for g in GROWTH.values()))
        for name in dict.fromkeys((*rising, "score_dims")):
            values = getattr(self, name)
            if list(values) != sorted(set(values)):
                raise ValueError(f"{name}: must rise strictly, got {values}")
        if missing := [d for d in self.latent_dims if d not in vae.BUNDLED]:
            raise ValueError(f"latent_dims: trained models are {vae.BUNDLED}, none for {missing}")
        return self


IMAGES = {"images-steinis": "steinis", "images-hais-1l": "hais-1l"}
SCORE = "growth-score"


def tasks(p: RunningTime) -> list[Task]:
    """Return one chunk for each trial."""
    table = [Task(f"table-{d}", trial) for trial in range(p.n_trials) for d in p.latent_dims]
    labels = (*IMAGES, *GROWTH, SCORE)
    return table + [Task(label, trial) for trial in range(p.growth_trials) for label in labels]


def run_task(p: RunningTime, task: Task) -> xr.Dataset:
    """Time one trial of Table 1, or of one growth."""
    label, generator = task.method, stream(p.seed, NAME, task.method, task.chunk)
    n = p.growth_transitions
    if label in IMAGES:
        method, dim = IMAGES[label], p.latent_dims[0]
        found = over_sizes(
            p.image_counts, n,
            lambda images: timed_run(p, method, dim, images, n, generator)[:2], ROUNDING,
        )  # fmt: skip
    elif label == SCORE:
        found = over_sizes(p.score_dims, n, lambda d: scores(d, n, generator), 1e-3)
    elif label in GROWTH:
        growth = GROWTH[label]
        sizes = getattr(p, growth.sizes)
        found = over_sizes(sizes, n, lambda size: transitions(growth, size, n, generator), 1e-6)
    else:
        found = _table(p, int(label.removeprefix("table-")), task.chunk, generator)
    # A coordinate, for the threads are the machine's: verification compares variables.
    threads = ("trial", [torch.get_num_threads()])
    return found.expand_dims(trial=[task.chunk]).assign_coords(threads=threads)


def _table(p: RunningTime, dim: int, trial: int, generator: torch.Generator) -> xr.Dataset:
    """Time all methods, for each number of transitions in turn."""
    shift = trial % len(METHODS)
    order = METHODS[shift:] + METHODS[:shift]
    for name in METHODS:
        timed_run(p, name, dim, p.n_images, 1, generator)  # warms up
    cells = {
        (name, k): timed_run(p, name, dim, p.n_images, k, generator)
        for k in p.transitions
        for name in order
    }
    values = np.array([[cells[name, k] for k in p.transitions] for name in METHODS])
    dims = ("method", "transitions")
    return xr.Dataset(
        {
            "seconds": (dims, values[..., 0], {"units": "s"}),
            "mean_log_w": (dims, values[..., 1], {"tolerance": ROUNDING}),
            "evaluations": (dims, values[..., 2]),
        },
        coords={"method": list(METHODS), "transitions": list(p.transitions)},
    )


def timed_run(
    p: RunningTime, method: str, dim: int, n_images: int, k: int, generator: torch.Generator
) -> tuple[float, float, int]:
    """Return seconds for k transitions, the mean log-weight, and evaluations for each image.

    The clock runs, and evaluations count, during the transitions alone; the start at q_0 and the
    final weights are left out. The images are the first of the test set.
    """
    images = mnist.binarise(mnist.bundled()[:n_images])
    posterior = DecoderPosterior(vae.bundled(dim).decoder, images)
    target, q0, batch = Counted(posterior), posterior.prior(), (n_images,)
    posterior.score(q0.mean.unsqueeze(0))  # now, what is computed once for each image
    setting = Setting(STEPS[method])
    sampler: Any
    if method.startswith("steinis"):
        sampler = steinis(target, setting, DETERMINANTS[method])
        state = sampler.init(q0, p.n_leaders, p.n_followers, generator, batch)
    else:
        sampler = annealing(target, q0, method, setting, k)
        state = sampler.init(p.n_followers, generator, batch)
    before, start = target.n, time.perf_counter()
    state = sampler.run(state, k)
    seconds, evaluations = time.perf_counter() - start, (target.n - before) // n_images
    log_w = sampler.importance_sample(state).log_w
    return seconds, float(log_w.mean()), evaluations


EXPERIMENT = Experiment(NAME, RunningTime, tasks, run_task)
