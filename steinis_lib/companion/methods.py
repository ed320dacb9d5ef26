"""The methods that sections 2, 4 and 5 compare: their settings, and how a sampler is built.

Every tuned method of an experiment has twelve candidates, so that all have the same budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import xarray as xr
from torch import Tensor

from steinis_lib.baselines.ais import AIS, Langevin
from steinis_lib.baselines.geometric_path import linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.importance import ImportanceSample, importance_sampling
from steinis_lib.schedules import StepSize
from steinis_lib.stein.kernels import RBF
from steinis_lib.stein.maps import Determinant
from steinis_lib.steinis import SteinIS, SteinISInfo, SteinISState
from steinis_lib.targets.base import Proposal, ScoredProposal, Target

Sampler = SteinIS | AIS | HAIS

TUNED = ("steinis", "steinis-wide", "hais-1l", "hais-1l-partial", "hais-10l", "ais")
"""The tuned methods of sections 4 and 5."""
METHODS = ("is", *TUNED, "ais-unadjusted")
"""All methods of sections 4 and 5."""


@dataclass(frozen=True)
class Setting:
    """One candidate of the tuning. What a method does not have is None.

    Parameters
    ----------
    alpha, beta
        Of SteinIS's steps α(1 + ℓ)^-β; α is also the leapfrog step of HAIS and the ε of AIS.
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


def tuned_as(method: str) -> str:
    """Return the method whose setting this one takes: unadjusted AIS takes that of unbiased AIS."""
    return "ais" if method == "ais-unadjusted" else method


def build_sampler(
    method: str,
    target: Target,
    q0: ScoredProposal,
    setting: Setting,
    n_transitions: int,
    *,
    n_leaders: int,
    n_followers: int,
    determinant: Determinant = "exact",
) -> Sampler:
    """Return the sampler that a method's name stands for.

    Parameters
    ----------
    method
        "steinis…": SteinIS. "hais…": HAIS, with ten leapfrog steps if the name ends in "10l".
        "ais-unadjusted": AIS with plain weights. Any other: AIS with kernel-ratio weights.
    n_transitions
        The length of the linear schedule of AIS and HAIS; SteinIS has none.
    n_leaders, determinant
        Of SteinIS.
    n_followers
        The weighted particles of each method.
    """
    if method.startswith("steinis"):
        return build_steinis(
            target, q0, setting, n_leaders=n_leaders, n_followers=n_followers,
            determinant=determinant,
        )  # fmt: skip
    schedule = linear_schedule(n_transitions)
    if method.startswith("hais"):
        return HAIS(
            target, q0, schedule=schedule, step_size=setting.alpha, n_particles=n_followers,
            n_leapfrog=10 if method.endswith("10l") else 1, refresh=setting.refresh or 1.0,
        )  # fmt: skip
    langevin: Langevin = "unadjusted" if method == "ais-unadjusted" else "kernel-ratio"
    return AIS(
        target, q0, schedule=schedule, step_size=setting.alpha, n_particles=n_followers,
        langevin=langevin,
    )  # fmt: skip


def build_steinis(
    target: Target,
    q0: Proposal,
    setting: Setting,
    *,
    n_leaders: int,
    n_followers: int,
    determinant: Determinant = "exact",
) -> SteinIS:
    """Return SteinIS with the bandwidth rule times a multiplier, 1 by default."""
    return SteinIS(
        target, q0, kernel=RBF(multiplier=setting.multiplier or 1.0),
        step_size=StepSize(setting.alpha, setting.beta or 0.0), determinant=determinant,
        n_leaders=n_leaders, n_followers=n_followers,
    )  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """The estimate of a method after some transitions.

    Parameters
    ----------
    n_transitions
        The transitions taken; 0 for plain importance sampling.
    sample
        The weighted particles.
    n_evaluations
        Particles of one problem at which p̄ or its score was asked for, in a run up to here.
    steinis
        For SteinIS: the state before the last transition, the state after it, and its info.
    """

    n_transitions: int
    sample: ImportanceSample
    n_evaluations: int
    steinis: tuple[SteinISState, SteinISState, SteinISInfo] | None = None


def readings(
    method: str,
    target: Target,
    q0: ScoredProposal,
    setting: Setting | None,
    transitions: Sequence[int],
    generator: torch.Generator,
    *,
    batch_shape: tuple[int, ...],
    n_leaders: int,
    n_followers: int,
    determinant: Determinant = "exact",
) -> Iterator[Reading]:
    """Run a method, and read off its estimate after each number of transitions.

    SteinIS is run once. HAIS and AIS are run once for each number, with a schedule of that length.
    "is" is plain importance sampling; it has no transitions and one reading.

    Parameters
    ----------
    method
        "is", or a name that `build_sampler` knows.
    setting
        None for "is".
    transitions
        Rising numbers.
    batch_shape
        That of the problems.
    n_leaders, n_followers, determinant
        As for `build_sampler`.

    Raises
    ------
    ValueError
        If a method other than "is" has no setting.
    """
    if method == "is":
        sample = importance_sampling(target, q0, (*batch_shape, n_followers), generator)
        yield Reading(0, sample, n_followers)
        return
    if setting is None:
        raise ValueError(f"{method} needs a setting; only 'is' goes without")
    if method.startswith("steinis"):
        steinis = build_steinis(
            target, q0, setting, n_leaders=n_leaders, n_followers=n_followers,
            determinant=determinant,
        )  # fmt: skip
        state = steinis.init(generator, batch_shape=batch_shape)
        for k in transitions:
            before = steinis.run(state, k - 1 - int(state.transition))
            state, info = steinis.step(before)
            sample = steinis.importance_sample(state)
            yield Reading(k, sample, steinis.n_evaluations(k), (before, state, info))
        return
    for k in transitions:
        chain: Any = build_sampler(
            method, target, q0, setting, k, n_leaders=n_leaders, n_followers=n_followers
        )  # AIS or HAIS, each with a state of its own
        end = chain.run(chain.init(generator, batch_shape=batch_shape))
        yield Reading(k, chain.importance_sample(end), chain.n_evaluations(k))


def along_transitions(found: Mapping[int, Mapping[str, Tensor]]) -> xr.Dataset:
    """Return values by number of transitions and by name, each ``(trials,)``, as a dataset.

    Its variables are ``(trial, transitions)``.
    """
    names = next(iter(found.values()))
    return xr.Dataset(
        {
            name: (
                ("trial", "transitions"),
                torch.stack([values[name] for values in found.values()], -1).numpy(),
            )
            for name in names
        },
        coords={"transitions": list(found)},
    )
