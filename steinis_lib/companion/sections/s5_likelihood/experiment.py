"""The likelihood of images under deep generative models (section 5.4, Figure 6).

Each image x is a problem of its own: Z = p(x), with p̄(z) = p(x, z) over the decoder's latent z.
Three cells at each latent dimension: "prior", test images of MNIST and q_0 = N(0, I); "encoder",
the same images and q_0 = the encoder's q(z | x); "simulated", images drawn from the decoder and
the encoder's q_0. Of these a posterior sample is known, and bidirectional Monte Carlo bounds
log p(x) on both sides. The same long runs, upwards, are the truth for the test images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import torch
import xarray as xr
from pydantic import Field, model_validator
from torch import Tensor

from steinis_lib.baselines.annealing import linear_schedule
from steinis_lib.baselines.bdmc import bidirectional
from steinis_lib.baselines.hais import HAIS
from steinis_lib.companion.candidates import (
    Setting,
    annealing,
    annealing_candidates,
    chosen,
    steinis,
    tune_on_problems,
    tuning_record,
)
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner.engine import Experiment, Task, stream
from steinis_lib.companion.tuning import Trial
from steinis_lib.companion.vae import mnist
from steinis_lib.companion.vae import networks as vae
from steinis_lib.companion.vae.networks import VAE
from steinis_lib.importance import ImportanceSample, importance_sampling
from steinis_lib.stein.maps import Determinant
from steinis_lib.targets.base import Gaussian
from steinis_lib.targets.decoder import DecoderPosterior

NAME = "vae"
CELLS = ("prior", "encoder", "simulated")
TUNED = ("steinis", "steinis-wide", "hais-1l", "hais-1l-partial", "hais-10l", "ais")
METHODS = ("is", *TUNED, "ais-unadjusted")
EXACT_UP_TO = 20
"""Latent dimensions up to here have exact determinants, larger ones first-order ones."""
ROUNDING = {"maps": 0.02, "chains": 1.0}
"""Nats by which another processor may differ: arithmetic is in 32 bits here, and a rounding error
can turn a Metropolis decision, after which a chain is another one."""


class VAELikelihood(Parameters):
    """Sizes and settings; |A|, the importance samples and transitions are the paper's."""

    QUICK: ClassVar[dict[str, Any]] = {
        "latent_dims": (10,),
        "n_images": 4,
        "n_images_long": 2,
        "n_simulated": 2,
        "images_per_chunk": 4,
        "n_leaders": 30,
        "n_followers": 30,
        "transitions": (10, 30),
        "transitions_long": (10,),
        "tuning_transitions": 20,
        "tuning_images": 2,
        "truth_chains": 30,
        "truth_transitions": 60,
    }

    latent_dims: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (10, 20, 50), min_length=1, description="d of z; there is a trained model for 10, 20, 50"
    )
    n_images: int = Field(9, ge=2, le=500, description="test images; the paper has 1000")
    n_images_long: int = Field(6, ge=2, description="of these, for HAIS-10L")
    n_simulated: int = Field(6, ge=2, description="images drawn from each decoder")
    images_per_chunk: int = Field(3, ge=2, description="images computed and stored together")
    n_leaders: int = Field(60, ge=2, description="|A| of SteinIS")
    n_followers: int = Field(60, ge=5, description="importance samples of each method")
    transitions: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (50, 100, 300, 1000), min_length=1, description="rising"
    )
    transitions_long: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (50, 100, 300), min_length=1, description="of HAIS-10L, rising"
    )
    tuning_transitions: int = Field(300, ge=10, description="of pilot runs; of HAIS-10L a tenth")
    tuning_images: int = Field(2, ge=2, description="pilot images for each of the 12 candidates")
    truth_chains: int = Field(100, ge=10, description="chains of the long runs")
    truth_transitions: int = Field(300, ge=1, description="transitions of the long runs")
    truth_leapfrogs: int = Field(10, ge=1, description="leapfrog steps in each of them")

    @model_validator(mode="after")
    def _sizes(self) -> VAELikelihood:
        for name in ("latent_dims", "transitions", "transitions_long"):
            values = getattr(self, name)
            if list(values) != sorted(set(values)):
                raise ValueError(f"{name}: must rise strictly, got {values}")
        if missing := [d for d in self.latent_dims if d not in vae.BUNDLED]:
            raise ValueError(f"latent_dims: trained models are {vae.BUNDLED}, none for {missing}")
        if self.n_images_long > self.n_images:
            raise ValueError(f"n_images_long: at most n_images = {self.n_images}")
        return self


def candidates(method: str) -> list[Setting]:
    """Return twelve candidates for every tuned method, so that all have the same budget."""
    if method == "steinis":  # the paper's own family: α and β, its bandwidth rule
        return [Setting(a, b, 1.0) for a in (0.01, 0.1, 1.0, 10.0) for b in (0.0, 0.3, 0.6)]
    if method == "steinis-wide":  # and a multiplier of the bandwidth
        schedules = ((0.01, 0.0), (0.05, 0.3), (0.15, 0.3), (0.5, 0.6))
        return [Setting(a, b, m) for a, b in schedules for m in (8.0, 24.0, 60.0)]
    return annealing_candidates(method, smallest=0.0125)


def pilots(p: VAELikelihood) -> list[Task]:
    """Return the tuning of each method; simulated images take the settings of cell "encoder"."""
    cells = [(cell, d) for d in p.latent_dims for cell in CELLS if cell != "simulated"]
    return [Task(f"{cell}-tuning-{name}-{d}", 0) for cell, d in cells for name in TUNED]


def tasks(p: VAELikelihood) -> list[Task]:
    """Return the long runs, and every method's chunks in each cell."""
    found = []
    for d in p.latent_dims:
        for label in ("truth", "bounds"):
            count = p.n_images if label == "truth" else p.n_simulated
            found += [Task(f"{label}-{d}", c) for c in range(-(-count // p.images_per_chunk))]
        for cell in CELLS:
            for method in METHODS:
                chunks = -(-_count(p, cell, method) // p.images_per_chunk)
                found += [Task(f"{cell}-{method}-{d}", c) for c in range(chunks)]
    return found


def _count(p: VAELikelihood, cell: str, method: str) -> int:
    n = p.n_simulated if cell == "simulated" else p.n_images
    return min(n, p.n_images_long) if method == "hais-10l" else n


def run_task(
    p: VAELikelihood, task: Task, pilots: Mapping[str, xr.Dataset] | None = None
) -> xr.Dataset:
    """Run one chunk of images with one method, or the long runs on them, or a method's tuning."""
    label, _, size = task.method.rpartition("-")
    model, dim = vae.bundled(int(size)), int(size)
    cell, _, method = label.partition("-")
    if method.startswith("tuning-"):
        record = tuning_record(_tune(p, model, cell, method.removeprefix("tuning-")))
        for name in ("score", "standard_error"):
            record[name].attrs["tolerance"] = _rounding(method.removeprefix("tuning-"))
        return record
    assert pilots is not None
    generator = stream(p.seed, NAME, task.method, task.chunk)
    first = task.chunk * p.images_per_chunk
    if label in ("truth", "bounds"):
        total = p.n_images if label == "truth" else p.n_simulated
        count = min(p.images_per_chunk, total - first)
        step = chosen(pilots[f"encoder-tuning-hais-10l-{dim}"]).alpha
        return _long_runs(p, model, label, range(first, first + count), step, generator)
    count = min(p.images_per_chunk, _count(p, cell, method) - first)
    numbers = range(first, first + count)
    images, _ = problem(p, model, cell, numbers)
    target, q0 = DecoderPosterior(model.decoder, images), initial(model, cell, images)
    setting = Setting(1.0)
    if method != "is":  # unadjusted AIS takes the step of the unbiased one
        tuned_in = "encoder" if cell == "simulated" else cell
        tuned = "ais" if method == "ais-unadjusted" else method
        setting = chosen(pilots[f"{tuned_in}-tuning-{tuned}-{dim}"])
    points = p.transitions_long if method == "hais-10l" else p.transitions
    if cell == "simulated":
        points = points[-1:]
    found: dict[int, dict[str, Tensor]] = {}
    if method == "is":
        sample = importance_sampling(target, q0, (count, p.n_followers), generator)
        found[0] = _measured(sample, p.n_followers)
    elif method.startswith("steinis"):
        sampler = steinis(target, setting, _determinant(dim))
        state = sampler.init(q0, p.n_leaders, p.n_followers, generator, (count,))
        for k in points:
            state = sampler.run(state, k - int(state.transition))
            cost = k * p.n_leaders + p.n_followers
            found[k] = _measured(sampler.importance_sample(state), cost)
            found[k]["n_folds"] = state.n_folds
    else:
        for k in points:
            chain = annealing(target, q0, method, setting, k)
            end = chain.run(chain.init(p.n_followers, generator, (count,)))
            cost = chain.gradients * p.n_followers
            found[k] = _measured(chain.importance_sample(end), cost)
    return _dataset(found, numbers, _rounding(method))


def problem(
    p: VAELikelihood, model: VAE, cell: str, numbers: Sequence[int]
) -> tuple[Tensor, Tensor | None]:
    """Return images ``(k, 784)`` and, if simulated, the latents ``(k, d)`` they come from.

    Test images are those at the first places of a random order of the 1000 that are at hand;
    simulated ones are numbered in the order that they are drawn.
    """
    if cell != "simulated":
        order = torch.randperm(1000, generator=stream(p.seed, NAME, "images", 0))
        return mnist.binarise(mnist.bundled()[order[list(numbers)]]), None
    generator = stream(p.seed, NAME, f"simulated-{model.latent_dim}", 0)
    like = model.decoder.output_bias
    z = torch.randn(p.n_simulated, model.latent_dim, generator=generator, dtype=like.dtype)
    images = model.decoder.sample(z.unsqueeze(-2), generator).squeeze(-2)
    return images[list(numbers)], z[list(numbers)]


def initial(model: VAE, cell: str, images: Tensor) -> Gaussian:
    """Return q_0: the prior, or the encoder's Gaussian for each image."""
    if cell == "prior":
        return Gaussian.isotropic(torch.zeros(model.latent_dim, dtype=images.dtype))
    mean, log_var = model.encoder(images)
    return Gaussian(mean, torch.diag_embed((0.5 * log_var).exp()))


def _measured(sample: ImportanceSample, evaluations: int) -> dict[str, Tensor]:
    """What is kept of a weighted sample, each ``(images,)``, and the decoder evaluations."""
    return {
        "log_z": sample.log_z,
        "mean_log_w": sample.log_w.mean(-1),
        "ess": sample.ess / sample.n,
        "pareto_k": sample.pareto_k,
        "evaluations": torch.full_like(sample.ess, evaluations),
    }


def _rounding(method: str) -> float:
    deterministic = method == "is" or method.startswith("steinis")
    return ROUNDING["maps" if deterministic else "chains"]


def _dataset(
    found: Mapping[int, Mapping[str, Tensor]], numbers: range, tolerance: float
) -> xr.Dataset:
    variables = {
        name: (
            ("trial", "transitions"),
            torch.stack([values[name] for values in found.values()], -1).numpy(),
            {} if name in ("evaluations", "n_folds") else {"tolerance": tolerance},
        )
        for name in next(iter(found.values()))
    }
    coords = {"trial": list(numbers), "transitions": list(found)}
    return xr.Dataset(variables, coords=coords)


def _long_runs(
    p: VAELikelihood,
    model: VAE,
    label: str,
    numbers: range,
    step_size: float,
    generator: torch.Generator,
) -> xr.Dataset:
    """The truth for test images (label "truth"), or bounds on both sides for simulated ones."""
    images, latents = problem(p, model, "simulated" if label == "bounds" else "encoder", numbers)
    target, q0 = DecoderPosterior(model.decoder, images), initial(model, "encoder", images)
    schedule = linear_schedule(p.truth_transitions)
    tolerance = {"tolerance": ROUNDING["chains"]}
    if latents is not None:
        bounds = bidirectional(
            target,
            q0,
            latents,
            n_chains=p.truth_chains,
            schedule=schedule,
            step_size=step_size,
            n_leapfrog=p.truth_leapfrogs,
            generator=generator,
        )
        values = {"lower": bounds.lower, "upper": bounds.upper}
    else:
        chain = HAIS(target, q0, schedule, step_size, p.truth_leapfrogs)
        end = chain.run(chain.init(p.truth_chains, generator, (len(images),)))
        sample = chain.importance_sample(end)
        values = {
            "log_z": sample.log_z,
            "standard_error": sample.log_z_se,
            "ess": sample.ess / sample.n,
            "pareto_k": sample.pareto_k,
        }
    return xr.Dataset(
        {name: (("trial",), value.numpy(), tolerance) for name, value in values.items()},
        coords={"trial": list(numbers)},
    )


def _tune(p: VAELikelihood, model: VAE, cell: str, method: str) -> list[Trial[Setting]]:
    """Try all candidates of a method on the same pilot images, the last of the random order."""
    images, _ = problem(p, model, cell, range(1000 - p.tuning_images, 1000))
    target, q0 = DecoderPosterior(model.decoder, images), initial(model, cell, images)
    generator = stream(p.seed, NAME, f"{cell}-{method}-{model.latent_dim}-pilots", 0)
    k = p.tuning_transitions // 10 if method == "hais-10l" else p.tuning_transitions
    return tune_on_problems(
        method, candidates(method), target, q0, p.tuning_images, k, generator,
        n_leaders=p.n_leaders, n_followers=p.n_followers, determinant=_determinant(target.dim),
    )  # fmt: skip


def _determinant(dim: int) -> Determinant:
    return "exact" if dim <= EXACT_UP_TO else "first-order"


EXPERIMENT = Experiment(NAME, VAELikelihood, tasks, run_task, pilots)
