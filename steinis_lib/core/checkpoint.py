"""Save and load the state of any algorithm, bit for bit (safetensors, never pickle)."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import torch

from steinis_lib.core.files import replacing
from steinis_lib.core.optional import needs

State = TypeVar("State")


def save_state(state: Any, path: str | Path) -> None:
    """Write a state (a dataclass of tensors) to `path`, atomically.

    Raises
    ------
    ImportError
        If safetensors is not installed.
    """
    safetensors = needs("safetensors.torch", "saving states", "companion")
    tensors = {  # copies, as a file holds no tensors that share memory
        f.name: getattr(state, f.name).clone(memory_format=torch.contiguous_format)
        for f in fields(state)
    }
    with replacing(Path(path)) as scratch:
        safetensors.save_file(tensors, scratch, metadata={"state": type(state).__name__})


def load_state(kind: type[State], path: str | Path) -> State:
    """Read the state that `save_state` wrote, with its tensors on the CPU.

    Parameters
    ----------
    kind
        The state's class, such as `SteinISState`.

    Raises
    ------
    ValueError
        If the file is damaged, or holds the state of another algorithm.
    ImportError
        If safetensors is not installed.
    """
    safetensors = needs("safetensors", "loading states", "companion")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            found = (file.metadata() or {}).get("state")
            if found != kind.__name__:
                raise ValueError(f"{path} holds {found or 'no state'}, expected {kind.__name__}")
            return kind(**{name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{path} is not a complete state file ({error}); write it again with save_state"
        ) from error
