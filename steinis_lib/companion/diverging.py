"""Runs of SteinIS on many problems, some of which diverge: the others go on.

Maps are functions of one problem's leaders, so that a problem that diverges says nothing about the
others. It is *lost*: its run begins again at its first state, to have finite numbers to go on with,
but nothing that comes out of it counts any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from steinis_lib.core.checks import NotFiniteError
from steinis_lib.importance import ImportanceSample
from steinis_lib.steinis import SteinIS, SteinISInfo, SteinISState


@dataclass
class LossyRun:
    """A run of SteinIS on a batch of problems that goes on without those that diverge.

    Parameters
    ----------
    steinis
        What is run.
    state
        Its first state. Later: the state so far.

    Attributes
    ----------
    lost
        The problems that have diverged, ``(*batch,)``.
    """

    steinis: SteinIS
    state: SteinISState
    lost: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self._first = self.state
        self.lost = torch.zeros_like(self.state.n_folds, dtype=torch.bool)
        self._last_loss = (-1, self.lost)

    def advance(self, to: int) -> None:
        """Go on until so many transitions are taken.

        Raises
        ------
        FloatingPointError
            If there is one problem only, ``*batch`` being empty, and it diverges; or if a problem's
            first state already has no finite numbers.
        """
        while (left := to - int(self.state.transition)) > 0:
            try:
                self.steinis.run(self.state, left, on_step=self._keep)
            except NotFiniteError as error:
                self._lose(error)

    def step(self) -> tuple[SteinISState, SteinISInfo]:
        """Take one transition; return the state before it, and its info. Raises as `advance`."""
        while True:
            before = self.state
            try:
                self.state, info = self.steinis.step(before)
                return before, info
            except NotFiniteError as error:
                self._lose(error)

    def importance_sample(self) -> ImportanceSample:
        """Return the weighted followers; those of lost problems mean nothing. Raises likewise."""
        while True:
            try:
                return self.steinis.importance_sample(self.state)
            except NotFiniteError as error:
                self._lose(error)

    def _keep(self, state: SteinISState, info: SteinISInfo) -> None:
        self.state = state

    def _lose(self, error: NotFiniteError) -> None:
        """Send the problems of an error back to their first state; folds stay counted."""
        assert error.particles is not None
        now, transition = error.particles.any(-1), int(self.state.transition)
        again = self._last_loss[0] == transition and bool((now & self._last_loss[1]).any())
        if now.ndim == 0 or again:
            raise error
        self.lost, self._last_loss = self.lost | now, (transition, now)
        changed: dict[str, Any] = {}
        for f in fields(self.state):
            value = getattr(self.state, f.name)
            if f.name not in ("transition", "n_folds", "rng") and isinstance(value, Tensor):
                where = now.reshape(now.shape + (1,) * (value.ndim - now.ndim))
                changed[f.name] = torch.where(where, getattr(self._first, f.name), value)
        self.state = replace(self.state, **changed)
