"""Stored results: labelled arrays in netCDF files that say where they come from."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

import steinis_lib
from steinis_lib.companion import checkout
from steinis_lib.companion.checkout import DATA
from steinis_lib.core.files import replacing

RESULTS = DATA / "results"

SUMS = "SHA256SUMS"
"""The file in the folder of results that lists their checksums, in the format of `sha256sum`."""

PART = ("run", "commit", "machine", "steinis_lib", "torch", "numpy", "python")
"""What the chunks of one part of a result have in common."""


def save(tree: xr.DataTree, path: Path) -> None:
    """Write a result atomically, each variable compressed, values at full precision."""
    encoding = {
        node.path: {str(name): {"zlib": True, "complevel": 5} for name in node.data_vars}
        for node in tree.subtree
    }
    with replacing(path) as scratch:
        tree.to_netcdf(scratch, engine="netcdf4", encoding=encoding)


def store(tree: xr.DataTree, path: Path) -> None:
    """Write a result into the folder of results, and list its checksum there."""
    save(tree, path)
    sums = _listed() | {_name(path): _sha256(path)}
    with replacing(RESULTS / SUMS) as scratch:
        scratch.write_text("".join(f"{sums[name]}  {name}\n" for name in sorted(sums)), "utf-8")


def check_sum(path: Path) -> str | None:
    """Return None if a stored result is as listed, else what is wrong and what to do."""
    name = _name(path)
    again = "delete it and run again at profile paper, or take it and SHA256SUMS from git"
    if not path.exists():
        return f"{name} is not there; run again at profile paper, or take it from git"
    if (listed := _listed().get(name)) is None:
        return f"{name} is not listed in {SUMS}; {again}"
    if _sha256(path) != listed:
        return f"{name} differs from its checksum in {SUMS}; {again}"
    return None


def load(path: Path) -> xr.DataTree:
    """Read a result whole.

    Raises
    ------
    ValueError
        If the file is damaged.
    """
    try:
        with xr.open_datatree(path, engine="netcdf4") as tree:
            return tree.load()
    except FileNotFoundError:
        raise
    except (OSError, KeyError, RuntimeError) as error:
        raise ValueError(
            f"{path} is not a complete result file ({error}); delete it and run again"
        ) from error


def provenance(started: float) -> dict[str, Any]:
    """Return when, with what and on what a computation that began at `started` was done."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.time() - started, 1),
        "steinis_lib": steinis_lib.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()}",
        "commit": _commit(),
    }


def parts(chunks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put together the provenance of chunks that were computed in the same way.

    Parameters
    ----------
    chunks
        The `provenance` of each chunk, with the run that it belongs to under ``run``.

    Returns
    -------
    list of dict
        For each run, commit, machine and set of versions: these, how many chunks there are, their
        seconds in all, and when the last one was done. The part that was done first is first.
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for chunk in chunks:
        groups.setdefault(tuple(chunk[key] for key in PART), []).append(chunk)
    found = [
        dict(zip(PART, common, strict=True))
        | {
            "chunks": len(group),
            "seconds": round(sum(chunk["seconds"] for chunk in group), 1),
            "created": max(chunk["created"] for chunk in group),
        }
        for common, group in groups.items()
    ]
    return sorted(found, key=lambda part: (part["created"], part["run"]))


def attributes(tree: xr.DataTree) -> dict[str, Any]:
    """Return a stored result's attributes, with the JSON-encoded ones decoded."""
    return {
        str(key): json.loads(value) if key in ("parameters", "provenance") else value
        for key, value in tree.attrs.items()
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


@cache
def _commit() -> str:
    """The commit when this process first asked; what changes later is not the code that it runs."""
    return checkout.commit()


def _listed() -> dict[str, str]:
    """The checksum of each result that is listed, by its path in the folder of results."""
    try:
        lines = (RESULTS / SUMS).read_text("utf-8").splitlines()
    except FileNotFoundError:
        return {}
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines) if name}


def _name(path: Path) -> str:
    return path.relative_to(RESULTS).as_posix()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
