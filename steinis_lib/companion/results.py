"""Stored results: labelled arrays in netCDF files that say where they come from."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

import steinis_lib
from steinis_lib.companion.checkout import DATA, ROOT
from steinis_lib.core.files import replacing

RESULTS = DATA / "results"


def save(tree: xr.DataTree, path: Path) -> None:
    """Write a result atomically, each variable compressed, values at full precision."""
    encoding = {
        node.path: {str(name): {"zlib": True, "complevel": 5} for name in node.data_vars}
        for node in tree.subtree
    }
    with replacing(path) as scratch:
        tree.to_netcdf(scratch, engine="h5netcdf", encoding=encoding)


def load(path: Path) -> xr.DataTree:
    """Read a result whole.

    Raises
    ------
    ValueError
        If the file is damaged.
    """
    try:
        with xr.open_datatree(path, engine="h5netcdf") as tree:
            return tree.load()
    except FileNotFoundError:
        raise
    except (OSError, KeyError, RuntimeError) as error:
        raise ValueError(
            f"{path} is no complete result file ({error}); delete it and run again"
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


def _commit() -> str:
    """The checkout's commit, marked where the working tree differs from it."""
    try:
        run = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=ROOT, capture_output=True, text=True, timeout=20, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return "unknown (no git checkout)"
    return run.stdout.strip()
