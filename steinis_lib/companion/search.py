"""The search for a setting: a first grid, then from neighbour to neighbour (a compass search).

It leaves the ranges of the first grid where that is better, so that a setting is chosen at an end
of its range only if runs fail beyond it, or there is nothing beyond it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

from steinis_lib.companion.settings import Axis as Axis
from steinis_lib.companion.settings import Setting

C = TypeVar("C")
FINEST = 1 / 8
"""Steps of the search are halved down to this part of the first ones."""
PATIENCE = 3
"""How many times as many settings are tried, at most, while the best has a side without any."""


class Failure(IntEnum):
    """Why a candidate is out."""

    NONE = 0
    DIVERGED = 1
    FOLDED = 2


Evaluation = tuple[float, float, int, int]
"""A score (more is better), its standard error, the score evaluations spent, and a `Failure`."""


@dataclass(frozen=True)
class Trial(Generic[C]):
    """One candidate's pilots.

    Parameters
    ----------
    score
        The figure of merit to 6 significant digits; -inf if the candidate is out.
    standard_error
        Of the score.
    gradients
        Score evaluations that the pilots were given.
    failure
        Why the candidate is out, if it is.
    """

    candidate: C
    score: float
    standard_error: float
    gradients: int
    failure: Failure = Failure.NONE


def best(trials: Sequence[Trial[C]]) -> Trial[C]:
    """Return the trial with the best score, the first of equals."""
    return max(trials, key=lambda trial: trial.score)


def search(
    axes: Sequence[Axis], evaluate: Callable[[Setting], Evaluation], n_candidates: int
) -> list[Trial[Setting]]:
    """Look for the setting with the best score; return all trials in the order they were made.

    First come all combinations of the axes' first values. Then come the neighbours of the best
    setting so far, one step up or down on one axis: those first on whose side nothing was tried
    yet. When all its neighbours are tried, all steps are halved (for a geometric axis: to the
    square root), down to `FINEST`; from then on the neighbours of the second best come, and so on,
    so that every method tries as many settings. Scores are compared to 6 significant digits, and
    the first of equals is the best, so that round-off does not decide where the search goes.

    If the best then has a side on which nothing was tried, the search goes on until it has none,
    or until `PATIENCE` times as many settings were tried.

    Parameters
    ----------
    evaluate
        Setting → `Evaluation`. Settings with a failure, or a score that is not finite, are out.
    n_candidates
        How many settings are tried, if the best of them has been surrounded by then.

    Raises
    ------
    ValueError
        If `n_candidates` is smaller than the first grid, or every candidate is out.
    """
    grid = list(itertools.product(*(axis.places for axis in axes)))
    if n_candidates < len(grid):
        raise ValueError(
            f"the first grid has {len(grid)} settings, but n_candidates is {n_candidates}: "
            "expected at least as many candidates as the grid has"
        )
    trials: list[Trial[Setting]] = []
    places: dict[Setting, tuple[float, ...]] = {}

    def attempt(place: tuple[float, ...]) -> None:
        setting = _setting_at(axes, place)
        places[setting] = place
        trials.append(_trial(setting, evaluate(setting)))

    def neighbours(centre: Setting) -> list[tuple[float, ...]]:
        found = []
        for i, axis in enumerate(axes):
            for sign in (1, -1):
                place = _moved(places[centre], i, sign * width)
                if _setting_at(axes, place) not in places:
                    side = _side(trials, axes, centre, axis, sign)
                    found.append((side != "end of the range", place))
        return [place for _, place in sorted(found, key=lambda pair: pair[0])]

    for place in grid:
        attempt(place)
    width = 1.0
    while len(trials) < PATIENCE * n_candidates:
        ranked = _ranked(trials)
        if len(trials) >= n_candidates and not _open(trials, axes, ranked[0].candidate):
            break
        found = neighbours(ranked[0].candidate)
        if not found and width > FINEST:
            width /= 2
            continue
        others = (place for trial in ranked[1:] for place in neighbours(trial.candidate))
        following = found[0] if found else next(others, None)
        if following is None:
            break  # all axes are fixed
        attempt(following)
    if best(trials).score == -math.inf:
        raise ValueError("no candidate has a finite score: try smaller steps, or a wider q0")
    return trials


def _setting_at(axes: Sequence[Axis], place: Sequence[float]) -> Setting:
    values = {axis.name: axis.at(k) for axis, k in zip(axes, place, strict=True)}
    return Setting(**values)


def _moved(place: tuple[float, ...], i: int, by: float) -> tuple[float, ...]:
    return (*place[:i], place[i] + by, *place[i + 1 :])


def _trial(setting: Setting, evaluation: Evaluation) -> Trial[Setting]:
    score, error, gradients, failure = evaluation
    if failure == Failure.NONE and not math.isfinite(score):
        failure = Failure.DIVERGED
    if failure != Failure.NONE:
        return Trial(setting, -math.inf, math.inf, gradients, Failure(failure))
    return Trial(setting, float(f"{score:.6g}"), error, gradients)


def _ranked(trials: Sequence[Trial[Setting]]) -> list[Trial[Setting]]:
    """Return trials from the best to the worst; those that failed by their steps, smallest first.

    So the search goes towards smaller steps while all have failed.
    """

    def key(trial: Trial[Setting]) -> tuple[float, float]:
        return -trial.score, trial.candidate.alpha if trial.failure else 0.0

    return sorted(trials, key=key)


def _side(
    trials: Sequence[Trial[Setting]], axes: Sequence[Axis], centre: Setting, axis: Axis, sign: int
) -> str:
    """Say what is known on one side of a setting (sign 1: above; -1: below) along an axis.

    What was tried there counts if it is at most one step of the first lattice away on every other
    axis.
    """
    value = getattr(centre, axis.name)
    beyond = [
        trial
        for trial in trials
        if sign * (getattr(trial.candidate, axis.name) - value) > 0
        and all(
            other.steps_between(getattr(trial.candidate, other.name), getattr(centre, other.name))
            < 1 + 1e-4
            for other in axes
            if other.name != axis.name
        )
    ]
    if any(trial.failure == Failure.NONE for trial in beyond):
        return "inside"
    if not beyond:
        limit = axis.high if sign > 0 else axis.low
        return "natural limit" if value == limit else "end of the range"
    nearest = min(
        beyond, key=lambda trial: axis.steps_between(getattr(trial.candidate, axis.name), value)
    )
    return "folds beyond" if nearest.failure == Failure.FOLDED else "diverges beyond"


def _open(trials: Sequence[Trial[Setting]], axes: Sequence[Axis], centre: Setting) -> bool:
    """Whether a setting has a side on which nothing was tried."""
    return any(
        _side(trials, axes, centre, axis, sign) == "end of the range"
        for axis in axes
        for sign in (1, -1)
    )
