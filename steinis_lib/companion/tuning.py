"""One tuning protocol for all methods: equal budgets of score evaluations, one figure of merit.

The figure is the mean log-weight of pilot runs. For a method with unbiased Ẑ its expectation is
log Z - KL(q_ext‖p_ext), between the joint law of all that the method draws and the law that it is
weighted against; for SteinIS it is log Z - KL(q_ℓ‖p). Where Ẑ is biased ("unadjusted" AIS) it
is no such bound, and can reward the bias.

A pilot takes as many transitions as the run it is for. What it is allowed to spend buys repeats.
Cost is counted in scores at one particle: leaders of SteinIS (followers need none), and every
particle of AIS and HAIS, at each leapfrog step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

import torch
import xarray as xr
from torch import Tensor

from steinis_lib.companion.methods import Sampler, Setting
from steinis_lib.steinis import SteinIS, SteinISState

C = TypeVar("C")
Pilot = Callable[[C, int], tuple[Tensor, int]]
"""(candidate, score evaluations allowed) → mean log-weights of independent repeats ``(r,)``, and
the evaluations used. Its draws come from a generator of its own, never from the weighted run's."""


@dataclass(frozen=True)
class Trial(Generic[C]):
    """One candidate's pilots: the mean log-weight, its standard error, and scores used."""

    candidate: C
    score: float
    standard_error: float
    gradients: int


def tune(candidates: Sequence[C], pilot: Pilot[C], budget: int) -> list[Trial[C]]:
    """Return the record of all candidates in their order; `best` chooses one.

    Parameters
    ----------
    candidates
        Settings to choose from: anything that `pilot` understands and a record can store.
    budget
        Score evaluations at one particle, in all; each candidate gets
        ``budget // len(candidates)``. A candidate that fails with a FloatingPointError, or whose
        mean log-weight is -inf or NaN, scores -inf, and its share is gone.

    Raises
    ------
    ValueError
        If a pilot uses more than its share, or no candidate has a finite score.
    """
    if not candidates:
        raise ValueError("there are no candidates to choose from")
    share, trials = budget // len(candidates), []
    for candidate in candidates:
        try:
            values, used = pilot(candidate, share)
        except FloatingPointError:
            values, used = torch.tensor([-torch.inf]), share
        if used > share:
            raise ValueError(f"the pilot of {candidate} used {used} score evaluations of {share}")
        score, error = -math.inf, math.inf
        if bool(torch.isfinite(values).all()):
            score, error = float(values.mean()), float(values.std() / math.sqrt(len(values)))
        trials.append(Trial(candidate, score, error, used))
    if best(trials).score == -math.inf:
        raise ValueError("no candidate has a finite score: try smaller steps, or a wider q0")
    return trials


def best(trials: Sequence[Trial[C]]) -> Trial[C]:
    """Return the trial with the best score."""
    return max(trials, key=lambda trial: trial.score)


def tune_sampler(
    candidates: Sequence[Setting],
    make: Callable[[Setting], Sampler],
    n_transitions: int,
    generator: torch.Generator,
    *,
    repeats: int,
    batch_shape: tuple[int, ...] = (),
    folded_allowed: float = 0.0,
) -> list[Trial[Setting]]:
    """Try settings of one sampler on pilot runs, with a budget of so many repeats of each.

    Parameters
    ----------
    make
        Builds the sampler from a candidate.
    repeats
        Independent pilot runs of each candidate. A target with the batch axis ``(repeats,)`` has
        one problem for each repeat.
    batch_shape
        Problems in each repeat; a repeat's figure is the mean over them.
    folded_allowed
        See `sampler_pilot`.
    """
    pilot = sampler_pilot(make, n_transitions, generator, batch_shape, folded_allowed)
    cost = _scores(make(candidates[0]), n_transitions) * math.prod(batch_shape)
    return tune(candidates, pilot, len(candidates) * repeats * cost)


def sampler_pilot(
    make: Callable[[C], Sampler],
    n_transitions: int,
    generator: torch.Generator,
    batch_shape: tuple[int, ...] = (),
    folded_allowed: float = 0.0,
) -> Pilot[C]:
    """Return the pilot of SteinIS, AIS or HAIS, as `make` builds it from a candidate.

    Followers of SteinIS take no part in the maps, so that they are held out. Where a follower met
    a fold, weights are not valid and their mean is no bound. Such repeats are left out; if they
    are more than the share `folded_allowed` of all, every figure is -inf.
    """

    def pilot(candidate: C, allowed: int) -> tuple[Tensor, int]:
        sampler = make(candidate)
        cost = _scores(sampler, n_transitions) * math.prod(batch_shape)
        repeats = allowed // cost
        if repeats < 2:
            raise ValueError(
                f"{allowed} score evaluations for a candidate pay for {repeats} pilot runs of "
                f"{cost}; at least 2 are needed: raise the budget, or take fewer particles"
            )
        run: Any = sampler  # the three have the same methods, each with a state of its own
        state = run.init(generator, batch_shape=(repeats, *batch_shape))
        state = run.run(state, n_transitions)
        values = run.importance_sample(state).log_w.flatten(1).mean(-1)
        if isinstance(state, SteinISState):
            folded = state.n_folds.reshape(repeats, -1).sum(-1) > 0
            valid = int(folded.sum()) <= folded_allowed * repeats and int((~folded).sum()) >= 2
            values = values[~folded] if valid else values - torch.inf
        return values, repeats * cost

    return pilot


def _scores(sampler: Sampler, n_transitions: int) -> int:
    """Scores of one problem: followers of SteinIS need none."""
    if isinstance(sampler, SteinIS):
        return n_transitions * sampler.n_leaders
    return sampler.n_evaluations(n_transitions)


def tuning_record(trials: Sequence[Trial[Setting]]) -> xr.Dataset:
    """Return all candidates of a method, with their scores, as a dataset of one trial."""
    fields = {
        name: [math.nan if (value := asdict(t.candidate)[name]) is None else value for t in trials]
        for name in ("alpha", "beta", "multiplier", "refresh")
    }
    fields |= {
        name: [getattr(t, name) for t in trials]
        for name in ("score", "standard_error", "gradients")
    }
    return xr.Dataset({name: (("trial", "candidate"), [column]) for name, column in fields.items()})


def chosen(record: xr.Dataset) -> Setting:
    """Return the candidate with the best score in a record."""
    row = record.isel(trial=0, candidate=int(record.score.isel(trial=0).values.argmax()))
    values = {name: float(row[name]) for name in ("alpha", "beta", "multiplier", "refresh")}
    return Setting(**{name: value for name, value in values.items() if not math.isnan(value)})
