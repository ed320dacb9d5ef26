"""Pilot draws from several proposals, weighed together, and none of them in the final estimate.

A draw of any round is weighed with the mixture of all rounds' proposals, Σ n_r q_r / Σ n_r, which
keeps its weight small wherever one of them has mass ("deterministic mixture" weights of adaptive
multiple importance sampling; Cornuet et al. 2012).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from steinis_lib.core.pareto import pareto_k
from steinis_lib.estimate.space import Space
from steinis_lib.targets.base import Proposal


def ess_of(log_w: Tensor) -> float:
    """Return the effective sample size of log-weights; 0 if all weights are zero."""
    if not bool(torch.isfinite(log_w).any()):
        return 0.0
    return float((2 * log_w.logsumexp(-1) - (2 * log_w).logsumexp(-1)).exp())


def weighed(
    space: Space, q: Proposal, n: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Return n draws of q, log p̄ and log q; a draw beyond what floats can hold has p̄ = 0."""
    u = q.sample((n,), generator)
    inside = torch.isfinite(u).all(-1)
    u = torch.where(inside.unsqueeze(-1), u, 0.0)
    log_p, log_q = space.log_prob(u), q.log_prob(u)
    inside &= torch.isfinite(log_q)
    return u, torch.where(inside, log_p, -torch.inf), torch.where(inside, log_q, 0.0)


@dataclass(frozen=True)
class Round:
    """Draws ``(n, d)`` of one proposal, and log p̄ - log q at them ``(n,)``."""

    u: Tensor
    log_w: Tensor

    @property
    def share(self) -> float:
        """The effective sample size, as a share of the draws."""
        return ess_of(self.log_w) / len(self.log_w)

    @property
    def pareto_k(self) -> float:
        """Pareto-k̂ of the weights; ∞ if all of them are zero."""
        return float(pareto_k(self.log_w)) if self.share else math.inf

    @property
    def log_z(self) -> float:
        """log Ẑ."""
        return float(self.log_w.logsumexp(0)) - math.log(len(self.log_w))

    @property
    def log_z_se(self) -> float:
        """Its standard error by the delta method; ∞ if all weights are zero."""
        n = len(self.log_w)
        return math.sqrt(max(1 / self.share - 1, 0.0) / n) if self.share else math.inf


@dataclass(frozen=True)
class Pool:
    """All draws of several rounds.

    Parameters
    ----------
    u, log_p
        Draws ``(n, d)``, and log p̄ there ``(n,)``.
    proposals, sizes
        Of the rounds, in their order.
    log_q
        log density of each proposal at all draws, ``(n, rounds)``.
    """

    u: Tensor
    log_p: Tensor
    proposals: tuple[Proposal, ...]
    sizes: tuple[int, ...]
    log_q: Tensor

    @classmethod
    def empty(cls, like: Tensor, dim: int) -> Pool:
        """Return a pool without draws."""
        return cls(like.new_zeros(0, dim), like.new_zeros(0), (), (), like.new_zeros(0, 0))

    @property
    def log_w(self) -> Tensor:
        """log-weights with the mixture of all rounds, ``(n,)``."""
        sizes = self.log_q.new_tensor(self.sizes)
        return self.log_p - (self.log_q + (sizes / sizes.sum()).log()).logsumexp(-1)

    def drawn(
        self, space: Space, q: Proposal, n: int, generator: torch.Generator
    ) -> tuple[Pool, Round]:
        """Return the pool with a round of n draws of q, and the round alone."""
        u, log_p, own = weighed(space, q, n, generator)
        log_q = torch.cat(
            [
                torch.cat([self.log_q, _finite(q.log_prob(self.u)).unsqueeze(-1)], -1),
                torch.stack([*(_finite(p.log_prob(u)) for p in self.proposals), own], -1),
            ]
        )
        pool = Pool(
            torch.cat([self.u, u]),
            torch.cat([self.log_p, log_p]),
            (*self.proposals, q),
            (*self.sizes, n),
            log_q,
        )
        return pool, Round(u, log_p - own)


def _finite(log_q: Tensor) -> Tensor:
    return torch.nan_to_num(log_q, nan=-torch.inf, posinf=-torch.inf, neginf=-torch.inf)
