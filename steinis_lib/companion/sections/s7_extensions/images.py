"""The variants of `beyond` on images: a Gaussian flow, and two ways to go on from its end.

A candidate is a flow and an end, `Annealing` or `Bridging`; pilots choose one of each kind.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from steinis_lib.companion.problems.decoder import DecoderPosterior
from steinis_lib.companion.runner.experiment import Chunk
from steinis_lib.companion.sections.s5_likelihood import problem as vae_likelihood
from steinis_lib.companion.sections.s7_extensions.hais_run import HAISRun
from steinis_lib.companion.sections.s7_extensions.other_scores import LowPrecision, OtherScores
from steinis_lib.companion.sections.s7_extensions.settings import (
    TRUTH,
    Beyond,
    end_kind,
    tuning_label,
)
from steinis_lib.companion.vae import networks as vae
from steinis_lib.companion.vae.networks import VAE, Decoder
from steinis_lib.extensions.bridge_sampling import BridgeSampling
from steinis_lib.extensions.gaussian_flow import GaussianFlow
from steinis_lib.importance import ImportanceSample, importance_sampling
from steinis_lib.targets.base import Gaussian, Target
from steinis_lib.targets.whitened import WhitenedTarget


@dataclass(frozen=True)
class Flow:
    """The settings of `GaussianFlow`, and its transitions."""

    n_transitions: int
    n_leaders: int
    full_steps: int

    @property
    def evaluations(self) -> int:
        """Of the decoder, for one image."""
        return self.n_transitions * self.n_leaders

    def run(self, target: Target, prior: Gaussian, n: int, generator: torch.Generator) -> Gaussian:
        """Fit q_K to each of n posteriors, from the prior."""
        sampler = GaussianFlow(target, prior, n_leaders=self.n_leaders, full_steps=self.full_steps)
        state = sampler.init(generator, batch_shape=(n,))
        return sampler.proposal(sampler.run(state, self.n_transitions))


def with_scores_in_16_bits(posterior: DecoderPosterior, model: VAE) -> OtherScores:
    """Return the posteriors of images with scores in bfloat16, of the same decoder."""
    names = Decoder.__dataclass_fields__
    half = Decoder(**{n: getattr(model.decoder, n).bfloat16() for n in names})
    rounded = DecoderPosterior(half, posterior.images.bfloat16())
    return OtherScores(posterior, LowPrecision(rounded, torch.bfloat16))


@dataclass(frozen=True)
class Annealing(HAISRun):
    """HAIS from q_K, in its coordinates."""

    def chains(self, evaluations: int) -> int:
        """How many chains so many evaluations pay for."""
        return evaluations // (self.n_transitions * self.n_leapfrog + 1)

    def used(self, evaluations: int) -> int:
        """Of so many evaluations, those that are made."""
        return self.chains(evaluations) * (self.n_transitions * self.n_leapfrog + 1)

    def finish(
        self, posterior: Target, q: Gaussian, evaluations: int, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return log Ẑ and diagnostics for each image."""
        inside = WhitenedTarget(posterior, q)
        sample, _ = self.run(
            inside, inside.base(), self.chains(evaluations), generator,
            batch_shape=tuple(q.mean.shape[:-1]),
        )  # fmt: skip
        return of_weights(sample)


@dataclass(frozen=True)
class Bridging:
    """Bridge sampling between q_K and the posterior, in the coordinates of q_K.

    `share` of the evaluations are draws of q_K, the others leapfrogs of `n_chains` chains.
    """

    share: float
    n_chains: int
    n_leapfrog: int
    step_size: float

    def sizes(self, evaluations: int) -> tuple[int, int]:
        """How many draws, and transitions of the chains, so many evaluations pay for."""
        n_draws = round(self.share * evaluations)
        return n_draws, (evaluations - n_draws) // (self.n_chains * self.n_leapfrog)

    def used(self, evaluations: int) -> int:
        """Of so many evaluations, those that are made."""
        n_draws, n_transitions = self.sizes(evaluations)
        return n_draws + n_transitions * self.n_chains * self.n_leapfrog

    def finish(
        self, posterior: Target, q: Gaussian, evaluations: int, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return log Ẑ and diagnostics for each image."""
        inside, batch = WhitenedTarget(posterior, q), tuple(q.mean.shape[:-1])
        n_draws, n_transitions = self.sizes(evaluations)
        sampler = BridgeSampling(
            inside, inside.base(), n_draws=n_draws, n_chains=self.n_chains,
            step_size=self.step_size, n_leapfrog=self.n_leapfrog,
        )  # fmt: skip
        state = sampler.run(sampler.init(generator, batch_shape=batch), n_transitions)
        found = sampler.estimate(state)
        return {
            "log_z": found.log_z, "standard_error": found.log_z_se, "overlap": found.overlap,
            "mean_log_w": state.log_r_draws.mean(-1),
        }  # fmt: skip


class Hybrid(NamedTuple):
    """A flow, then an end."""

    flow: Flow
    end: Annealing | Bridging

    def left(self, evaluations: int) -> int:
        """Of so many evaluations for one image, those that the flow leaves."""
        return evaluations - self.flow.evaluations

    def used(self, evaluations: int) -> int:
        """Of so many evaluations for one image, those that are made."""
        return self.flow.evaluations + self.end.used(self.left(evaluations))


def of_weights(sample: ImportanceSample) -> dict[str, Tensor]:
    """Return log Ẑ and diagnostics of weighted particles, for each problem."""
    return {
        "log_z": sample.log_z, "standard_error": sample.log_z_se, "ess": sample.ess / sample.n,
        "pareto_k": sample.pareto_k, "mean_log_w": sample.log_w.mean(-1),
    }  # fmt: skip


FLOWS = (Flow(15, 60, 8), Flow(22, 40, 9), Flow(16, 55, 9))
ENDS: dict[str, tuple[Annealing | Bridging, ...]] = {
    "hais": (Annealing(20, 3, 0.4), Annealing(20, 3, 0.55), Annealing(30, 2, 0.55),
             Annealing(60, 1, 0.55)),
    "bridge": (Bridging(1 / 3, 50, 2, 0.6), Bridging(1 / 2, 40, 2, 0.6),
               Bridging(1 / 3, 50, 3, 0.7), Bridging(1 / 2, 40, 3, 0.6)),
}  # fmt: skip
"""The candidates for 4000 evaluations: each flow with each end of a kind."""
FIRST_PILOT = 500
"""Pilots have the images from this one on, in the order of section 5."""


def hybrids(kind: str, dim: int) -> list[Hybrid]:
    """Return the candidates at a latent dimension: 12, or 8 where leaders must exceed d."""
    return [Hybrid(flow, end) for flow in FLOWS if flow.n_leaders > dim for end in ENDS[kind]]


def posterior_of(dim: int, numbers: range, repeats: int) -> DecoderPosterior:
    """Return posteriors of images of section 5, each `repeats` times: ``(images · repeats,)``."""
    model = vae.bundled(dim)
    found, _ = vae_likelihood.problem(vae_likelihood.VAELikelihood(), model, "prior", numbers)
    return DecoderPosterior(model.decoder, found.repeat_interleave(repeats, 0))


def tune_on_images(p: Beyond, chunk: Chunk, *, kind: str, dim: int) -> xr.Dataset:
    """Try all flows with all ends of a kind on pilot images, with the same evaluations for each.

    What counts, `merit`, is minus the mean standard error of log Ẑ.
    """
    numbers = range(FIRST_PILOT, FIRST_PILOT + p.tuning_images)
    posterior, generator = posterior_of(dim, numbers, 4), chunk.generator()
    merits = []
    for hybrid in hybrids(kind, dim):
        q = hybrid.flow.run(posterior, posterior.prior(), len(posterior.images), generator)
        found = hybrid.end.finish(posterior, q, hybrid.left(p.image_evaluations), generator)
        merits.append(-float(found["standard_error"].mean()))
    return xr.Dataset({"merit": (("trial", "candidate"), [merits])})


def on_images(p: Beyond, chunk: Chunk, *, variant: str, dim: int) -> xr.Dataset:
    """Run a variant several times on each image, or the truth once."""
    repeats = 1 if variant == TRUTH else p.image_repeats
    posterior, generator = posterior_of(dim, chunk.trials, repeats), chunk.generator()
    n = len(posterior.images)
    began = time.perf_counter()
    kind = end_kind(variant)
    merit = chunk.pilots[tuning_label(kind, dim)].merit.values[0]
    hybrid = hybrids(kind, dim)[int(merit.argmax())]
    target: Target = posterior
    if variant == "flow-cheap":
        target = with_scores_in_16_bits(posterior, vae.bundled(dim))
    q = hybrid.flow.run(target, posterior.prior(), n, generator)
    left = hybrid.left(p.image_evaluations)
    if variant == TRUTH:
        long = Annealing(p.truth_transitions, 3, 0.5)
        left = p.truth_chains * (3 * p.truth_transitions + 1)
        found = long.finish(posterior, q, left, generator)
    elif variant in ("flow-hais", "flow-bridge"):
        found = hybrid.end.finish(posterior, q, left, generator)
    else:
        found = of_weights(importance_sampling(posterior, q, (n, left), generator))
    seconds = (time.perf_counter() - began) / n
    dims, shape = ("trial", "repeat"), (chunk.n_trials, repeats)
    variables: dict[str, Any] = {
        name: (dims, value.reshape(shape).double().numpy()) for name, value in found.items()
    }
    variables["seconds"] = (dims, np.full(shape, seconds), {"units": "s"})
    return xr.Dataset(variables, coords={"repeat": range(repeats)})
