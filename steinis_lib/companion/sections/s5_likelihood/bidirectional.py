"""Bidirectional Monte Carlo (Grosse, Ghahramani & Adams 2015): log Z bounded from both sides.

Annealing from q_0 to p̄ has an unbiased Ẑ, so by Jensen's inequality E log Ẑ ≤ log Z. Annealing from
an exact sample of p = p̄/Z to q_0 estimates 1/Z without bias, so minus the log of that estimate is
at least log Z on average. Both are HAIS; downwards, p̄ and q_0 trade places. Bounds are stochastic:
by Markov's inequality each misses by more than a nats with probability at most e^-a.

One exact sample serves all chains. Each chain starts from p, so each weight is unbiased, and so is
their mean, although the chains are not independent. There is an exact sample for data that the
model itself made: with z ~ p(z) and x ~ p(x | z), z is a draw from p(z | x) (Wu et al. 2016).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steinis_lib.baselines.hais import HAIS
from steinis_lib.core.checks import check_finite, check_particles
from steinis_lib.targets.base import ScoredProposal, Target


@dataclass(frozen=True)
class Bounds:
    """Stochastic lower and upper bounds of log Z, each ``(*batch,)``."""

    lower: Tensor
    upper: Tensor

    @property
    def gap(self) -> Tensor:
        """upper - lower; small where both ways agree. It can be negative by chance."""
        return self.upper - self.lower


@dataclass(frozen=True)
class ExactStart:
    """A target with one exact sample ``(*batch, d)`` of it, as the start of a path."""

    target: Target
    exact: Tensor

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.target.dim

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log p̄(x), which is not normalised: the path down to q_0 has Ẑ = 1/Z for that."""
        return self.target.log_prob(x)

    def score(self, x: Tensor) -> Tensor:
        """Return ∇ log p̄(x)."""
        return self.target.score(x)

    def log_prob_and_score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return both."""
        return self.target.log_prob_and_score(x)

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Return the exact sample n times, for ``shape = (*batch, n)``."""
        return self.exact.unsqueeze(-2).expand(*shape, self.dim).contiguous()


def bidirectional(
    target: Target,
    q0: ScoredProposal,
    exact: Tensor,
    generator: torch.Generator,
    *,
    n_chains: int,
    schedule: Tensor,
    step_size: float | Tensor,
    n_leapfrog: int = 1,
) -> Bounds:
    """Bound log Z by HAIS from q_0 to p̄, and from an exact sample of p back to q_0.

    Parameters
    ----------
    exact
        One draw from p for each problem, ``(*batch, d)``. From any other start the upper bound is
        not one.
    n_chains
        Chains each way.
    schedule
        β_0 = 0 < … < β_T = 1, upwards; the way down takes 1 - β backwards.
    step_size, n_leapfrog
        As for `HAIS`, the same both ways; velocities are refreshed in full.

    Raises
    ------
    ValueError
        If `exact` is not ``(*batch, d)``.
    FloatingPointError
        If it is not finite, or log p̄ is not at a particle.
    """
    check_particles(exact.unsqueeze(-2), "the exact sample", target.dim)
    check_finite(exact, "the exact sample")
    batch = tuple(exact.shape[:-1])

    def log_z(target: Target, q0: ScoredProposal, schedule: Tensor) -> Tensor:
        sampler = HAIS(
            target,
            q0,
            n_particles=n_chains,
            schedule=schedule,
            step_size=step_size,
            n_leapfrog=n_leapfrog,
        )
        state = sampler.run(sampler.init(generator, batch_shape=batch))
        return sampler.importance_sample(state).log_z

    lower = log_z(target, q0, schedule)
    upper = -log_z(q0, ExactStart(target, exact), 1 - schedule.flip(0))
    return Bounds(lower, upper)
