"""Candidates of the tuning, what is made of one, and how an experiment keeps what tuning found.

Every tuned method of an experiment has twelve candidates, so that all have the same budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
import xarray as xr

from steinis_lib.baselines.ais import AIS, Langevin
from steinis_lib.baselines.annealing import linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.companion.pilots import Annealing, annealing_pilot, steinis_pilot
from steinis_lib.companion.tuning import Pilot, Trial, tune
from steinis_lib.schedules import StepSize
from steinis_lib.stein.kernels import RBF
from steinis_lib.stein.maps import Determinant
from steinis_lib.steinis import SteinIS
from steinis_lib.targets.base import Gaussian, ScoredProposal, Target


@dataclass(frozen=True)
class Setting:
    """One candidate: what its method understands of it, the rest is None.

    Parameters
    ----------
    alpha, beta
        Of SteinIS's steps α(1 + ℓ)^-β; α is the leapfrog step of HAIS and the ε of AIS too.
    multiplier
        Of the paper's bandwidth.
    refresh
        γ of HAIS.
    """

    alpha: float
    beta: float | None = None
    multiplier: float | None = None
    refresh: float | None = None


def leapfrog_steps(smallest: float) -> list[float]:
    """Return twelve steps, each 1.42 times the one before; the largest is 47 times the smallest."""
    return [smallest * 1.42**i for i in range(12)]


def annealing_candidates(method: str, smallest: float = 0.05) -> list[Setting]:
    """Return twelve candidates for HAIS (names ending in "partial": two γ below 1) or AIS.

    `smallest` is the first of the leapfrog steps.
    """
    steps = leapfrog_steps(smallest)
    if method == "ais":  # the Langevin step that HAIS at ε amounts to
        return [Setting(e**2 / 2) for e in steps]
    if method.endswith("partial"):
        return [Setting(e, refresh=g) for e in steps[1::2] for g in (0.1, 0.4)]
    return [Setting(e, refresh=1.0) for e in steps]


def annealing(
    target: Target, q0: ScoredProposal, method: str, setting: Setting, n_transitions: int
) -> Annealing:
    """Return AIS or HAIS on a linear schedule.

    The name of a method says its kind: "hais…", with ten leapfrog steps if it ends in "10l";
    "ais-unadjusted", AIS with plain weights; any other is AIS with kernel-ratio weights.
    """
    schedule = linear_schedule(n_transitions)
    if method.startswith("hais"):
        leapfrogs = 10 if method.endswith("10l") else 1
        return HAIS(target, q0, schedule, setting.alpha, leapfrogs, setting.refresh or 1.0)
    langevin: Langevin = "unadjusted" if method == "ais-unadjusted" else "kernel-ratio"
    return AIS(target, q0, schedule, setting.alpha, langevin)


def steinis(target: Target, setting: Setting, determinant: Determinant) -> SteinIS:
    """Return SteinIS with the bandwidth rule times a multiplier, 1 by default."""
    steps = StepSize(setting.alpha, setting.beta or 0.0)
    return SteinIS(target, RBF(multiplier=setting.multiplier or 1.0), steps, determinant)


def tune_on_problems(
    method: str,
    options: Sequence[Setting],
    target: Target,
    q0: Gaussian,
    n_problems: int,
    n_transitions: int,
    generator: torch.Generator,
    *,
    n_leaders: int,
    n_followers: int,
    determinant: Determinant,
) -> list[Trial[Setting]]:
    """Try settings of SteinIS (names starting so), AIS or HAIS on a batch of pilot problems.

    Each problem of ``(n_problems,)`` is one repeat, the same for all settings and methods.
    """
    pilot: Pilot[Setting]
    if method.startswith("steinis"):
        pilot = steinis_pilot(
            lambda s: steinis(target, s, determinant),
            q0, n_leaders, n_followers, n_transitions, generator,
        )  # fmt: skip
        cost = n_transitions * n_leaders
    else:
        pilot = annealing_pilot(
            lambda s: annealing(target, q0, method, s, n_transitions), n_followers, generator
        )
        cost = annealing(target, q0, method, options[0], n_transitions).gradients * n_followers
    return tune(options, pilot, len(options) * n_problems * cost)[1]


def tuning_record(trials: Sequence[Trial[Setting]]) -> xr.Dataset:
    """Return all candidates of a method, with their merits, as a dataset of one trial."""
    fields = {
        name: [math.nan if (value := asdict(t.candidate)[name]) is None else value for t in trials]
        for name in ("alpha", "beta", "multiplier", "refresh")
    }
    fields |= {
        name: [getattr(t, name) for t in trials]
        for name in ("score", "standard_error", "gradients")
    }
    return xr.Dataset(
        {name: (("trial", "candidate"), [column]) for name, column in fields.items()},
        coords={"trial": [0]},
    )


def chosen(record: xr.Dataset) -> Setting:
    """Return the candidate with the best merit in a record."""
    best = record.isel(trial=0, candidate=int(record.score.isel(trial=0).values.argmax()))
    values = {name: float(best[name]) for name in ("alpha", "beta", "multiplier", "refresh")}
    return Setting(**{name: value for name, value in values.items() if not math.isnan(value)})
