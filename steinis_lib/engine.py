"""The experiment engine: an experiment is a list of tasks, each a chunk of independent trials.

A task's random streams depend only on (seed, experiment, label, chunk), so that any chunk can be
computed again alone, anywhere. Each finished chunk is written atomically and found again by the
next run with the same parameters and the same code; a killed run loses the chunk in flight.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
import xarray as xr

from steinis_lib import results
from steinis_lib.parameters import Parameters

CHUNKS = results.ROOT / "data" / "chunks"


@dataclass(frozen=True)
class Task:
    """One chunk of independent trials of one method."""

    method: str
    chunk: int


@dataclass(frozen=True)
class Experiment:
    """What the engine needs to know of an experiment.

    Parameters
    ----------
    name
        As on the command line.
    parameters
        The class of its parameters.
    tasks
        Parameters → all tasks.
    run_task
        (parameters, task) → a dataset in which every variable has a `trial` dimension.
    """

    name: str
    parameters: type[Parameters]
    tasks: Callable[..., list[Task]]
    run_task: Callable[..., xr.Dataset]


Progress = Callable[[int, int, Task | None], None]
"""Called with chunks done, chunks in all, and the chunk just finished (None at the start)."""


def stream(seed: int, experiment: str, label: str, chunk: int) -> torch.Generator:
    """Return the random stream of a chunk: a function of its name alone."""
    name = json.dumps([seed, experiment, label, chunk]).encode()
    number = int.from_bytes(hashlib.sha256(name).digest()[:8], "little")
    return torch.Generator().manual_seed(number)


def compute(
    experiment: Experiment,
    parameters: Parameters,
    *,
    chunks: Path | None = None,
    progress: Progress | None = None,
) -> xr.DataTree:
    """Run what is missing and return one group per method, trials in order.

    Parameters
    ----------
    chunks
        Where finished chunks are kept, to be taken up by the same call later. None: nowhere.
    progress
        Told of each finished chunk.
    """
    started = time.time()
    folder = None if chunks is None else chunks / _key(experiment, parameters)
    tasks = experiment.tasks(parameters)
    parts: dict[str, list[xr.Dataset]] = {}
    if progress:
        progress(0, len(tasks), None)
    for done, task in enumerate(tasks, start=1):
        parts.setdefault(task.method, []).append(_one(experiment, parameters, task, folder))
        if progress:
            progress(done, len(tasks), task)
    tree = xr.DataTree.from_dict(
        {method: xr.concat(found, "trial") for method, found in parts.items()}
    )
    tree.attrs["experiment"] = experiment.name
    tree.attrs["parameters"] = parameters.model_dump_json()
    tree.attrs["provenance"] = json.dumps(results.provenance(started))
    return tree


def _one(
    experiment: Experiment, parameters: Parameters, task: Task, folder: Path | None
) -> xr.Dataset:
    path = None if folder is None else folder / f"{task.method}-{task.chunk:04d}.nc"
    if path is not None and path.exists():
        return results.load(path).to_dataset()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # chunks are small, and summation order must not depend on cores
    try:
        dataset = experiment.run_task(parameters, task)
    finally:
        torch.set_num_threads(threads)
    if path is not None:
        results.save(xr.DataTree(dataset), path)
    return dataset


def _key(experiment: Experiment, parameters: Parameters) -> str:
    """A folder's name for chunks: never shared between parameters, seeds, or versions of code."""
    return f"{experiment.name}/{parameters.digest()}-{code_digest()}"


PRESENTATION = {"claims", "cli", "figures", "notebooks", "statistics", "summaries"}
"""Modules that summarise and show results and cannot change them."""


@cache
def code_digest() -> str:
    """Return a fingerprint of the source that results depend on, and of PyTorch's version."""
    digest = hashlib.sha256(torch.__version__.encode())
    here = Path(__file__).parent
    for path in sorted(here.rglob("*.py")):
        if path.relative_to(here).parts[0].removesuffix(".py") not in PRESENTATION:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
