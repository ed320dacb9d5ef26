"""The paper's experiments, by name, and how a notebook gets a result of one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from steinis_lib.companion import results
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner import engine
from steinis_lib.companion.runner.engine import Experiment, Progress
from steinis_lib.companion.sections.s1_convergence import checks as algorithm_checks
from steinis_lib.companion.sections.s1_convergence import experiment as gmm_convergence
from steinis_lib.companion.sections.s2_mixtures import experiment as gmm_estimation
from steinis_lib.companion.sections.s3_adaptive_is import experiment as adaptive_comparison
from steinis_lib.companion.sections.s4_rbm import experiment as rbm_partition
from steinis_lib.companion.sections.s5_likelihood import experiment as vae_likelihood
from steinis_lib.companion.sections.s6_running_time import experiment as running_time
from steinis_lib.companion.sections.s7_extensions import experiment as beyond

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        gmm_convergence,
        algorithm_checks,
        gmm_estimation,
        adaptive_comparison,
        rbm_partition,
        vae_likelihood,
        running_time,
        beyond,
    )
}

CHUNKS_VARIABLE = "STEINIS_CHUNKS"
"""Environment variable that names a folder of chunks, from the command line to its notebook."""


def stored_path(name: str, parameters: Parameters) -> Path:
    """Return where a result with these parameters is kept under ``data/results/``."""
    plain = parameters == type(parameters).of_profile(parameters.profile)
    tag = "" if plain else f"-{parameters.digest()}"
    return results.RESULTS / name / f"{parameters.profile}{tag}.nc"


def stored(name: str, parameters: Parameters) -> xr.DataTree | None:
    """Return the stored result of exactly these parameters, if there is one."""
    path = stored_path(name, parameters)
    if not path.exists():
        return None
    tree = results.load(path)
    return tree if tree.attrs.get("parameters") == parameters.model_dump_json() else None


def obtain(
    name: str,
    parameters: Parameters | Mapping[str, Any],
    progress: Progress | None = None,
) -> xr.DataTree:
    """Return an experiment's result: stored if it can be, else computed.

    At profile `paper` a stored result with the same parameters is used, and a computed one is
    stored; its chunks are kept, so that a killed run is taken up where it was. Profile `quick`
    always computes, and stores nothing.
    """
    experiment = EXPERIMENTS[name]
    if not isinstance(parameters, Parameters):
        values = dict(parameters)
        parameters = experiment.parameters.of_profile(values.pop("profile", "quick"), values)
    paper = parameters.profile == "paper"
    if paper and (found := stored(name, parameters)) is not None:
        return found
    given = os.environ.get(CHUNKS_VARIABLE)
    chunks = Path(given) if given else engine.CHUNKS if paper else None
    tree = engine.compute(experiment, parameters, chunks=chunks, progress=progress)
    if paper:
        results.save(tree, stored_path(name, parameters))
    return tree
