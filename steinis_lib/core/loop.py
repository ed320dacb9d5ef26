"""The loop around any `step`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

State = TypeVar("State")
Info = TypeVar("Info")


def iterate(
    step: Callable[[State], tuple[State, Info]],
    state: State,
    n_transitions: int,
    on_step: Callable[[State, Info], None] | None = None,
) -> State:
    """Take `n_transitions` steps from `state`; `on_step` sees each new state and its info."""
    for _ in range(n_transitions):
        state, info = step(state)
        if on_step is not None:
            on_step(state, info)
    return state
