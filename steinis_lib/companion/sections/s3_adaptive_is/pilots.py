"""The pilots of section 5.2: the same search for all methods, by KL(q‖p).

Every tuned method has as many candidates. For the families of SteinIS they are those of one search,
on each target; for adaptive IS those of four, one for each kind of it. Candidates of a search share
their random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import xarray as xr
from torch import Tensor

from steinis_lib.companion.runner.experiment import Chunk
from steinis_lib.companion.search import Evaluation, Failure, search
from steinis_lib.companion.sections.s3_adaptive_is.methods import (
    AdaptiveSetting,
    adapt,
    around,
    follow,
    place,
)
from steinis_lib.companion.sections.s3_adaptive_is.problem import (
    KINDS,
    MAIN,
    RATES,
    AdaptiveComparison,
    box,
    fitted,
    pilot_label,
    start,
    together,
    warped,
)
from steinis_lib.companion.settings import Axis, Setting, axes_of
from steinis_lib.companion.tuning_records import tuning_record
from steinis_lib.targets.base import Proposal

Pilots = tuple[Tensor, Tensor, int]
"""The KL of a candidate's pilots along checkpoints, their folds, and the evaluations given."""

TUNING_FOLLOWERS = 200
"""Followers of a pilot of SteinIS."""


def tune_steinis(p: AdaptiveComparison, chunk: Chunk, name: str, family: str) -> xr.Dataset:
    """Search for the setting of a family from q_0, by KL(q_ℓ‖p) at the last transition."""

    def pilot(setting: Setting) -> Pilots:
        return _steinis_pilots(p, chunk, name, start(), family, setting, p.checkpoints)

    return _search(axes_of(family), pilot, p.n_candidates, p.checkpoints)


def tune_refinement(p: AdaptiveComparison, chunk: Chunk, which: str, family: str) -> xr.Dataset:
    """Search for the setting of a family from a fitted mixture.

    The number of transitions, one of the checkpoints after 0, belongs to the setting.
    """
    stages = p.refine_checkpoints

    def pilot(setting: Setting) -> Pilots:
        return _steinis_pilots(p, chunk, MAIN, fitted(p, which), family, setting, stages)

    return _search(axes_of(family), pilot, p.n_candidates, stages, early=True)


def tune_adaptive(p: AdaptiveComparison, chunk: Chunk, scale: float) -> xr.Dataset:
    """Search for the rate of one kind of adaptive IS, by KL(q‖p) of its averaged weights.

    Each pilot has components of its own, the same for all rates and kinds.
    """
    objective, update = KINDS[chunk.number]
    r, (low, high) = p.tuning_repeats, box(p, MAIN)
    name = pilot_label("adaptive")
    places = chunk.stream(f"{name}-placement", 0)
    components = together([place(p.n_components, scale, low, high, places) for _ in range(r)])

    def pilot(setting: Setting) -> Pilots:
        curves, _ = adapt(
            warped(p, MAIN), components, AdaptiveSetting(objective, update, setting.alpha),
            p.adaptive_samples, p.adaptive_checkpoints, around(low, high, scale),
            chunk.stream(name, 0), batch_shape=(r,),
        )  # fmt: skip
        spent = p.adaptive_checkpoints[-1] * p.adaptive_samples * r
        return curves["kl"], torch.zeros(r), spent

    n = p.n_candidates // len(KINDS)
    return _search((RATES[update],), pilot, n, p.adaptive_checkpoints)


def _steinis_pilots(
    p: AdaptiveComparison, chunk: Chunk, name: str, q0: Proposal, family: str, setting: Setting,
    checkpoints: tuple[int, ...],
) -> Pilots:  # fmt: skip
    """The pilots of one candidate, which share random numbers with those of the others."""
    m, r = p.leaders[0], p.tuning_repeats
    curves, _ = follow(
        warped(p, name), q0, setting, m, TUNING_FOLLOWERS, checkpoints, chunk.generator(),
        method=family, batch_shape=(r,), give_up=True,
    )  # fmt: skip
    return curves["kl"], curves["folds"], checkpoints[-1] * m * r


def _search(
    axes: tuple[Axis, ...],
    pilot: Callable[[Setting], Pilots],
    n_candidates: int,
    checkpoints: tuple[int, ...],
    early: bool = False,
) -> xr.Dataset:
    """Search for the setting with the smallest mean KL at the end, and keep all curves.

    `early`: at the checkpoint after 0 where the mean is smallest.
    """
    curves = []

    def evaluate(setting: Setting) -> Evaluation:
        kl, folds, spent = pilot(setting)
        curve, kept, failure = summary(kl, folds > 0)
        curves.append(curve.tolist())
        if failure:
            return -math.inf, math.inf, spent, failure
        stage = 1 + int(curve[1:].argmin()) if early else -1
        at = kept[:, stage]
        error = float(at.std() / math.sqrt(len(at))) if len(at) > 1 else math.inf
        return -float(curve[stage]), error, spent, Failure.NONE

    record = tuning_record(search(axes, evaluate, n_candidates))
    record["kl"] = (("trial", "candidate", "checkpoint"), [curves])
    return record.assign_coords(checkpoint=list(checkpoints))


def summary(kl: Tensor, folded: Tensor) -> tuple[Tensor, Tensor, Failure]:
    """Return the mean KL of pilots along checkpoints, the pilots that count, and what failed.

    Pilots whose maps fold do not count, because their densities are not valid. If they are most of
    a candidate's, or any pilot diverges, it is out, and its KL is inf.

    Parameters
    ----------
    kl
        ``(pilots, checkpoints)``
    folded
        ``(pilots,)``
    """
    kept = kl[~folded]
    if 2 * int(folded.sum()) > len(folded):
        return torch.full_like(kl[0], math.inf), kept, Failure.FOLDED
    if not bool(torch.isfinite(kl).all()):
        return torch.full_like(kl[0], math.inf), kept, Failure.DIVERGED
    return kept.mean(0), kept, Failure.NONE
