"""Variants of SteinIS that go beyond the paper, each on a section's own problem.

Densities stay exactly tracked in all of them, so that Ẑ is unbiased. The problems, and where they
have random parts the very same ones, are those of the stored results of sections 2 to 5, so that
the methods there stand beside. What is chosen on pilot runs has twelve candidates, as everywhere;
the constants of `beyond_methods` were found by hand, on prototypes of these very problems.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import xarray as xr
from pydantic import Field, model_validator
from torch import Tensor

from steinis_lib.companion.counting import Counted
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner.engine import Experiment, Task, stream
from steinis_lib.companion.sections.s2_mixtures import experiment as gmm_estimation
from steinis_lib.companion.sections.s3_adaptive_is import problem as adaptive_problem
from steinis_lib.companion.sections.s4_rbm import experiment as rbm_partition
from steinis_lib.companion.sections.s5_likelihood import experiment as vae_likelihood
from steinis_lib.companion.sections.s7_extensions import methods
from steinis_lib.companion.sections.s7_extensions.images import ENDS, Annealing, hybrids
from steinis_lib.companion.vae import networks as vae
from steinis_lib.importance import ImportanceSample, importance_sampling
from steinis_lib.targets.base import Gaussian
from steinis_lib.targets.decoder import DecoderPosterior
from steinis_lib.targets.rbm import GaussBernoulliRBM

NAME = "beyond"
IMAGE_VARIANTS = ("flow", "flow-cheap", "flow-hais", "flow-bridge")
MIXTURE_SIZE = 100
"""|B| on the mixtures of section 2: one of its sizes."""
ROUNDING = vae_likelihood.ROUNDING


class Beyond(Parameters):
    """Sizes and settings."""

    QUICK: ClassVar[dict[str, Any]] = {
        "n_repeats": 2,
        "mixture_trials": 4,
        "trials_per_chunk": 4,
        "n_leaders": 40,
        "n_pool": 200,
        "n_transitions": 15,
        "n_followers": 200,
        "n_held_out": 100,
        "n_components": 10,
        "n_draws": 300,
        "n_iterations": 4,
        "rbm_dims": (10,),
        "rbm_trials": 2,
        "rbm_exploring": 60,
        "rbm_draws": 500,
        "latent_dims": (10,),
        "n_images": 2,
        "images_per_chunk": 2,
        "image_repeats": 2,
        "image_evaluations": 1500,
        "tuning_images": 2,
        "truth_chains": 20,
        "truth_transitions": 10,
    }

    n_repeats: int = Field(40, ge=2, description="runs of each variant on the warped mixture")
    mixture_trials: int = Field(500, ge=2, description="random mixtures of section 2")
    trials_per_chunk: int = Field(10, ge=2, description="of these, computed and stored together")
    n_leaders: int = Field(150, ge=2, description="in the plane: leaders of a transition")
    n_pool: int = Field(3000, ge=2, description="leaders in the pool, where there is one")
    n_transitions: int = Field(200, ge=2, description="at most")
    n_followers: int = Field(1000, ge=100, description="|B| on the warped mixture")
    n_held_out: int = Field(1000, ge=2, description="particles that steer, where there are some")
    n_components: int = Field(50, ge=1, description="of the mixture that M-PMC fits")
    n_draws: int = Field(5000, ge=10, description="in each iteration of M-PMC")
    n_iterations: int = Field(20, ge=1, description="of M-PMC")
    rbm_dims: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        (20, 100), min_length=1, description="d, rising"
    )
    rbm_trials: int = Field(30, ge=2, description="models at each d, the first of section 4")
    rbm_exploring: int = Field(1000, ge=1, description="transitions of the explorers")
    rbm_draws: int = Field(5000, ge=100, description="weighted draws in the end")
    latent_dims: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (20, 50), min_length=1, description="d of z; there is a trained model for 10, 20, 50"
    )
    n_images: int = Field(9, ge=2, description="test images, those of section 5")
    images_per_chunk: int = Field(3, ge=2, description="computed and stored together")
    image_repeats: int = Field(20, ge=2, description="runs of each variant on each image")
    image_evaluations: int = Field(4000, ge=1200, description="of the decoder, for one image")
    tuning_images: int = Field(4, ge=2, description="pilot images for each of 12 candidates")
    truth_chains: int = Field(400, ge=10, description="chains of the long runs")
    truth_transitions: int = Field(100, ge=1, description="their transitions, of 3 leapfrogs")

    @model_validator(mode="after")
    def _fits(self) -> Beyond:
        for name in ("rbm_dims", "latent_dims"):
            values = getattr(self, name)
            if list(values) != sorted(set(values)):
                raise ValueError(f"{name}: must rise strictly, got {values}")
        if missing := [d for d in self.latent_dims if d not in vae.BUNDLED]:
            raise ValueError(f"latent_dims: trained models are {vae.BUNDLED}, none for {missing}")
        if self.n_pool < self.n_leaders:
            raise ValueError("n_pool: at least n_leaders")
        return self

    @property
    def plane(self) -> methods.PlaneSizes:
        """The sizes in the plane."""
        return methods.PlaneSizes(
            self.n_leaders, self.n_pool, self.n_transitions, self.n_held_out,
            self.n_components, self.n_draws, self.n_iterations,
        )  # fmt: skip

    @property
    def small_plane(self) -> methods.PlaneSizes:
        """Smaller ones, for the mixtures of section 2: easier, and there are more of them."""
        return methods.PlaneSizes(
            self.n_leaders, max(self.n_leaders, self.n_pool // 3), self.n_transitions // 2,
            max(2, self.n_held_out // 2), max(1, self.n_components // 2), self.n_draws // 5,
            max(1, self.n_iterations // 2),
        )  # fmt: skip


def pilots(p: Beyond) -> list[Task]:
    """Return the tuning of both ways on from the fitted Gaussian, at each latent dimension."""
    return [Task(f"vae-tuning-{kind}-{d}", 0) for kind in ENDS for d in p.latent_dims]


def tasks(p: Beyond) -> list[Task]:
    """Return all chunks of all variants on all problems."""
    found = [Task(f"warped-{v}", c) for c in range(p.n_repeats) for v in methods.WARPED]
    for mixture in gmm_estimation.MIXTURES:
        for c in range(-(-p.mixture_trials // p.trials_per_chunk)):
            found += [Task(f"{mixture}-{v}", c) for v in methods.MIXTURES]
    found += [Task(f"rbm-{d}", c) for c in range(p.rbm_trials) for d in p.rbm_dims]
    for d in p.latent_dims:
        for c in range(-(-p.n_images // p.images_per_chunk)):
            found += [Task(f"vae-{v}-{d}", c) for v in ("truth", *IMAGE_VARIANTS)]
    return found


def run_task(p: Beyond, task: Task, pilots: Mapping[str, xr.Dataset] | None = None) -> xr.Dataset:
    """Run one chunk."""
    problem, _, rest = task.method.partition("-")
    generator = stream(p.seed, NAME, task.method, task.chunk)
    if problem == "warped":
        return _warped(p, rest, task.chunk, generator)
    if problem == "rbm":
        return _rbm(p, int(rest), task.chunk, generator)
    if problem == "vae":
        variant, _, size = rest.rpartition("-")
        if variant.startswith("tuning-"):
            return _tune(p, variant.removeprefix("tuning-"), int(size), generator)
        assert pilots is not None
        return _images(p, variant, int(size), task.chunk, pilots, generator)
    return _mixtures(p, problem, rest, task.chunk, generator)


def _warped(p: Beyond, variant: str, repeat: int, generator: torch.Generator) -> xr.Dataset:
    target = adaptive_problem.warped(adaptive_problem.AdaptiveComparison(), "main")
    sample, costs = methods.in_the_plane(
        target, adaptive_problem.start(), variant, p.plane, p.n_followers, generator, (1,)
    )
    found = {"kl": -sample.log_w.mean(-1), "log_z": sample.log_z, "ess": sample.ess / sample.n}
    return _dataset(found | {"pareto_k": sample.pareto_k} | costs, [repeat])


def _mixtures(
    p: Beyond, mixture: str, variant: str, chunk: int, generator: torch.Generator
) -> xr.Dataset:
    """The first trials of section 2: the same mixtures, and the same functions."""
    theirs = gmm_estimation.GMMEstimation()
    count = theirs.trials_per_chunk
    wanted = range(
        chunk * p.trials_per_chunk, min((chunk + 1) * p.trials_per_chunk, p.mixture_trials)
    )
    sections = [divmod(i, count) for i in wanted]
    parts = []
    for number in sorted({c for c, _ in sections}):
        target = gmm_estimation.mixtures(
            theirs,
            mixture,
            count,
            stream(theirs.seed, gmm_estimation.NAME, f"{mixture}-targets", number),
        )
        functions = stream(theirs.seed, gmm_estimation.NAME, "functions", number)
        w = torch.randn(count, 1, 1, generator=functions, dtype=torch.float64)
        b = torch.rand(count, 1, 1, generator=functions, dtype=torch.float64)
        exact = gmm_estimation.exact_values(target, w, b)
        q0 = Gaussian.isotropic(torch.zeros(2, dtype=torch.float64))
        sample, costs = methods.in_the_plane(
            target, q0, variant, p.small_plane, MIXTURE_SIZE, generator, (count,)
        )
        error = sample.expectation(gmm_estimation.functions_of(w, b))[0] - exact
        found = {
            "log_z": sample.log_z, "kl": -sample.log_w.mean(-1), "ess": sample.ess / sample.n,
        } | costs  # fmt: skip
        dataset = _dataset(found, [number * count + i for i in range(count)])
        dataset["error"] = (("trial", "quantity"), error.numpy())
        dataset = dataset.assign_coords(quantity=list(gmm_estimation.QUANTITIES))
        parts.append(dataset.isel(trial=[i for c, i in sections if c == number]))
    return xr.concat(parts, "trial")


def _rbm(p: Beyond, dim: int, trial: int, generator: torch.Generator) -> xr.Dataset:
    """A model of section 4, its standard condition."""
    theirs = rbm_partition.RBMPartition()
    chunk, place = divmod(trial, theirs.trials_per_chunk)
    batch = rbm_partition.models(theirs, "standard", dim, theirs.trials_per_chunk, chunk)
    model = GaussBernoulliRBM(batch.coupling[place], batch.bias_x[place], batch.bias_h[place])
    began = time.perf_counter()
    counted = Counted(model)
    q0 = Gaussian.isotropic(torch.zeros(dim, dtype=torch.float64))
    mixture, costs = methods.at_modes(counted, q0, p.rbm_exploring, generator)
    sample = importance_sampling(counted, mixture, (p.rbm_draws,), generator)
    seconds = time.perf_counter() - began
    plain = counted.n
    annealed, _ = methods.anneal_mixture(
        counted, mixture, methods.ANNEAL_MODES, methods.ANNEALED, generator
    )
    annealed_at = counted.n
    bridged = methods.bridge_mixture(counted, mixture, p.rbm_draws, generator)
    few = ImportanceSample(sample.particles[:100], sample.log_w[:100])
    found = {
        "error": sample.log_z - model.log_z, "error_100": few.log_z - model.log_z,
        "standard_error": sample.log_z_se, "ess": sample.ess / sample.n,
        "error_annealed": annealed.log_z - model.log_z,
        "error_bridged": bridged.log_z - model.log_z, "standard_error_bridged": bridged.log_z_se,
        "pareto_k": sample.pareto_k, "likeliest": model.state_log_probs.amax(-1).exp(),
    }  # fmt: skip
    values = {name: value.reshape(1) for name, value in found.items()}
    values |= {name: torch.tensor([n]) for name, n in costs.items()}
    values |= {"modes": torch.tensor([len(mixture.log_weights)])}
    values |= {"evaluations": torch.tensor([plain]), "seconds": torch.tensor([seconds])}
    values |= {"evaluations_annealed": torch.tensor([annealed_at - p.rbm_draws])}
    values |= {"evaluations_bridged": torch.tensor([plain - p.rbm_draws + counted.n - annealed_at])}
    return _dataset(values, [trial])


def _posterior(p: Beyond, dim: int, numbers: range, repeats: int) -> DecoderPosterior:
    """Posteriors of images of section 5, each `repeats` times: ``(images · repeats,)``."""
    model = vae.bundled(dim)
    images, _ = vae_likelihood.problem(vae_likelihood.VAELikelihood(), model, "prior", numbers)
    return DecoderPosterior(model.decoder, images.repeat_interleave(repeats, 0))


def _tune(p: Beyond, kind: str, dim: int, generator: torch.Generator) -> xr.Dataset:
    """Try all candidates on pilot images: the merit is minus the mean standard error of log Ẑ."""
    posterior = _posterior(p, dim, range(500, 500 + p.tuning_images), 4)
    merits = []
    for flow, end in hybrids(kind, dim):
        q = flow.run(posterior, vae.bundled(dim), False, generator)
        left = p.image_evaluations - flow.evaluations
        found = end.finish(posterior, q, left, generator)
        merits.append(-float(found["standard_error"].mean()))
    return xr.Dataset(
        {"merit": (("trial", "candidate"), [merits], {"tolerance": 0.1})}, coords={"trial": [0]}
    )


def _images(
    p: Beyond,
    variant: str,
    dim: int,
    chunk: int,
    pilots: Mapping[str, xr.Dataset],
    generator: torch.Generator,
) -> xr.Dataset:
    numbers = range(chunk * p.images_per_chunk, min((chunk + 1) * p.images_per_chunk, p.n_images))
    repeats = 1 if variant == "truth" else p.image_repeats
    posterior = _posterior(p, dim, numbers, repeats)
    began = time.perf_counter()
    kind = "bridge" if variant == "flow-bridge" else "hais"
    best = int(pilots[f"vae-tuning-{kind}-{dim}"].merit.values[0].argmax())
    flow, end = hybrid = hybrids(kind, dim)[best]
    q = flow.run(posterior, vae.bundled(dim), variant == "flow-cheap", generator)
    left = hybrid.left(p.image_evaluations)
    if variant == "truth":
        long = Annealing(p.truth_transitions, 3, 0.5)
        found = long.finish(posterior, q, p.truth_chains * (3 * p.truth_transitions + 1), generator)
    elif variant in ("flow-hais", "flow-bridge"):
        found = end.finish(posterior, q, left, generator)
    else:
        sample = importance_sampling(posterior, q, (len(numbers) * repeats, left), generator)
        found = {
            "log_z": sample.log_z, "standard_error": sample.log_z_se, "ess": sample.ess / sample.n,
            "pareto_k": sample.pareto_k, "mean_log_w": sample.log_w.mean(-1),
        }  # fmt: skip
    seconds = (time.perf_counter() - began) / (len(numbers) * repeats)
    dims, shape = ("trial", "repeat"), (len(numbers), repeats)
    variables: dict[str, Any] = {
        name: (dims, value.reshape(shape).double().numpy(), {"tolerance": ROUNDING["chains"]})
        for name, value in found.items()
    }
    variables["seconds"] = (dims, np.full(shape, seconds), {"units": "s"})
    return xr.Dataset(variables, coords={"trial": list(numbers), "repeat": range(repeats)})


def _dataset(found: Mapping[str, Tensor], trials: list[int]) -> xr.Dataset:
    """One number a trial for each name; `seconds` have their unit."""
    variables = {
        name: (("trial",), value.numpy(), {"units": "s"} if name == "seconds" else {})
        for name, value in found.items()
    }
    return xr.Dataset(variables, coords={"trial": trials})


EXPERIMENT = Experiment(NAME, Beyond, tasks, run_task, pilots)
