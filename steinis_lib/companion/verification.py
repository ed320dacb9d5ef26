"""Checking stored results: compute randomly chosen chunks again and compare the numbers."""

from __future__ import annotations

import fnmatch
import random
from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr

from steinis_lib.companion.parameters import ParameterError, Parameters
from steinis_lib.companion.registry import EXPERIMENTS
from steinis_lib.companion.runner.experiment import Experiment, with_pilots
from steinis_lib.companion.runner.workers import Failure, Job, run_jobs

RELATIVE, ABSOLUTE = 1e-6, 1e-9
"""Numbers agree within these. On the machine that made them they agree to the last bit; another
processor may round differently, and a recursion of hundreds of transitions passes that on. Times,
which are variables with the attribute ``units`` = "s", are not compared. Where 32-bit arithmetic
makes more of a difference, a variable says how much in the attribute ``tolerance``, in its unit."""


def choose_chunks(
    experiment: Experiment,
    parameters: Parameters,
    seed: int,
    at_most: int | None = None,
    leave_out: tuple[str, ...] = (),
) -> list[Job]:
    """Choose one chunk of the pilots and one of each method, at random; of these, `at_most` many.

    Parameters
    ----------
    leave_out
        Methods (see `Cell.method`) of which no chunk is chosen.
    """
    first, others = experiment.stages(parameters)
    by_method: dict[str, list[Job]] = {}
    for cell in first + others:
        method = "pilots" if cell in first else cell.method or cell.label
        jobs = [(cell, chunk) for chunk in experiment.chunks(parameters, cell)]
        if (cell.method or cell.label) not in leave_out:
            by_method.setdefault(method, []).extend(jobs)
    rng = random.Random(seed)
    chosen = [rng.choice(jobs) for jobs in by_method.values()]
    return chosen if at_most is None else rng.sample(chosen, min(at_most, len(chosen)))


def parse_left_out(pairs: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return experiment → methods to leave out, of texts such as ``vae:prior-steinis``.

    In the method's name ``*`` stands for anything: ``rbm:*hais*``.

    Raises
    ------
    ParameterError
        If a text has another form, or there is no such experiment or method.
    """
    found: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        name, _, pattern = pair.partition(":")
        if name not in EXPERIMENTS:
            raise ParameterError(
                f"--leave-out {pair}: expected EXPERIMENT:METHOD; experiments are "
                + ", ".join(EXPERIMENTS)
            )
        cells = EXPERIMENTS[name].cells(EXPERIMENTS[name].parameters.of_profile("paper"))
        known = list(dict.fromkeys(cell.method or cell.label for cell in cells))
        matching = fnmatch.filter(known, pattern)
        if not matching:
            raise ParameterError(
                f"--leave-out {pair}: {name} has no method {pattern!r}; it has {', '.join(known)}"
            )
        found[name] = (*found.get(name, ()), *matching)
    return found


def recompute(
    parameters: Parameters,
    stored: xr.DataTree,
    jobs: list[Job],
    *,
    workers: int = 1,
    progress: Callable[[], None] | None = None,
) -> list[str]:
    """Compute chunks again and return, a line each, where the stored result differs.

    Parameters
    ----------
    stored
        The result with `parameters`. Chunks that need pilots take them from here; the pilots are
        among the chunks that `choose_chunks` chooses from.
    workers
        Processes on this machine; 1 is this process.
    """
    kept = {label: node.to_dataset() for label, node in stored.children.items()}
    lines, ready = [], []
    for cell, chunk in jobs:
        if missing := [label for label in (cell.label, *cell.pilots) if label not in kept]:
            lines.append(f"{chunk.name}: the stored result has no group {', '.join(missing)}")
        else:
            ready.append((cell, with_pilots(cell, chunk, kept)))
    for chunk, outcome in run_jobs(ready, parameters, workers):
        if isinstance(outcome, Failure):
            lines.append(f"{chunk.name}: cannot be computed again:\n{outcome.report}")
        else:
            found = differences(kept[chunk.label], outcome)
            lines += [f"{chunk.name}: {line}" for line in found]
        if progress:
            progress()
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
