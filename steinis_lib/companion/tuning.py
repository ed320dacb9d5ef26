"""One tuner for all methods: equal budgets of score evaluations, one search, one rule on failures.

`search` tries a first grid, and then goes from neighbour to neighbour (a compass search). It leaves
the ranges of the first grid where that is better, so that a setting is chosen at an end of its
range only if runs fail beyond it, or there is nothing beyond it; `ends` says which.

`tune_sampler` scores a candidate by its mean log-weight in pilot runs. For a method with unbiased
Ẑ its expectation is log Z - KL(q_ext‖p_ext), between the joint law of all that the method draws and
the law that it is weighted against; for SteinIS it is log Z - KL(q_ℓ‖p). Where Ẑ is biased
("unadjusted" AIS) it is no such bound, and can reward the bias.

Cost is counted in scores at one particle: leaders of SteinIS (followers need none), and every
particle of AIS and HAIS, at each leapfrog step.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any, Generic, Literal, TypeVar

import torch
import xarray as xr
from torch import Tensor

from steinis_lib.companion.methods import Axis as Axis
from steinis_lib.companion.methods import Sampler, Setting
from steinis_lib.importance import ImportanceSample
from steinis_lib.steinis import SteinIS, SteinISState

C = TypeVar("C")
Merit = Literal["mean-log-w", "error"]
FIELDS = ("alpha", "beta", "multiplier", "refresh")
"""Of a `Setting`, in the order of a record."""
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


def tune_sampler(
    axes: Sequence[Axis],
    make: Callable[[Setting], Sampler],
    n_transitions: int,
    generator: torch.Generator,
    *,
    n_candidates: int,
    repeats: int,
    batch_shape: tuple[int, ...] = (),
    reference: Tensor | None = None,
    merit: Merit = "mean-log-w",
) -> list[Trial[Setting]]:
    """Search for a setting of SteinIS, AIS or HAIS with pilot runs, as many for each candidate.

    All candidates meet the same problems, and draw from the same state of the generator, which
    stays where it is. A candidate is out if it diverges in any run (a FloatingPointError, or a
    figure that is not finite), or if its maps fold in more than half of the runs. If they fold in
    at most half, these runs are left out, because their weights are not valid. Followers of SteinIS
    take no part in the maps, so that they are held out.

    Parameters
    ----------
    axes
        What is searched; see `axes_of`.
    make
        Builds the sampler from a candidate.
    n_transitions
        Of each run.
    repeats, batch_shape
        There are runs ``(repeats, *batch_shape)``. A target with batch axes has one problem for
        each run, or for each along the last axes. A candidate's score is the mean over runs.
    reference
        What is taken off the mean log-weight of each run, ``(repeats, *batch_shape)`` or a shape
        that broadcasts to it: log Z where it is known, so that problems can be compared. Default 0.
    merit
        "mean-log-w" (default), or "error": -|log Ẑ - reference|, where the mean log-weight is no
        bound.

    Raises
    ------
    ValueError
        As for `search`.
    """
    shape, start = (repeats, *batch_shape), generator.get_state()

    def evaluate(setting: Setting) -> Evaluation:
        run: Any = make(setting)  # the samplers have the same methods, each with a state of its own
        used = _scores(run, n_transitions) * math.prod(shape)
        again = torch.Generator(device=generator.device)
        again.set_state(start)
        try:
            state = run.run(run.init(again, batch_shape=shape), n_transitions)
            sample = run.importance_sample(state)
        except FloatingPointError:
            return -math.inf, math.inf, used, Failure.DIVERGED
        values = _merits(sample, reference, merit)
        folded = torch.zeros(shape, dtype=torch.bool)
        if isinstance(state, SteinISState):
            folded = (state.n_folds > 0).to(folded.device)
        return _summary(values, folded, used)

    return search(axes, evaluate, n_candidates)


def _merits(sample: ImportanceSample, reference: Tensor | None, merit: Merit) -> Tensor:
    """Return the figure of merit of each run, ``(repeats, *batch_shape)``."""
    log_z = torch.zeros((), dtype=sample.log_w.dtype) if reference is None else reference
    if merit == "error":
        return -(sample.log_z - log_z).abs()
    return sample.log_w.mean(-1) - log_z


def _summary(values: Tensor, folded: Tensor, used: int) -> Evaluation:
    """Return the mean over the runs that did not fold, or why the candidate is out."""
    if not bool(torch.isfinite(values).all()):
        return -math.inf, math.inf, used, Failure.DIVERGED
    if 2 * int(folded.sum()) > folded.numel():
        return -math.inf, math.inf, used, Failure.FOLDED
    kept = values[~folded]
    error = float(kept.std() / math.sqrt(len(kept))) if len(kept) > 1 else math.inf
    return float(kept.mean()), error, used, Failure.NONE


def _scores(sampler: Sampler, n_transitions: int) -> int:
    """Scores of one problem: followers of SteinIS need none."""
    if isinstance(sampler, SteinIS):
        return n_transitions * sampler.n_leaders
    return sampler.n_evaluations(n_transitions)


def tuning_record(trials: Sequence[Trial[Setting]]) -> xr.Dataset:
    """Return all candidates of a method, with their scores, as a dataset of one trial.

    Its variables are ``(trial, candidate)``: those of `Setting` (NaN for what a method does not
    have), `score`, `standard_error`, `gradients`, and `failure` (a `Failure`).
    """
    fields: dict[str, list[Any]] = {
        name: [math.nan if (value := asdict(t.candidate)[name]) is None else value for t in trials]
        for name in FIELDS
    }
    fields |= {
        name: [getattr(t, name) for t in trials]
        for name in ("score", "standard_error", "gradients")
    }
    fields["failure"] = [int(t.failure) for t in trials]
    return xr.Dataset({name: (("trial", "candidate"), [column]) for name, column in fields.items()})


def trials_of(record: xr.Dataset) -> list[Trial[Setting]]:
    """Return the trials that a `tuning_record` was made from; those without a score are none."""
    names = (*FIELDS, "score", "standard_error", "gradients", "failure")
    columns = {name: record[name].values[0].tolist() for name in names}
    found = []
    for i in range(record.sizes["candidate"]):
        row = {name: column[i] for name, column in columns.items()}
        if math.isnan(row["score"]):
            continue  # other searches of the same cell had more candidates
        setting = Setting(**{name: row[name] for name in FIELDS if not math.isnan(row[name])})
        found.append(
            Trial(
                setting, row["score"], row["standard_error"], int(row["gradients"]),
                Failure(int(row["failure"])),
            )
        )  # fmt: skip
    return found


def chosen(record: xr.Dataset) -> Setting:
    """Return the candidate with the best score in a record, the first of equals."""
    return best(trials_of(record)).candidate


def ends(record: xr.Dataset, axes: Sequence[Axis]) -> dict[str, str]:
    """Return, for each axis that was searched, where the chosen value is among those tried.

    "inside": smaller and larger values were tried, and did not fail. "diverges beyond", "folds
    beyond": on one side all those tried failed. "natural limit": there is nothing beyond.
    "end of the range": nothing was tried beyond. The most serious of both sides counts. What was
    tried beyond counts if it is at most one step of the first lattice away on every other axis.
    """
    trials, setting = trials_of(record), chosen(record)
    order = ("end of the range", "diverges beyond", "folds beyond", "natural limit", "inside")
    return {
        axis.name: min(
            (_side(trials, axes, setting, axis, sign) for sign in (1, -1)), key=order.index
        )
        for axis in axes
        if not axis.fixed
    }


WORDS = {"alpha": "step", "beta": "decay", "multiplier": "bandwidth ×", "refresh": "refresh"}
"""The fields of `Setting` on the pages."""


def tuning_table(record: xr.Dataset, axes: Sequence[Axis], label: str) -> dict[str, Any]:
    """Return a method's row of a page's table: its budget, what came of it, and `ends`.

    Keys are "method", "score evaluations" (in all), "candidates", "diverged", "folded", "chosen",
    and each of `WORDS` with the end that its value is at, or "–" where it was not searched.
    """
    trials, setting, where = trials_of(record), asdict(chosen(record)), ends(record, axes)
    row: dict[str, Any] = {
        "method": label,
        "score evaluations": sum(trial.gradients for trial in trials),
        "candidates": len(trials),
        "diverged": sum(trial.failure == Failure.DIVERGED for trial in trials),
        "folded": sum(trial.failure == Failure.FOLDED for trial in trials),
        "chosen": ", ".join(
            f"{word} {setting[name]:.3g}"
            for name, word in WORDS.items()
            if setting[name] is not None
        ),
    }
    return row | {word: where.get(name, "–") for name, word in WORDS.items()}
