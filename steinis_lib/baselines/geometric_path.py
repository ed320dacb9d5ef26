"""The geometric path from q_0 to p̄, and the schedules along it.

The path is log f_β = (1 - β) log q_0 + β log p̄, from f_0 = q_0 to f_1 = p̄.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steinis_lib.core.checks import (
    check_at_least,
    check_finite,
    check_log_density,
    check_particles,
    check_q0,
)
from steinis_lib.targets.base import ScoredProposal, Target


def linear_schedule(n: int) -> Tensor:
    """Return β_t = t/n for t = 0, …, n, ``(n + 1,)``, float64: n transitions."""
    check_at_least(n, 1, "a schedule's transitions")
    return torch.linspace(0, 1, n + 1, dtype=torch.float64)


def sigmoidal_schedule(n: int, radius: float = 4.0) -> Tensor:
    """Return the schedule of Wu et al. (2016) for n transitions, ``(n + 1,)``, float64.

    β̃_t = σ(δ(2t/n - 1)) with δ = `radius`, then β_t = (β̃_t - β̃_0)/(β̃_n - β̃_0).
    """
    if not radius > 0:
        raise ValueError(f"radius must be positive, got {radius}")
    s = torch.sigmoid(radius * (2 * linear_schedule(n) - 1))
    return (s - s[0]) / (s[-1] - s[0])


@dataclass(frozen=True)
class Evaluated:
    """Particles with the densities and scores there, so that every β is served by one evaluation.

    Parameters
    ----------
    particles, score_q0, score_p
        ``(*batch, n, d)``.
    log_q0, log_p
        ``(*batch, n)``.
    """

    particles: Tensor
    log_q0: Tensor
    score_q0: Tensor
    log_p: Tensor
    score_p: Tensor

    def log_prob(self, beta: float) -> Tensor:
        """Return log f_β, ``(*batch, n)``."""
        return torch.add((1 - beta) * self.log_q0, self.log_p, alpha=beta)

    def score(self, beta: float) -> Tensor:
        """Return ∇ log f_β, ``(*batch, n, d)``."""
        return _between(self.score_q0, self.score_p, beta)

    def is_finite(self) -> Tensor:
        """Say for which particles every number is finite, ``(*batch, n)``."""
        total = (self.particles + self.score_q0 + self.score_p).sum(-1) + self.log_q0 + self.log_p
        return total.abs() < torch.inf  # as a sum with a NaN or an infinity is not finite


def _between(one: Tensor, other: Tensor, beta: float) -> Tensor:
    """Return (1 - β) `one` + β `other`: in one operation, if both have the same dtype."""
    if one.dtype != other.dtype:
        return (1 - beta) * one + beta * other
    return torch.lerp(one, other, beta)


def choose(take_new: Tensor, new: Evaluated, old: Evaluated) -> Evaluated:
    """Return `new` where `take_new` ``(*batch, n)`` is True, else `old`."""

    row = take_new.unsqueeze(-1)
    return Evaluated(
        torch.where(row, new.particles, old.particles),
        torch.where(take_new, new.log_q0, old.log_q0),
        torch.where(row, new.score_q0, old.score_q0),
        torch.where(take_new, new.log_p, old.log_p),
        torch.where(row, new.score_p, old.score_p),
    )


@dataclass(frozen=True)
class GeometricPath:
    """log f_β = (1 - β) log q_0 + β log p̄, with q_0 normalised.

    Raises
    ------
    TypeError
        If q_0 has no score.
    ValueError
        If q_0 and the target differ in dimension.
    """

    q0: ScoredProposal
    target: Target

    def __post_init__(self) -> None:
        if not hasattr(self.q0, "log_prob_and_score"):
            raise TypeError(
                f"q0 must have a score, through log_prob_and_score; {type(self.q0).__name__} has "
                "none: take a Gaussian or a mixture, or write the method"
            )
        check_q0(self.target, self.q0)

    def evaluate(self, x: Tensor) -> Evaluated:
        """Evaluate q_0 and p̄ once each at particles ``(*batch, n, d)``."""
        return Evaluated(x, *self.q0.log_prob_and_score(x), *self.target.log_prob_and_score(x))

    def score(self, x: Tensor, beta: float) -> Tensor:
        """Return ∇ log f_β at particles ``(*batch, n, d)``; no density is asked for."""
        return _between(self.q0.score(x), self.target.score(x), beta)

    def draw(
        self, n_particles: int, generator: torch.Generator, batch_shape: tuple[int, ...]
    ) -> Evaluated:
        """Draw ``(*batch, n)`` particles from q_0 and evaluate both ends of the path there.

        Raises
        ------
        FloatingPointError
            If log p̄ is NaN or +inf, or its score is not finite where p̄ > 0, naming the particle.
        """
        x = self.q0.sample((*batch_shape, n_particles), generator)
        check_particles(x, "particles", self.target.dim)
        start = self.evaluate(x)
        check_log_density(start.log_p, "the target's log_prob")
        check_finite(
            start.score_p.masked_fill((start.log_p == -torch.inf).unsqueeze(-1), 0.0),
            "the target's score",
        )
        return start


def check_schedule(schedule: Tensor) -> None:
    """Refuse a schedule that is no ``(T + 1,)`` tensor rising from exactly 0 to exactly 1."""
    good = schedule.ndim == 1 and len(schedule) > 1 and bool((schedule.diff() > 0).all())
    if not (good and schedule[0] == 0 and schedule[-1] == 1):
        raise ValueError(
            "schedule must be a 1-D tensor that rises strictly from exactly 0 to exactly 1, "
            "such as linear_schedule(n) or sigmoidal_schedule(n)"
        )
