"""How `estimate_log_z` finds log Z, and draws of p.

1. `explore`: climbs by BFGS from q0 and from three times its width, in q0's coordinates; Laplace
   fits at their ends, q0 itself, and sometimes a Gaussian flow make a first mixture of t.
2. Pilots are drawn from it and weighed; the mixture is refitted to all pilots so far, and grows
   where their weights are large, round after round, until their effective sample size is
   `GOOD` of their number, and two thousand more pilots agree. New climbs look for modes that it
   does not explain.
3. Where that is not enough, `unbent` fits a triangular map to the pilots, and a mixture behind it.
4. Fresh draws of the final proposal are weighed, twice as many as half of what was asked for: two
   runs. Where the effective share of pilots is small, they are up to `MOST_TIMES` as many.

All choices are made on pilots, which are thrown away, so that Ẑ is unbiased whatever was chosen.
"""

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

MOST_TIMES = 8
"""Final draws are at most so many times what was asked for."""

Report = Callable[[str, ImportanceSample | None], None]
"""Is told each stage, and the weighted pilots or draws that it ended with."""


@dataclass(frozen=True)
class Found:
    """What `find` found.

    Parameters
    ----------
    samples
        Two runs, each with fresh draws of the same proposal: half of what was asked for, or a
        multiple of that where the proposal is far from p.
    doubts
        Reasons not to trust them.
    route
        What the proposal was: "mixture", or "map", a mixture behind a triangular map.
    """

    samples: tuple[ImportanceSample, ImportanceSample]
    doubts: tuple[Doubt, ...]
    route: tuple[str, ...]


def find(
    target: Target, q0: Gaussian, n_samples: int, generator: torch.Generator, report: Report
) -> Found:
    """Return two weighted samples of p, and doubts about them.

    Parameters
    ----------
    target, q0
        p̄, and where climbs start.
    n_samples
        Draws of both runs together, if the proposal is good.
    report
        Told each stage, with weighted pilots or draws of p, or None.

    Raises
    ------
    FloatingPointError
        If p̄ is zero at all draws.
    """
    space = Space(target, q0)

    def told(stage: str) -> Callable[[Round], None]:
        return lambda drawn: report(stage, _known(space, drawn))

    with torch.no_grad():  # log_prob may have parameters that ask for gradients of their own
        report("climbing", None)
        found = explore(space, generator, told("refining a mixture"))
        if not good(found.last) and 2 <= space.dim <= MOST_DIMENSIONS:
            found = unbent(space, found, generator, told("fitting maps"))
        times = min(max(round(GOOD / max(found.last.share, 1e-6)), 1), MOST_TIMES)
        runs = []
        for name in ("first", "second"):
            u, log_p, log_q = weighed(space, found.q, times * n_samples // 2, generator)
            runs.append(Round(u, log_p - log_q))
            told(f"weighing the {name} run")(runs[-1])
        first, second = (ImportanceSample(space.to_x(run.u), run.log_w) for run in runs)
        doubts = doubts_of(space, found, runs, generator)
    return Found((first, second), doubts, ("mixture" if found.q.warp is None else "map",))


def _known(space: Space, drawn: Round) -> ImportanceSample | None:
    """Return weighted draws of x; None if all weights are zero."""
    return ImportanceSample(space.to_x(drawn.u), drawn.log_w) if drawn.share else None
