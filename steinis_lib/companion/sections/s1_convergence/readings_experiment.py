"""The curves of Figure 2 under further readings: another bandwidth, a longer run, easier targets.

Each cell is a condition of experiment `gmm-convergence` with one thing changed, on fewer trials.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import xarray as xr
from pydantic import Field

from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner.experiment import Cell, Chunk, Experiment
from steinis_lib.companion.sections.s1_convergence.experiment import (
    Condition,
    GMMConvergence,
    curves_of,
)


class ConvergenceReadings(Parameters):
    """What is changed; all else is as in experiment `gmm-convergence`."""

    QUICK: ClassVar[dict[str, Any]] = {
        "n_rise_trials": 3,
        "n_trials": 2,
        "n_leaders": 40,
        "n_followers": 60,
        "n_svgd": 50,
        "n_grid": 201,
        "step_size": 0.2,
        "end_time": 20.0,
        "long_end_time": 40.0,
    }

    n_rise_trials: int = Field(
        40, ge=2, le=10_000, description="trials of SteinIS with twice the bandwidth"
    )
    n_trials: int = Field(20, ge=2, le=10_000, description="trials of the other conditions")
    n_leaders: int = Field(200, ge=2, le=5000, description="|A| of SteinIS")
    n_followers: int = Field(500, ge=2, le=100_000, description="|B| of SteinIS")
    n_svgd: int = Field(500, ge=2, le=5000, description="particles of SVGD")
    n_grid: int = Field(801, ge=101, le=10_001, description="points of the quadrature under q0")
    double_multiplier: float = Field(
        2.0, gt=0, le=1000, description="bandwidth multiplier of the conditions named double"
    )
    easy_spread: float = Field(
        2.0, ge=0, le=100, description="means of the mixtures named easy are uniform on ±this"
    )
    step_size: float = Field(0.1, gt=0, le=1, description="ε, small: it stands in for dt")
    end_time: float = Field(60.0, gt=0, le=1000, description="t at the end, a whole number")
    long_end_time: float = Field(
        200.0, gt=0, le=5000, description="t at the end of the runs named long, a whole number"
    )


def cells(p: ConvergenceReadings) -> list[Cell]:
    """Return a cell for each condition.

    SteinIS with twice the bandwidth has more trials, because the share of trials in which KL rises
    is read from it: it takes 36 trials without a rise to say that fewer than 10 % have one.
    """
    steinis, svgd = Condition(p.n_leaders), Condition(p.n_svgd)
    easy, long = {"spread": p.easy_spread}, {"end_time": p.long_end_time}
    n = p.n_trials
    return [
        _cell("steinis-double", p.n_rise_trials, Condition(p.n_leaders, p.double_multiplier)),
        _cell("svgd-double", n, Condition(p.n_svgd, p.double_multiplier)),
        _cell("steinis-long", n, steinis, long),
        _cell("steinis-easy", n, steinis, easy),
        _cell("svgd-easy", n, svgd, easy),
    ]


def _cell(
    label: str, n_trials: int, condition: Condition, changes: dict[str, float] | None = None
) -> Cell:
    return Cell(label, n_trials, partial(compute, condition=condition, changes=changes or {}))


def compute(
    p: ConvergenceReadings, chunk: Chunk, condition: Condition, changes: dict[str, float]
) -> xr.Dataset:
    """Compute one chunk of one condition; curves are recorded at each whole t."""
    end_time = changes.get("end_time", p.end_time)
    shared = {
        name: getattr(p, name) for name in ("n_leaders", "n_followers", "n_svgd", "n_grid")
    } | {"step_size": p.step_size, "end_time": end_time, "n_times": round(end_time) + 1}
    return curves_of(GMMConvergence.of_profile("paper", shared | changes), chunk, condition)


EXPERIMENT = Experiment("convergence-readings", ConvergenceReadings, cells)
