"""Checking stored results: compute randomly chosen chunks again and compare the numbers."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import numpy as np
import xarray as xr

from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner import cluster, engine
from steinis_lib.companion.runner.engine import Experiment, Task

RELATIVE, ABSOLUTE = 1e-6, 1e-9
"""Numbers agree within these. On the machine that made them they agree to the last bit; another
processor may round differently, and a recursion of hundreds of transitions passes that on. Times,
which are variables with the attribute ``units`` = "s", are not compared. Where 32-bit arithmetic
makes more of a difference, a variable says how much in the attribute ``tolerance``, in its unit."""


def choose_chunks(
    experiment: Experiment, parameters: Parameters, seed: int, at_most: int | None = None
) -> list[Task]:
    """Choose one chunk of the pilots and one of each method, at random; of these, `at_most` many.

    Names that differ in a number at their end, such as ``svgd-50`` and ``svgd-100``, are one
    method at several sizes.
    """
    first = experiment.first(parameters)
    by_method: dict[str, list[Task]] = {"pilots": first} if first else {}
    for task in experiment.tasks(parameters):
        by_method.setdefault(re.sub(r"-[\d.]+$", "", task.method), []).append(task)
    rng = random.Random(seed)
    chosen = [rng.choice(chunks) for chunks in by_method.values()]
    return chosen if at_most is None else rng.sample(chosen, min(at_most, len(chosen)))


def recompute(
    experiment: Experiment,
    parameters: Parameters,
    stored: xr.DataTree,
    tasks: list[Task],
    *,
    workers: int = 1,
    progress: Callable[[Task], None] | None = None,
) -> list[str]:
    """Compute tasks again and return, a line each, where the stored result differs.

    Parameters
    ----------
    stored
        The result of `experiment` with `parameters`. Tasks that need pilots take them from here;
        the pilots are among the chunks that `choose_chunks` chooses from.
    workers
        Processes on this machine; 1 is this process.
    """
    lines = []
    pilots = {task.method for task in experiment.first(parameters)} & set(stored.children)
    ready = experiment.given({method: stored[method].to_dataset() for method in pilots})
    outcomes = cluster.outcomes(
        ready, parameters, tasks, engine.versions(), workers, scheduler=None
    )
    for task, outcome in outcomes:
        where = f"{experiment.name}, {task.method}, chunk {task.chunk}"
        if isinstance(outcome, cluster.Failure):
            lines.append(f"{where}: cannot be computed again:\n{outcome.report}")
        elif task.method not in stored.children:
            lines.append(f"{where}: the stored result has no such method")
        else:
            kept = stored[task.method].to_dataset()
            lines += [f"{where}: {line}" for line in differences(kept, outcome)]
        if progress:
            progress(task)
    return lines


def differences(stored: xr.Dataset, fresh: xr.Dataset) -> list[str]:
    """Return, a line each, where a freshly computed chunk and the stored result differ."""
    missing = sorted(set(fresh.trial.values.tolist()) - set(stored.trial.values.tolist()))
    if missing:
        return [f"trials {missing} are not stored"]
    same_trials = stored.sel(trial=fresh.trial)
    lines = []
    for name in sorted({*map(str, fresh.data_vars), *map(str, stored.data_vars)}):
        if name not in stored or name not in fresh:
            lines.append(f"{name} is only in the {'fresh' if name in fresh else 'stored'} result")
            continue
        if stored[name].attrs.get("units") == "s":
            continue
        old, new = same_trials[name].transpose(*fresh[name].dims).values, fresh[name].values
        if old.shape != new.shape:
            lines.append(f"{name} has shape {old.shape} in the stored result, {new.shape} afresh")
            continue
        absolute = float(
            fresh[name].attrs.get("tolerance", ABSOLUTE)
        )  # the code says, not the file
        wrong = ~np.isclose(new, old, rtol=RELATIVE, atol=absolute, equal_nan=True)
        if wrong.any():
            first = tuple(int(i) for i in np.argwhere(wrong)[0])
            lines.append(
                f"{name} differs in {int(wrong.sum())} of {wrong.size} numbers, first at "
                f"{dict(zip(fresh[name].dims, first, strict=True))}: "
                f"stored {old[first]!s}, afresh {new[first]!s}"
            )
    return lines
