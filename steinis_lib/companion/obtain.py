"""How a page gets a result: from the store if it is there, else by computing it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from steinis_lib.companion import results
from steinis_lib.companion.checkout import need_committed
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.registry import EXPERIMENTS
from steinis_lib.companion.runner import compute as runner
from steinis_lib.companion.runner.compute import Progress

CHUNKS_VARIABLE = "STEINIS_CHUNKS"
"""Environment variable that names a folder of chunks, from the command line to its notebook."""


def stored_path(name: str, parameters: Parameters) -> Path:
    """Return where a result with these parameters is kept under ``data/results/``."""
    plain = parameters == type(parameters).of_profile(parameters.profile)
    tag = "" if plain else f"-{parameters.digest()}"
    return results.RESULTS / name / f"{parameters.profile}{tag}.nc"


def stored(name: str, parameters: Parameters | None = None) -> xr.DataTree | None:
    """Return the stored result of exactly these parameters, if there is one.

    Default: those of the experiment at profile `paper`.
    """
    if parameters is None:
        parameters = EXPERIMENTS[name].parameters.of_profile("paper")
    path = stored_path(name, parameters)
    if not path.exists():
        return None
    tree = results.load(path)
    return tree if tree.attrs.get("parameters") == parameters.model_dump_json() else None


def obtain(
    name: str, parameters: Parameters | Mapping[str, Any], progress: Progress | None = None
) -> xr.DataTree:
    """Return an experiment's result: stored if it can be, else computed.

    At profile `paper` a stored result with the same parameters is used, and a computed one is
    stored; its chunks are kept, so that a killed run is taken up where it was. Profile `quick`
    always computes, and stores nothing.

    Raises
    ------
    UncommittedError
        If a result would be computed and stored, and files that it depends on differ from the last
        commit. Nothing is computed then.
    """
    experiment = EXPERIMENTS[name]
    if not isinstance(parameters, Parameters):
        values = dict(parameters)
        parameters = experiment.parameters.of_profile(values.pop("profile", "quick"), values)
    paper = parameters.profile == "paper"
    if paper and (found := stored(name, parameters)) is not None:
        return found
    if paper:
        need_committed()
    given = os.environ.get(CHUNKS_VARIABLE)
    chunks = Path(given) if given else runner.CHUNKS if paper else None
    tree = runner.compute(experiment, parameters, chunks=chunks, progress=progress)
    if paper:
        results.store(tree, stored_path(name, parameters))
    return tree
