"""The one shape that all algorithms have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

import torch

from steinis_lib.core.checks import check_at_least

State = TypeVar("State")
Info = TypeVar("Info")

_watcher: ContextVar[Callable[[Any], None] | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(watcher: Callable[[Any], None]) -> Iterator[None]:
    """Show `watcher` each new state of every `Algorithm.run` in this block, and in this thread.

    An exception that it raises ends the run.
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


class Algorithm(ABC, Generic[State, Info]):
    """A frozen dataclass of a target, q_0, sizes and settings; all but the first two by keyword.

    A state is a frozen dataclass of tensors. It holds all that a run needs to continue, so that it
    can be saved and loaded later. An info says what one transition did. The result of a run comes
    from

    * `importance_sample(state)`, where particles have weights;
    * `proposal(state)`, where a density was fitted;
    * `estimate(state)`, where there is log Z but neither of these.
    """

    @abstractmethod
    def init(self, generator: torch.Generator, *, batch_shape: tuple[int, ...] = ()) -> State:
        """Return the state at q_0, for a batch of independent problems."""

    @abstractmethod
    def step(self, state: State) -> tuple[State, Info]:
        """Take one transition."""

    @abstractmethod
    def n_evaluations(self, n_transitions: int) -> int:
        """Return at how many particles of one problem p̄, its score or both are asked for.

        From `init` through so many transitions to the result.
        """

    def finished(self, state: State) -> bool:
        """Say whether `run` is to end before the next transition."""
        return False

    def run(
        self,
        state: State,
        n_transitions: int,
        *,
        on_step: Callable[[State, Info], None] | None = None,
    ) -> State:
        """Take `n_transitions` further transitions; `on_step` sees each new state and its info.

        Raises
        ------
        ValueError
            If `n_transitions` is negative.
        """
        check_at_least(n_transitions, 0, "n_transitions")
        watcher = _watcher.get()
        for _ in range(n_transitions):
            if self.finished(state):
                break
            state, info = self.step(state)
            if on_step is not None:
                on_step(state, info)
            if watcher is not None:
                watcher(state)
        return state
