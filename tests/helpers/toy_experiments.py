"""A fast experiment with every kind of trouble, importable by workers through PYTHONPATH."""

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import torch
import xarray as xr

from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner.compute import compute
from steinis_lib.companion.runner.experiment import Cell, Experiment

TROUBLED = ("b", 1)


class Toy(Parameters):
    n_chunks: int = 3
    seconds: float = 0.02
    folder: str = ""  # for the log and for what must happen only once
    trouble: str = ""  # of the chunk TROUBLED


def run_chunk(p, chunk):
    note(p, f"started {chunk.label} {chunk.number} {os.getpid()}")
    dims = ("trial", "time")
    troubled = (chunk.label, chunk.number) == TROUBLED
    if troubled and p.trouble and (p.trouble in ("fail", "die", "dims") or first_time(p)):
        if p.trouble.startswith("fail"):
            raise ArithmeticError("the toy is broken")
        if p.trouble.startswith("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        dims = ("draw", "time")
    time.sleep(p.seconds * (p.n_chunks - chunk.number))  # so that chunks finish out of order
    x = torch.randn(chunk.n_trials, 5000, generator=chunk.generator())
    variables = {
        "x": (dims, x.cumsum(-1)[:, ::1000].numpy()),
        "mean": (dims[:1], x.mean(-1).numpy()),
        "folds": (dims[:1], (x > 0).sum(-1).numpy()),
        "threads": (dims[:1], [torch.get_num_threads()] * chunk.n_trials),
    }
    coords = {"time": [0.0, 0.25, 0.5, 0.75, 1.0]} if dims[0] == "trial" else {}
    note(p, f"finished {chunk.label} {chunk.number} {os.getpid()}")
    return xr.Dataset(variables, coords=coords)


def note(p, line):
    if p.folder:
        with open(Path(p.folder) / "log", "a") as file:
            file.write(line + "\n")


def first_time(p):
    try:
        (Path(p.folder) / "happened").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def cells(p):
    return [Cell(label, 2 * p.n_chunks, run_chunk, trials_per_chunk=2) for label in ("a", "b")]


EXPERIMENT = Experiment("toy", Toy, cells)


def run_after_pilots(p, chunk, sign=1.0):
    """Add what the pilots found."""
    dataset = run_chunk(p, chunk)
    return dataset.assign(mean=dataset["mean"] + sign * float(chunk.pilots["pilot"]["mean"].sum()))


def cells_after_pilots(p):
    """A pilot in two chunks, and the cells of `cells`, which know what it found."""
    pilot = Cell("pilot", 4, run_chunk, trials_per_chunk=2)
    compute_with = partial(run_after_pilots, sign=1.0)
    others = [Cell(c.label, c.n_trials, compute_with, 2, ("pilot",)) for c in cells(p)]
    return [*others, pilot]  # pilots come first whatever the order


PILOTED = Experiment("piloted", Toy, cells_after_pilots)


def chunks(experiment, p):
    """All (cell, chunk) of an experiment, pilots first."""
    first, others = experiment.stages(p)
    return [(cell, chunk) for cell in first + others for chunk in experiment.chunks(p, cell)]


def drive():
    """What a driver in another process does: parameters, folder of chunks, workers."""
    parameters, folder, workers = sys.argv[1:]
    p = Toy.model_validate_json(parameters)
    compute(EXPERIMENT, p, chunks=Path(folder), workers=int(workers))
