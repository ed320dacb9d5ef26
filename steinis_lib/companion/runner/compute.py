"""Run an experiment: compute the chunks that are missing, and put the result together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import xarray as xr

from steinis_lib.companion import results
from steinis_lib.companion.checkout import DATA
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner import workers as running
from steinis_lib.companion.runner.experiment import Cell, Chunk, Experiment, with_pilots
from steinis_lib.companion.runner.store import ChunkError, ChunkStore
from steinis_lib.companion.runner.workers import Failure, Job

CHUNKS = DATA / "chunks"

Progress = Callable[[int, int, Chunk | None], None]
"""Called with chunks done, chunks in all, and the chunk just finished. None at the start, when
only the chunks kept from earlier are done."""


def compute(
    experiment: Experiment,
    parameters: Parameters,
    *,
    chunks: Path | None = None,
    progress: Progress | None = None,
    workers: int = 1,
    scheduler: str | None = None,
) -> xr.DataTree:
    """Run what is missing and return one group per cell, trials in order.

    The attribute ``provenance`` of the tree lists the parts of the result: which run computed how
    many chunks, on what, at which commit; see `steinis_lib.companion.results.parts`.

    Parameters
    ----------
    chunks
        The folder where finished chunks are kept, for the same call to find later. None: nowhere.
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
    steinis_lib.companion.runner.workers.SchedulerError
        If the scheduler cannot be reached, or its workers have another version of the code.
    ValueError
        If `workers` is less than 1, or both `workers` and `scheduler` are given.
    """
    if workers < 1 or (workers > 1 and scheduler is not None):
        raise ValueError("workers must be at least 1, and 1 if a scheduler is given")
    if scheduler is not None:
        running.check_address(scheduler)
    run = datetime.now(UTC).isoformat(timespec="milliseconds")
    store = None if chunks is None else ChunkStore(chunks, experiment.name, parameters)
    stages = experiment.stages(parameters)
    plan = {cell.label: experiment.chunks(parameters, cell) for stage in stages for cell in stage}
    everything = [chunk for part in plan.values() for chunk in part]
    found: dict[Chunk, xr.Dataset] = {}
    for chunk in everything:
        if store is not None and (kept := store.load(chunk)) is not None:
            found[chunk] = kept
    if progress:
        progress(len(found), len(everything), None)
    groups: dict[str, xr.Dataset] = {}
    for stage in stages:
        jobs = _missing(stage, plan, found, groups)
        failed: dict[Chunk, Failure] = {}
        of_names = {experiment.name: parameters}
        with closing(running.run_jobs(jobs, of_names, workers, scheduler)) as outcomes:
            for chunk, outcome in outcomes:
                if isinstance(outcome, Failure):
                    failed[chunk] = outcome
                    continue
                found[chunk] = _of_run(run, outcome)
                if store is not None:
                    store.save(chunk, found[chunk])
                if progress:
                    progress(len(found), len(everything), chunk)
        if failed:
            done = sum(len(plan[cell.label]) for cell in stage) - len(failed)
            raise ChunkError(_describe(parameters, failed, done))
        for cell in stage:
            groups[cell.label] = joined(found[c] for c in plan[cell.label])
    tree = xr.DataTree.from_dict(groups)
    tree.attrs["experiment"] = experiment.name
    tree.attrs["parameters"] = parameters.model_dump_json()
    made = [_provenance(found[chunk]) for chunk in everything]
    tree.attrs["provenance"] = json.dumps(results.parts(made))
    return tree


def _provenance(dataset: xr.Dataset) -> dict[str, Any]:
    return json.loads(dataset.attrs["provenance"])


def _of_run(run: str, dataset: xr.Dataset) -> xr.Dataset:
    """A new chunk that says in its provenance which run it belongs to."""
    return dataset.assign_attrs(provenance=json.dumps(_provenance(dataset) | {"run": run}))


def joined(chunks: Iterable[xr.Dataset]) -> xr.Dataset:
    """All trials of a cell; attributes of variables stay, those of single chunks do not.

    Where searches had different numbers of candidates, the missing ones are NaN.
    """
    parts = list(chunks)
    sizes = [part.sizes.get("candidate", 0) for part in parts]
    if len(set(sizes)) > 1:
        parts = [
            part.pad(candidate=(0, max(sizes) - size))
            for part, size in zip(parts, sizes, strict=True)
        ]
    whole = xr.concat(parts, "trial")
    whole.attrs.clear()
    return whole


def _missing(
    stage: list[Cell],
    plan: dict[str, list[Chunk]],
    found: dict[Chunk, xr.Dataset],
    groups: dict[str, xr.Dataset],
) -> list[Job]:
    """Return the cells and chunks of a stage that are still to be computed."""
    return [
        (cell, with_pilots(cell, chunk, groups))
        for cell in stage
        for chunk in plan[cell.label]
        if chunk not in found
    ]


def _describe(parameters: Parameters, failed: dict[Chunk, Failure], done: int) -> str:
    """The message of a `ChunkError`: one paragraph per chunk."""
    head = f"{len(failed)} of {len(failed) + done} chunks failed, the others are done."
    return "\n\n".join([head] + [
        f"{chunk.name} failed twice, last on {failure.worker}\n"
        f"with parameters {parameters.model_dump_json()}\n{failure.report}"
        for chunk, failure in failed.items()
    ])  # fmt: skip
