"""Pilot runs for `tuning`: the mean log-weight of SteinIS, AIS and HAIS at a given cost.

A pilot takes as many transitions as the run it is for; what it is allowed to spend buys repeats.
Cost is counted in scores at one particle: leaders of SteinIS (followers need none), and every
particle of AIS and HAIS, at each leapfrog step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from steinis_lib.companion.tuning import C, Pilot
from steinis_lib.importance import ImportanceSample
from steinis_lib.steinis import SteinIS
from steinis_lib.targets.base import Proposal


class Annealing(Protocol):
    """What AIS and HAIS have in common."""

    @property
    def gradients(self) -> int:
        """Score evaluations for each particle of a complete run."""
        ...

    def init(
        self, n_particles: int, generator: torch.Generator, batch_shape: tuple[int, ...] = ()
    ) -> Any:
        """Draw particles from q_0."""
        ...

    def run(self, state: Any) -> Any:
        """Take all transitions."""
        ...

    def importance_sample(self, state: Any) -> ImportanceSample:
        """Return the weighted particles."""
        ...


def annealing_pilot(
    make: Callable[[C], Annealing],
    n_particles: int,
    generator: torch.Generator,
    batch_shape: tuple[int, ...] = (),
) -> Pilot[C]:
    """Return the pilot of AIS or HAIS, as `make` builds it from a candidate.

    `batch_shape` is that of a batch of problems; a repeat's merit is the mean over them.
    """

    def pilot(candidate: C, allowed: int) -> tuple[Tensor, int]:
        sampler = make(candidate)
        cost = sampler.gradients * n_particles * math.prod(batch_shape)
        repeats = _repeats(allowed, cost)
        state = sampler.run(sampler.init(n_particles, generator, (repeats, *batch_shape)))
        return sampler.importance_sample(state).log_w.flatten(1).mean(-1), repeats * cost

    return pilot


def steinis_pilot(
    make: Callable[[C], SteinIS],
    q0: Proposal,
    n_leaders: int,
    n_followers: int,
    n_transitions: int,
    generator: torch.Generator,
    batch_shape: tuple[int, ...] = (),
    *,
    folded_allowed: float = 0.0,
) -> Pilot[C]:
    """Return the pilot of SteinIS: followers take no part in the maps, so they are held out.

    Where a follower met a fold, weights are not valid and their mean is no bound. Such repeats are
    left out, and if they are more than the share `folded_allowed` of all, every merit is -inf.
    """

    def pilot(candidate: C, allowed: int) -> tuple[Tensor, int]:
        cost = n_transitions * n_leaders * math.prod(batch_shape)
        repeats, sampler = _repeats(allowed, cost), make(candidate)
        state = sampler.init(q0, n_leaders, n_followers, generator, (repeats, *batch_shape))
        state = sampler.run(state, n_transitions)
        merits = sampler.importance_sample(state).log_w.flatten(1).mean(-1)
        folded = state.n_folds.reshape(repeats, -1).sum(-1) > 0
        valid = int(folded.sum()) <= folded_allowed * repeats and int((~folded).sum()) >= 2
        return merits[~folded] if valid else merits - torch.inf, repeats * cost

    return pilot


def _repeats(allowed: int, cost: int) -> int:
    repeats = allowed // cost
    if repeats < 2:
        raise ValueError(
            f"{allowed} score evaluations for a candidate pay for {repeats} pilot runs of {cost}; "
            "at least 2 are needed: raise the budget, or take fewer particles"
        )
    return repeats
