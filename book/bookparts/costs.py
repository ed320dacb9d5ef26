"""What the stored results cost: time, hardware and disk, as their files record it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from netCDF4 import Dataset

from steinis_lib.companion.obtain import stored_path
from steinis_lib.companion.registry import SECTIONS

HEADER = (
    "| Section | Experiment | Chunks | Computing time | Result on disk | Computed on |\n"
    "|---|---|---:|---:|---:|---|"
)


def provenance_of(path: Path) -> list[dict[str, Any]]:
    """Return the parts in which a stored result was computed, without reading its arrays."""
    with Dataset(path) as file:
        parts: list[dict[str, Any]] = json.loads(file.provenance)
    return parts


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it, with two digits."""
    if seconds < 5400:
        return f"{max(seconds / 60, 1):.0f} min"
    return f"{seconds / 3600:.1f} h"


def size(n_bytes: int) -> str:
    """Return a size in megabytes."""
    return f"{n_bytes / 1e6:.1f} MB"


def row(title: str, experiment: str, path: Path) -> str:
    """Return the row of one stored result."""
    parts = provenance_of(path)
    machines = "; ".join(dict.fromkeys(part["machine"] for part in parts))
    chunks = sum(part["chunks"] for part in parts)
    seconds = sum(part["seconds"] for part in parts)
    cells = (title, f"`{experiment}`", chunks, duration(seconds), size(path.stat().st_size))
    return "| " + " | ".join(map(str, (*cells, machines))) + " |"


def table() -> str:
    """Return a row for each experiment's result at profile ``paper``, and one for all of them."""
    rows, paths = [HEADER], []
    for number, section in enumerate(SECTIONS.values(), 1):
        for experiment in section.experiments:
            path = stored_path(experiment.name, experiment.parameters.of_profile("paper"))
            if path.exists():
                rows.append(row(f"{number}. {section.title}", experiment.name, path))
                paths.append(path)
    return "\n".join([*rows, total(paths)]) + "\n"


def total(paths: Iterable[Path]) -> str:
    """Return the last row: the sums over all results."""
    paths = list(paths)
    parts = [part for path in paths for part in provenance_of(path)]
    chunks, seconds = (sum(part[key] for part in parts) for key in ("chunks", "seconds"))
    disk = size(sum(path.stat().st_size for path in paths))
    return f"| **All** | | {chunks} | {duration(seconds)} | {disk} | |"
