"""HAIS from a fitted density, as several variants end."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from steinis_lib.baselines.geometric_path import linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.importance import ImportanceSample
from steinis_lib.targets.base import ScoredProposal, Target


@dataclass(frozen=True)
class HAISRun:
    """Settings of HAIS on a linear schedule, with a full refresh of velocities.

    Parameters
    ----------
    n_transitions, n_leapfrog
        Transitions, and leapfrog steps in each.
    step_size
        ε of a leapfrog step.
    """

    n_transitions: int
    n_leapfrog: int
    step_size: float

    def run(
        self,
        target: Target,
        q0: ScoredProposal,
        n_particles: int,
        generator: torch.Generator,
        *,
        batch_shape: tuple[int, ...] = (),
    ) -> tuple[ImportanceSample, int]:
        """Return weighted particles, and the evaluations of p̄ for each problem of the batch."""
        sampler = HAIS(
            target, q0, n_particles=n_particles, schedule=linear_schedule(self.n_transitions),
            step_size=self.step_size, n_leapfrog=self.n_leapfrog,
        )  # fmt: skip
        state = sampler.run(sampler.init(generator, batch_shape=batch_shape))
        return sampler.importance_sample(state), sampler.n_evaluations()
