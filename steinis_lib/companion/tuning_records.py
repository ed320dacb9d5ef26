"""What a search found, as a dataset that is stored, and as a table of a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import xarray as xr

from steinis_lib.companion.search import Failure, Trial, _side, best
from steinis_lib.companion.settings import Axis as Axis
from steinis_lib.companion.settings import Setting

FIELDS = ("alpha", "beta", "multiplier", "refresh")
"""Of a `Setting`, in the order of a record."""


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
