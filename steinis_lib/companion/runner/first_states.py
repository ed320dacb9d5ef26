"""What a computation starts like: a summary of the first states of its first algorithm.

Rounding errors have had no time to grow there. So these numbers agree on all processors, also where
the end does not; and they differ as soon as the program or its input is another.

AIS and HAIS in 32 bits are an exception from their first transition on: among hundreds of particles
there is now and then one whose move is accepted on one processor and rejected on another. Their
summary says so in the attribute `DECISIONS`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from steinis_lib.baselines.annealing import AnnealedState
from steinis_lib.core.algorithm import watched

NAME = "first_states"
"""The variable of a chunk that holds the summary."""
DIMENSIONS = ("first_transition", "first_tensor")
"""Its dimensions beside trials: states in their order, and the tensors of a state."""
N_STATES = 5
"""How many states are summarised."""
DECISIONS = "metropolis_decisions"
"""The attribute of a summary after whose first state moves are accepted or rejected in 32 bits."""


class _SeenEnough(Exception):
    """Ends a computation of which only the first states are wanted."""


class _Recorder:
    """Keeps the first states that it is shown, until one of another kind comes.

    Parameters
    ----------
    then_stop
        Raise `_SeenEnough` when all are kept.
    """

    def __init__(self, then_stop: bool) -> None:
        self.states: list[Any] = []
        self.complete = False
        self.then_stop = then_stop

    def __call__(self, state: Any) -> None:
        if not self.complete and type(state) is type(self.states[0] if self.states else state):
            self.states.append(state)  # summarised later: the computation may be one that is timed
            self.complete = len(self.states) == N_STATES
        else:
            self.complete = True
        if self.complete and self.then_stop:
            raise _SeenEnough


def with_first_states(compute: Callable[[], xr.Dataset], n_trials: int) -> xr.Dataset:
    """Return what `compute` returns, with the summary of its first states.

    The variable is ``(trial, first_transition, first_tensor)``, the same for all `n_trials`, as
    these are computed at once. It is absent where no algorithm was run.
    """
    recorder = _Recorder(then_stop=False)
    with watched(recorder):
        dataset = compute()
    if not recorder.states:
        return dataset
    summary = _summary(recorder.states)
    repeated = np.broadcast_to(summary, (n_trials, *summary.shape))
    first = recorder.states[0]
    decided = isinstance(first, AnnealedState) and first.log_w.dtype == torch.float32
    attributes = {DECISIONS: "float32"} if decided else {}
    return dataset.assign({NAME: (("trial", *DIMENSIONS), repeated.copy(), attributes)})


def only_first_states(compute: Callable[[], Any]) -> np.ndarray | None:
    """Return the summary of the first states, and compute no further.

    It is ``(first_transition, first_tensor)``. None if `compute` runs no algorithm.
    """
    recorder = _Recorder(then_stop=True)
    with watched(recorder), suppress(_SeenEnough):
        compute()
    return _summary(recorder.states) if recorder.states else None


def _summary(states: list[Any]) -> np.ndarray:
    """The mean of each floating-point tensor in each state; a run that has ended stays there."""
    rows = [
        [_finite_mean(value) for f in fields(s) if _floating(value := getattr(s, f.name))]
        for s in states
    ]
    return np.array(rows + [rows[-1]] * (N_STATES - len(rows)))


def _floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _finite_mean(values: Tensor) -> float:
    finite = values[torch.isfinite(values)].double()
    return float(finite.mean()) if len(finite) else 0.0
