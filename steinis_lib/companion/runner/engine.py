"""The experiment engine: an experiment is a list of tasks, each a chunk of independent trials.

A task's random streams depend only on (seed, experiment, label, chunk), so that any chunk can be
computed again alone, anywhere. Chunks run in this process, or on workers (`cluster`). This process
writes each finished chunk atomically, and the next run with the same parameters and the same code
finds it; a killed run loses the chunks in flight.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import torch
import xarray as xr

import steinis_lib
from steinis_lib.companion import results
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner import cluster
from steinis_lib.companion.runner.cluster import Failure

CHUNKS = results.ROOT / "data" / "chunks"
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """One chunk of independent trials of one method."""

    method: str
    chunk: int


@dataclass(frozen=True)
class Experiment:
    """What the engine needs to know of an experiment.

    For other processes an experiment is pickled: its functions are defined in a module.

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
    pilots
        Parameters → tasks that are done before all others, such as pilot runs; `run_task` then
        gets their results, method → dataset, as a third argument.
    """

    name: str
    parameters: type[Parameters]
    tasks: Callable[..., list[Task]]
    run_task: Callable[..., xr.Dataset]
    pilots: Callable[..., list[Task]] | None = None

    def first(self, parameters: Parameters) -> list[Task]:
        """Return the tasks that all others wait for."""
        return self.pilots(parameters) if self.pilots else []

    def given(self, pilots: Mapping[str, xr.Dataset]) -> Experiment:
        """Return the experiment whose tasks know the results of the pilots, if it has any."""
        if not self.pilots:
            return self
        return replace(self, run_task=partial(self.run_task, pilots=dict(pilots)))


class ChunkError(RuntimeError):
    """Chunks failed, each named with its parameters and error; or a kept one is another's."""


Progress = Callable[[int, int, Task | None], None]
"""Called with chunks done, chunks in all, and the chunk just finished. None at the start, when
only the chunks kept from earlier are done."""


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
    workers: int = 1,
    scheduler: str | None = None,
) -> xr.DataTree:
    """Run what is missing and return one group per method, trials in order.

    Parameters
    ----------
    chunks
        Where finished chunks are kept, to be taken up by the same call later. None: nowhere.
    progress
        Told of each finished chunk.
    workers
        Processes on this machine; 1 is this process.
    scheduler
        Address of a Dask scheduler whose workers are to be used instead.

    Raises
    ------
    ChunkError
        At the end, if chunks failed twice; all others are done, and kept in `chunks`. At once, if
        a file in `chunks` holds something else than its name says.
    steinis_lib.cluster.SchedulerError
        If the scheduler cannot be reached, or its workers have another version of the code.
    ValueError
        If `workers` is less than 1, or both `workers` and `scheduler` are given.
    """
    if workers < 1 or (workers > 1 and scheduler is not None):
        raise ValueError("workers is at least 1, and goes without scheduler")
    if scheduler is not None:
        cluster.check_address(scheduler)
    started = time.time()
    folder = None if chunks is None else chunks / _key(experiment, parameters)
    first, tasks = experiment.first(parameters), experiment.tasks(parameters)
    found: dict[Task, xr.Dataset] = {}
    for task in first + tasks:
        if folder is not None and (kept := _load(experiment, parameters, task, folder)) is not None:
            found[task] = kept
    total = len(first) + len(tasks)
    if progress:
        progress(len(found), total, None)
    for stage in (first, tasks):
        ready = experiment if stage is first else experiment.given(_by_method(first, found))
        missing = [task for task in stage if task not in found]
        failed: dict[Task, Failure] = {}
        outcomes = cluster.outcomes(ready, parameters, missing, versions(), workers, scheduler)
        with closing(outcomes):
            for task, outcome in outcomes:
                if isinstance(outcome, Failure):
                    failed[task] = outcome
                    continue
                if folder is not None:
                    _save(outcome, experiment, parameters, task, folder)
                found[task] = outcome
                if progress:
                    progress(len(found), total, task)
        if failed:
            raise ChunkError(_describe(experiment, parameters, failed, len(stage) - len(failed)))
    tree = xr.DataTree.from_dict(_by_method(first + tasks, found))
    tree.attrs["experiment"] = experiment.name
    tree.attrs["parameters"] = parameters.model_dump_json()
    tree.attrs["provenance"] = json.dumps(results.provenance(started))
    return tree


def _by_method(tasks: list[Task], found: dict[Task, xr.Dataset]) -> dict[str, xr.Dataset]:
    """Put each method's chunks together, trials in order."""
    parts: dict[str, list[xr.Dataset]] = {}
    for task in tasks:
        parts.setdefault(task.method, []).append(found[task])
    return {method: xr.concat(datasets, "trial") for method, datasets in parts.items()}


def _describe(
    experiment: Experiment, parameters: Parameters, failed: dict[Task, Failure], done: int
) -> str:
    """The message of a `ChunkError`: one paragraph per chunk."""
    head = f"{len(failed)} of {len(failed) + done} chunks failed, the others are done."
    return "\n\n".join([head] + [
        f"{experiment.name}, {task.method}, chunk {task.chunk} failed twice, last on "
        f"{failure.worker}\nwith parameters {parameters.model_dump_json()}\n{failure.report}"
        for task, failure in failed.items()
    ])  # fmt: skip


def _path(task: Task, folder: Path) -> Path:
    return folder / f"{task.method}-{task.chunk:04d}.nc"


def _identity(experiment: Experiment, parameters: Parameters, task: Task) -> str:
    return json.dumps({
        "experiment": experiment.name, "method": task.method, "chunk": task.chunk,
        "parameters": parameters.digest(), "code": code_digest(),
    })  # fmt: skip


def _save(
    dataset: xr.Dataset, experiment: Experiment, parameters: Parameters, task: Task, folder: Path
) -> None:
    labelled = dataset.assign_attrs(identity=_identity(experiment, parameters, task))
    results.save(xr.DataTree(labelled), _path(task, folder))


def _load(
    experiment: Experiment, parameters: Parameters, task: Task, folder: Path
) -> xr.Dataset | None:
    """A chunk kept from earlier; None if there is none, or it is damaged."""
    path = _path(task, folder)
    try:
        dataset = results.load(path).to_dataset().drop_encoding()
    except FileNotFoundError:
        return None
    except ValueError as error:
        LOG.warning("%s is damaged and is computed again: %s", path, error.__cause__)
        return None
    identity = _identity(experiment, parameters, task)
    if (found := dataset.attrs.pop("identity", None)) != identity:
        raise ChunkError(f"{path} holds {found} instead of {identity}; delete it and run again")
    return dataset


def _key(experiment: Experiment, parameters: Parameters) -> str:
    """A folder's name for chunks: never shared between parameters, seeds, or versions of code."""
    return f"{experiment.name}/{parameters.digest()}-{code_digest()}"


PRESENTATION = {"claims", "cli", "figures", "notebooks", "statistics", "summaries", "verification"}
"""Modules that summarise and show results and cannot change them."""


@cache
def code_digest() -> str:
    """Return a fingerprint of the source that results depend on, and of PyTorch's version."""
    digest = hashlib.sha256(torch.__version__.encode())
    here = Path(__file__).parents[2]
    for path in sorted(here.rglob("*.py")):
        if path.relative_to(here).parts[0].removesuffix(".py") not in PRESENTATION:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def versions() -> str:
    """Return all that decides whether two processes compute the same."""
    code = f"{steinis_lib.__version__} with code {code_digest()}"
    return f"steinis_lib {code}, torch {torch.__version__}"


code_digest()  # now, before the files can change under a process that runs for long
