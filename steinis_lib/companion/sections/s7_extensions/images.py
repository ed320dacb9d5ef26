"""The variants of `beyond` on images: a Gaussian flow, and two ways to go on from its end.

A candidate is a flow and an end, `Annealing` or `Bridging`; pilots choose one of each kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from steinis_lib.baselines.annealing import linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.companion.sections.s7_extensions.cheap_score import CheapScore
from steinis_lib.companion.vae.networks import VAE, Decoder
from steinis_lib.extensions.bridge_sampling import Bridge
from steinis_lib.extensions.gaussian_flow import GaussianFlow
from steinis_lib.targets.base import Gaussian, Target
from steinis_lib.targets.decoder import DecoderPosterior
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

    def run(
        self, posterior: DecoderPosterior, model: VAE, cheap: bool, generator: torch.Generator
    ) -> Gaussian:
        """Fit q_K to each image's posterior from the prior; `cheap`: with scores in bfloat16."""
        target: Target = posterior
        if cheap:
            names = Decoder.__dataclass_fields__
            half = Decoder(**{n: getattr(model.decoder, n).bfloat16() for n in names})
            rounded = DecoderPosterior(half, posterior.images.bfloat16())
            target = CheapScore(posterior, rounded, torch.bfloat16)
        sampler = GaussianFlow(target, self.n_leaders, self.full_steps)
        state = sampler.init(posterior.prior(), generator, tuple(posterior.images.shape[:-1]))
        return sampler.proposal(sampler.run(state, self.n_transitions))


@dataclass(frozen=True)
class Annealing:
    """HAIS from q_K, in its coordinates."""

    n_transitions: int
    n_leapfrog: int
    step_size: float

    def chains(self, evaluations: int) -> int:
        """How many chains so many evaluations pay for."""
        return evaluations // (self.n_transitions * self.n_leapfrog + 1)

    def used(self, evaluations: int) -> int:
        """Of so many evaluations, those that are made."""
        return self.chains(evaluations) * (self.n_transitions * self.n_leapfrog + 1)

    def finish(
        self, posterior: DecoderPosterior, q: Gaussian, evaluations: int, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return log Ẑ and diagnostics for each image."""
        inside, batch = WhitenedTarget(posterior, q), tuple(q.mean.shape[:-1])
        schedule = linear_schedule(self.n_transitions)
        chain = HAIS(inside, inside.base(), schedule, self.step_size, self.n_leapfrog)
        state = chain.run(chain.init(self.chains(evaluations), generator, batch))
        sample = chain.importance_sample(state)
        return {
            "log_z": sample.log_z, "standard_error": sample.log_z_se, "ess": sample.ess / sample.n,
            "pareto_k": sample.pareto_k, "mean_log_w": sample.log_w.mean(-1),
        }  # fmt: skip


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
        self, posterior: DecoderPosterior, q: Gaussian, evaluations: int, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return log Ẑ and diagnostics for each image."""
        inside, batch = WhitenedTarget(posterior, q), tuple(q.mean.shape[:-1])
        n_draws, n_transitions = self.sizes(evaluations)
        sampler = Bridge(inside, inside.base(), self.step_size, self.n_leapfrog)
        state = sampler.init(n_draws, self.n_chains, generator, batch)
        found = sampler.estimate(sampler.run(state, n_transitions))
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


FLOWS = (Flow(15, 60, 8), Flow(22, 40, 9), Flow(16, 55, 9))
ENDS: dict[str, tuple[Annealing | Bridging, ...]] = {
    "hais": (Annealing(20, 3, 0.4), Annealing(20, 3, 0.55), Annealing(30, 2, 0.55),
             Annealing(60, 1, 0.55)),
    "bridge": (Bridging(1 / 3, 50, 2, 0.6), Bridging(1 / 2, 40, 2, 0.6),
               Bridging(1 / 3, 50, 3, 0.7), Bridging(1 / 2, 40, 3, 0.6)),
}  # fmt: skip
"""The candidates for 4000 evaluations: each flow with each end of a kind."""


def hybrids(kind: str, dim: int) -> list[Hybrid]:
    """Return the candidates at a latent dimension: 12, or 8 where leaders must exceed d."""
    return [Hybrid(flow, end) for flow in FLOWS if flow.n_leaders > dim for end in ENDS[kind]]
