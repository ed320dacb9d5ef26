"""Three cheaper or tempered scores for the leaders of SteinIS, none of which pays here.

Scores only shape a map, and any map has valid weights as long as its determinant is tracked. So
leaders may take scores in low precision, scores of earlier transitions, or scores of another
density. Errors of the scores make the maps less good; Ẑ stays unbiased.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NoReturn, Protocol, cast

import torch
from torch import Tensor

from steinis_lib.baselines.geometric_path import GeometricPath, check_schedule
from steinis_lib.core.checks import check_at_least
from steinis_lib.steinis import SteinIS, SteinISInfo, SteinISState
from steinis_lib.targets.base import ScoredProposal, Target

OnStep = Callable[[SteinISState, SteinISInfo], None]


class Scores(Protocol):
    """Anything with a dimension and a score."""

    @property
    def dim(self) -> int:
        """The dimension d."""
        ...

    def score(self, x: Tensor) -> Tensor:
        """Return scores ``(*batch, n, d)`` at particles ``(*batch, n, d)``."""
        ...


@dataclass(frozen=True)
class OtherScores:
    """A target whose log-density is that of `target`, and whose score is that of `other`.

    Parameters
    ----------
    target
        p̄, through `log_prob`; followers are weighed by it.
    other
        Its score is used in place of p̄'s.

    Raises
    ------
    ValueError
        If the two have different dimensions.
    """

    target: Target
    other: Scores

    def __post_init__(self) -> None:
        if self.other.dim != self.target.dim:
            raise ValueError(
                f"the other scores have d={self.other.dim}, but the target has d={self.target.dim}"
            )

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.target.dim

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log p̄(x), exact, ``(*batch, n)``."""
        return self.target.log_prob(x)

    def score(self, x: Tensor) -> Tensor:
        """Return the other score, ``(*batch, n, d)``."""
        return self.other.score(x)

    def log_prob_and_score(self, x: Tensor) -> NoReturn:
        """Refuse the pair that HAIS and AIS ask for: a density with its own gradient.

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError(
            "OtherScores has a log-density and a score of different functions, which is for "
            "building maps alone; expected a target with its own score: give annealing the exact "
            "target"
        )


@dataclass(frozen=True)
class LowPrecision:
    """Scores in another dtype.

    Parameters
    ----------
    target
        Its score is taken; its own numbers have the dtype below.
    dtype
        Particles are cast to it, such as ``torch.bfloat16``, and scores are cast back.
    """

    target: Target
    dtype: torch.dtype

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.target.dim

    def score(self, x: Tensor) -> Tensor:
        """Return the score, ``(*batch, n, d)``, in the dtype of x."""
        return self.target.score(x.to(self.dtype)).to(x.dtype)


@dataclass(frozen=True)
class Tempered:
    """∇ log f_β = (1 - β) ∇ log q_0 + β ∇ log p̄ of a path from q_0 to p̄."""

    path: GeometricPath
    beta: float

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.path.target.dim

    def score(self, x: Tensor) -> Tensor:
        """Return the score, ``(*batch, n, d)``."""
        return self.path.score(x, self.beta)


@dataclass(frozen=True)
class Taken:
    """Scores that were taken before, ``(*batch, n, d)``; they are returned for any particles."""

    scores: Tensor

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.scores.shape[-1]

    def score(self, x: Tensor) -> Tensor:
        """Return the scores that were taken, wherever the particles x are now."""
        return self.scores


def run_annealed(
    sampler: SteinIS,
    state: SteinISState,
    n_transitions: int,
    schedule: Tensor,
    *,
    on_step: OnStep | None = None,
) -> SteinISState:
    """Run SteinIS with leaders that follow f_β, from q_0 at first to p̄ in the end.

    Leaders take the score of f_β with β = schedule[ℓ + 1] at transition ℓ, and of p̄ once the
    schedule is through. β = 0 is left out, as leaders are draws from q_0 already.

    Parameters
    ----------
    sampler
        Its q_0 has a score.
    schedule
        β_0 = 0, …, β_T = 1, ``(T + 1,)``, such as ``linear_schedule(T)``.

    Raises
    ------
    ValueError
        If the schedule does not rise strictly from exactly 0 to exactly 1.
    TypeError
        If q_0 has no score.
    """
    check_schedule(schedule)
    path = GeometricPath(cast(ScoredProposal, sampler.q0), sampler.target)  # checks its q_0

    for _ in range(n_transitions):
        beta = float(schedule[min(int(state.transition) + 1, len(schedule) - 1)])
        target = OtherScores(sampler.target, Tempered(path, beta))
        state, info = (sampler if beta == 1 else replace(sampler, target=target)).step(state)
        if on_step is not None:
            on_step(state, info)
    return state


def run_reusing_scores(
    sampler: SteinIS,
    state: SteinISState,
    n_transitions: int,
    *,
    every: int = 2,
    on_step: OnStep | None = None,
) -> SteinISState:
    """Run SteinIS with scores that are taken at every second transition, and used twice.

    The other maps are built from the leaders where they are now, with the scores from where they
    were. A run that goes on from another one takes scores first.

    Parameters
    ----------
    every
        Scores are taken where ℓ is a multiple of it.

    Raises
    ------
    ValueError
        If `every` is less than 1, or the sampler draws other leaders for each map, whose scores
        are not at hand.
    """
    check_at_least(every, 1, "every")
    if sampler.leaders_per_step is not None:
        raise ValueError(
            "scores can be reused only if the same leaders build each map: expected "
            f"leaders_per_step=None, got {sampler.leaders_per_step}"
        )
    scores: Tensor | None = None

    for _ in range(n_transitions):
        if scores is None or int(state.transition) % every == 0:
            state, info = sampler.step(state)
            scores = info.step_map.scores
        else:
            reused = replace(sampler, target=OtherScores(sampler.target, Taken(scores)))
            state, info = reused.step(state)
        if on_step is not None:
            on_step(state, info)
    return state
