"""A fast experiment with every kind of trouble, importable by workers through PYTHONPATH."""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import xarray as xr

from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner.engine import Experiment, Task, compute, stream

TROUBLED = Task("b", 1)


class Toy(Parameters):
    n_chunks: int = 3
    seconds: float = 0.02
    folder: str = ""  # for the log and for what must happen only once
    trouble: str = ""  # of the task TROUBLED


def tasks(p):
    return [Task(method, chunk) for method in ("a", "b") for chunk in range(p.n_chunks)]


def run_task(p, task):
    note(p, f"started {task.method} {task.chunk} {os.getpid()}")
    dims = ("trial", "time")
    if task == TROUBLED and p.trouble and (p.trouble in ("fail", "die", "dims") or first_time(p)):
        if p.trouble.startswith("fail"):
            raise ArithmeticError("the toy is broken")
        if p.trouble.startswith("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        dims = ("draw", "time")
    time.sleep(p.seconds * (p.n_chunks - task.chunk))  # so that chunks finish out of order
    x = torch.randn(2, 5000, generator=stream(p.seed, "toy", task.method, task.chunk))
    variables = {
        "x": (dims, x.cumsum(-1)[:, ::1000].numpy()),
        "mean": (dims[:1], x.mean(-1).numpy()),
        "folds": (dims[:1], (x > 0).sum(-1).numpy()),
        "threads": (dims[:1], [torch.get_num_threads()] * 2),
    }
    first = 2 * task.chunk
    coords = {"trial": [first, first + 1], "time": [0.0, 0.25, 0.5, 0.75, 1.0]}
    note(p, f"finished {task.method} {task.chunk} {os.getpid()}")
    return xr.Dataset(variables, coords=coords if dims[0] == "trial" else {})


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


EXPERIMENT = Experiment("toy", Toy, tasks, run_task)


def pilots(p):
    return [Task("pilot", chunk) for chunk in range(2)]


def run_after_pilots(p, task, pilots=None):
    """Add to each task what the pilots found; pilots cannot know of each other."""
    dataset = run_task(p, task)
    if task.method == "pilot":
        assert pilots is None
        return dataset
    return dataset.assign(mean=dataset["mean"] + float(pilots["pilot"]["mean"].sum()))


PILOTED = Experiment("piloted", Toy, tasks, run_after_pilots, pilots)


def drive():
    """What a driver in another process does: parameters, folder of chunks, workers."""
    parameters, chunks, workers = sys.argv[1:]
    p = Toy.model_validate_json(parameters)
    compute(EXPERIMENT, p, chunks=Path(chunks), workers=int(workers))
