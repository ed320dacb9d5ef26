"""How `estimate_log_z` finds log Z: explore, refine a proposal on pilots, weigh fresh draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from steinis_lib.estimate.doubts import Doubt
from steinis_lib.estimate.explore import GOOD, explore, good
from steinis_lib.estimate.judge import doubts_of
from steinis_lib.estimate.pool import Round, weighed
from steinis_lib.estimate.space import Space
from steinis_lib.estimate.unbend import MOST_DIMENSIONS, unbent
from steinis_lib.importance import ImportanceSample
from steinis_lib.targets.base import Gaussian, Target

Report = Callable[[str, ImportanceSample | None], None]

MOST_TIMES = 8
"""Final draws are at most so many times what was asked for."""


@dataclass(frozen=True)
class Found:
    """What was found: weighted draws of two runs, reasons for doubt, and how it was done."""

    samples: tuple[ImportanceSample, ImportanceSample]
    doubts: tuple[Doubt, ...]
    route: tuple[str, ...]


def find(
    target: Target, q0: Gaussian, n_samples: int, generator: torch.Generator, report: Report
) -> Found:
    """Return two runs of weighted draws of p̄, with doubts."""
    space = Space(target, q0)
    report("exploring", None)
    explored = explore(space, generator, lambda last: report("refining", _sample(space, last)))
    if not good(explored.last) and 2 <= space.dim <= MOST_DIMENSIONS:
        explored = unbent(space, explored, generator, lambda last: report("unbending", _sample(space, last)))
    times = min(max(round(GOOD / max(explored.last.share, 1e-6)), 1), MOST_TIMES)
    runs = []
    for _ in range(2):
        u, log_p, log_q = weighed(space, explored.q, times * n_samples // 2, generator)
        runs.append(Round(u, log_p - log_q))
        report("weighing", _sample(space, runs[-1]))
    samples = (_sample(space, runs[0]), _sample(space, runs[1]))
    return Found(samples, doubts_of(space, explored, runs, generator), ("mixture",))


def _sample(space: Space, drawn: Round) -> ImportanceSample:
    return ImportanceSample(space.to_x(drawn.u), drawn.log_w)
