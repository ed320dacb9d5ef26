"""Budgets and progress of `estimate_log_z`: when to stop, and what is known by then."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from torch import Tensor

from steinis_lib.estimate.doubts import Doubt
from steinis_lib.estimate.find import Found
from steinis_lib.estimate.progress import Show
from steinis_lib.importance import ImportanceSample

Callback = Callable[[str, int, ImportanceSample | None], None]
"""Is told the stage, the evaluations so far, and the best weighted sample so far."""


class BudgetSpent(Exception):
    """The evaluations or seconds that were allowed are spent."""


class Control:
    """Counts evaluations, stops when a budget is spent, and keeps the best sample so far.

    Parameters
    ----------
    max_evaluations, max_seconds
        The budgets; None for none.
    callback
        Called at each stage.
    show
        Shows progress; it is told the stage, the evaluations, and the best sample so far.
    """

    def __init__(
        self,
        max_evaluations: int | None,
        max_seconds: float | None,
        callback: Callback | None,
        show: Show,
    ) -> None:
        self.max_evaluations, self.max_seconds = max_evaluations, max_seconds
        self.callback, self.show = callback, show
        self.began = time.monotonic()
        self.n_evaluations = 0
        self.stage = "checking log_prob"
        self.best: ImportanceSample | None = None

    def spend(self, n: int) -> None:
        """Count n evaluations that are about to be made.

        Raises
        ------
        BudgetSpent
            If they are too many, or time is up; they are not counted then.
        """
        if self.max_evaluations is not None and self.n_evaluations + n > self.max_evaluations:
            raise BudgetSpent(f"max_evaluations = {self.max_evaluations} is spent")
        if self.max_seconds is not None and time.monotonic() - self.began > self.max_seconds:
            raise BudgetSpent(f"max_seconds = {self.max_seconds:g} is spent")
        self.n_evaluations += n
        self.show(self.stage, self.n_evaluations, self.best)

    def report(self, stage: str, sample: ImportanceSample | None) -> None:
        """Begin a stage; keep the sample, the best so far, if there is one."""
        self.stage = stage
        self.best = self.best if sample is None else sample
        self.show(stage, self.n_evaluations, self.best)
        if self.callback is not None:
            self.callback(stage, self.n_evaluations, self.best)

    def finish(self, sample: ImportanceSample) -> None:
        """Lift the budgets, for a last look at the result."""
        self.max_evaluations = self.max_seconds = None
        self.report("looking at the result", sample)

    def so_far(self, stop: BaseException) -> Found:
        """Return the best sample so far as two halves, with a doubt that says why it is all.

        Raises
        ------
        KeyboardInterrupt, BudgetSpent
            If there is no sample yet.
        """
        halves = None if self.best is None else _halves(self.best)
        if halves is None:
            if isinstance(stop, KeyboardInterrupt):
                raise stop
            raise BudgetSpent(
                f"{stop}, after {self.n_evaluations} evaluations and before there was an estimate: "
                "allow more"
            ) from None
        why = "it was interrupted" if isinstance(stop, KeyboardInterrupt) else str(stop)
        n = 2 * halves[0].n
        message = (
            f"the search ended early ({why}), while {self.stage}: log Z is from the best {n} draws "
            "by then, which may be test draws of a proposal that was not good enough; allow more"
        )
        return Found(halves, (Doubt("stopped", message, math.inf),), (self.stage,))


def _halves(sample: ImportanceSample) -> tuple[ImportanceSample, ImportanceSample] | None:
    """Return two halves; None if one of them has no weight."""
    half = sample.n // 2

    def part(x: Tensor, i: int) -> Tensor:
        return x[i * half : (i + 1) * half]

    if half < 2 or any(bool((part(sample.log_w, i) == -math.inf).all()) for i in range(2)):
        return None
    first, second = (
        ImportanceSample(part(sample.particles, i), part(sample.log_w, i)) for i in range(2)
    )
    return first, second
