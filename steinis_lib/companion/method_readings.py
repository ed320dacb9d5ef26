"""A method's estimate after each number of transitions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import xarray as xr
from torch import Tensor

from steinis_lib.companion.diverging import LossyRun
from steinis_lib.companion.methods import build_sampler, build_steinis
from steinis_lib.companion.settings import Setting
from steinis_lib.importance import ImportanceSample, importance_sampling
from steinis_lib.stein.maps import Determinant
from steinis_lib.steinis import SteinISInfo, SteinISState
from steinis_lib.targets.base import ScoredProposal, Target


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
    lost
        For SteinIS: the problems whose runs diverged and so have no estimate, ``(*batch,)``.
    """

    n_transitions: int
    sample: ImportanceSample
    n_evaluations: int
    steinis: tuple[SteinISState, SteinISState, SteinISInfo] | None = None
    lost: Tensor | None = None

    def or_nothing(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return values of problems, each ``(*batch,)``, with those of lost problems replaced.

        An estimate in logs becomes -inf, the ESS 0, k̂ infinite, and any other number NaN, but for
        integers, which count what happened until then.
        """
        if self.lost is None:
            return dict(values)
        nothing = dict.fromkeys(("log_z", "error", "mean_log_w"), -math.inf)
        nothing |= {"ess": 0.0, "pareto_k": math.inf}
        return {
            name: value.masked_fill(self.lost, nothing.get(name, math.nan))
            if value.is_floating_point()
            else value
            for name, value in values.items()
        }


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
            target, q0, setting, method=method, n_leaders=n_leaders, n_followers=n_followers,
            determinant=determinant,
        )  # fmt: skip
        run = LossyRun(steinis, steinis.init(generator, batch_shape=batch_shape))
        for k in transitions:
            run.advance(k - 1)
            before, info = run.step()
            sample = run.importance_sample()
            yield Reading(k, sample, steinis.n_evaluations(k), (before, run.state, info), run.lost)
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
