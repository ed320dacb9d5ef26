"""One tuning protocol for all methods: equal budgets of score evaluations, one figure of merit.

The merit is the mean log-weight of pilot runs (see `pilots`). For a method with unbiased Ẑ its
expectation is log Z - KL(q_ext‖p_ext), between the joint law of all that the method draws and the
one that it is weighted against; for SteinIS, log Z - KL(q_ℓ‖p). Where Ẑ is biased ("unadjusted"
AIS, `adapt_biased`) it is no such bound, and can reward the bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

C = TypeVar("C")
Pilot = Callable[[C, int], tuple[Tensor, int]]
"""(candidate, score evaluations allowed) → merits of independent repeats ``(r,)``, and those used.

Its random draws come from a generator of its own, never from that of the weighted run.
"""


@dataclass(frozen=True)
class Trial(Generic[C]):
    """One candidate's pilots: mean merit, its standard error, and score evaluations used."""

    candidate: C
    score: float
    standard_error: float
    gradients: int


def tune(candidates: Sequence[C], pilot: Pilot[C], budget: int) -> tuple[C, list[Trial[C]]]:
    """Return the candidate with the best mean merit, and the record of all in their order.

    Parameters
    ----------
    candidates
        Settings to choose from: anything that `pilot` understands and a record can store.
    budget
        Score evaluations at one particle, in all; each candidate gets
        ``budget // len(candidates)``. One that fails with a FloatingPointError, or whose merit is
        -inf or NaN, scores -inf, and its share is gone.

    Raises
    ------
    ValueError
        If a pilot uses more than its share, or no candidate has a finite merit.
    """
    if not candidates:
        raise ValueError("there are no candidates to choose from")
    share, trials = budget // len(candidates), []
    for candidate in candidates:
        try:
            merits, used = pilot(candidate, share)
        except FloatingPointError:
            merits, used = torch.tensor([-torch.inf]), share
        if used > share:
            raise ValueError(f"the pilot of {candidate} used {used} score evaluations of {share}")
        score, error = -math.inf, math.inf
        if bool(torch.isfinite(merits).all()):
            score, error = float(merits.mean()), float(merits.std() / math.sqrt(len(merits)))
        trials.append(Trial(candidate, score, error, used))
    best = max(trials, key=lambda trial: trial.score)
    if best.score == -math.inf:
        raise ValueError("no candidate has a finite merit: try smaller steps, or a wider q0")
    return best.candidate, trials
