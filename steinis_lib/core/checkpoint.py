"""Save and load the state of any algorithm here, bit for bit (safetensors, never pickle)."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from steinis_lib.core.files import replacing

State = TypeVar("State")


def save_state(state: Any, path: str | Path) -> None:
    """Write a state (a dataclass of tensors) to `path`, atomically."""
    path = Path(path)
    tensors = {f.name: getattr(state, f.name).contiguous() for f in fields(state)}
    with replacing(path) as scratch:
        save_file(tensors, scratch, metadata={"state": type(state).__name__})


def load_state(kind: type[State], path: str | Path) -> State:
    """Read the state that `save_state` wrote; `kind` is its class, such as `SteinISState`.

    Raises
    ------
    ValueError
        If the file is damaged, or holds the state of another algorithm.
    """
    try:
        with safe_open(path, framework="pt") as file:
            found = (file.metadata() or {}).get("state")
            if found != kind.__name__:
                raise ValueError(f"{path} holds {found or 'no state'}, expected {kind.__name__}")
            return kind(**{name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"{path} is not a complete state file ({error}); write it again with save_state"
        ) from error
