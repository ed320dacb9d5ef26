"""Checking stored results: compute randomly chosen chunks again, and compare them."""

from __future__ import annotations

import fnmatch
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import xarray as xr

from steinis_lib.companion.comparison import Comparison, compare
from steinis_lib.companion.parameters import ParameterError, Parameters
from steinis_lib.companion.registry import EXPERIMENTS
from steinis_lib.companion.rounding import (
    Spread,
    larger,
    measured,
    nudged,
    seconds,
    spread_between,
)  # fmt: skip
from steinis_lib.companion.runner import first_states
from steinis_lib.companion.runner.experiment import Experiment, with_pilots
from steinis_lib.companion.runner.workers import Failure, Job, run_jobs

NUDGES = (1, -1, 2)
"""By how many units in the last place random numbers are moved, one time after the other, to
measure how far rounding errors go in a chunk that differs."""


@dataclass(frozen=True)
class Request:
    """Chunks of an experiment to compute again.

    Parameters
    ----------
    stored
        The result with `parameters`. Chunks that need pilots take them from here; the pilots are
        among the chunks that `choose_chunks` chooses from.
    """

    experiment: Experiment
    parameters: Parameters
    stored: xr.DataTree
    jobs: list[Job]


@dataclass(frozen=True)
class ChunkCheck:
    """What came of computing a chunk again.

    Parameters
    ----------
    name, method
        Of the chunk, and of its cell.
    failure
        Why it has no result; empty if it has one.
    n_nudged
        How often it was computed once more with moved random numbers; see `compare_nudged`.
    """

    name: str
    method: str
    comparisons: tuple[Comparison, ...] = ()
    failure: str = ""
    n_nudged: int = 0

    @property
    def problems(self) -> list[str]:
        """What is wrong, a line each."""
        found = [self.failure] if self.failure else []
        found += [c.problem for c in self.comparisons if c.problem]
        return [f"{self.name}: {line}" for line in found]


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


def fitting(requests: Sequence[Request], minutes: float, workers: int, seed: int) -> list[Request]:
    """Return the requests with as many of their jobs, at random, as should take so many minutes.

    How long a chunk takes was measured with its spreads. One of which nothing is known counts as
    the mean of the others.
    """
    known = seconds()
    every = [s for of_method in known.values() for s in of_method.values()]
    usual = sum(every) / len(every) if every else 0.0
    jobs = [job for request in requests for job in request.jobs]
    left, kept = 60.0 * minutes * workers, set()
    for cell, chunk in random.Random(seed).sample(jobs, len(jobs)):
        cost = known.get(chunk.experiment, {}).get(cell.method or cell.label, usual)
        if cost <= left:
            left -= cost
            kept.add(chunk)
    return [replace(r, jobs=[job for job in r.jobs if job[1] in kept]) for r in requests]


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
    requests: Sequence[Request], *, workers: int = 1, progress: Callable[[], None] | None = None
) -> dict[str, list[ChunkCheck]]:
    """Compute chunks again and compare them with the stored results.

    Parameters
    ----------
    workers
        Processes on this machine; 1 is this process.

    Returns
    -------
    dict
        The checks of each experiment, by its name.
    """
    checks: dict[str, list[ChunkCheck]] = {request.experiment.name: [] for request in requests}
    kept, methods, ready = {}, {}, []
    for request in requests:
        groups = {label: node.to_dataset() for label, node in request.stored.children.items()}
        for cell, chunk in request.jobs:
            method = methods[chunk] = cell.method or cell.label
            if missing := [label for label in (cell.label, *cell.pilots) if label not in groups]:
                failure = f"the stored result has no group {', '.join(missing)}"
                checks[chunk.experiment].append(ChunkCheck(chunk.name, method, failure=failure))
            else:
                kept[chunk] = groups[cell.label]
                ready.append((cell, with_pilots(cell, chunk, groups)))
    parameters = {request.experiment.name: request.parameters for request in requests}
    jobs = {chunk: (cell, chunk) for cell, chunk in ready}
    doubtful: list[tuple[Job, xr.Dataset, Mapping[str, Spread]]] = []
    for chunk, outcome in run_jobs(ready, parameters, workers):
        if isinstance(outcome, Failure):
            failure = f"cannot be computed again:\n{outcome.report}"
            check = ChunkCheck(chunk.name, methods[chunk], failure=failure)
        else:
            spreads = measured().get(chunk.experiment, {}).get(methods[chunk], {})
            found = compare(kept[chunk], outcome, spreads)
            check = ChunkCheck(chunk.name, methods[chunk], tuple(found))
            if rounding_may_explain(found):
                doubtful.append((jobs[chunk], outcome, spreads))
        checks[chunk.experiment].append(check)
        if progress:
            progress()
    for job, fresh, spreads in doubtful:
        _, chunk = job
        of_experiment = checks[chunk.experiment]
        place = [check.name for check in of_experiment].index(chunk.name)
        of_experiment[place] = compare_nudged(
            of_experiment[place], job, parameters, kept[chunk], fresh, spreads
        )
    return checks


def rounding_may_explain(found: Sequence[Comparison]) -> bool:
    """Say whether a chunk has problems that rounding errors can make.

    They cannot make the first states differ, nor searches, which have a rule of their own.
    """
    wrong = [c for c in found if c.problem]
    names = {first_states.NAME, "search", "trial"}
    return bool(wrong) and all(c.how == "numbers" and c.variable not in names for c in wrong)


def compare_nudged(
    check: ChunkCheck,
    job: Job,
    parameters: Mapping[str, Parameters],
    stored: xr.Dataset,
    fresh: xr.Dataset,
    spreads: Mapping[str, Spread],
) -> ChunkCheck:
    """Measure how far rounding errors go in this chunk, and compare it with the stored result anew.

    Spreads are measured in a few chunks of each method, and in another chunk they may be larger. So
    a chunk that differs by more than is allowed is computed with all random numbers moved by a unit
    in the last place. Where that moves the result as far, rounding errors decide what comes out,
    and the chunk is compared as any other such chunk. An error in the program does not become
    smaller by it: the program with the error agrees with itself.

    Parameters
    ----------
    check
        What came of the first comparison; it stands if rounding errors do not explain it.
    fresh
        The chunk as this machine computes it.
    """
    wide = dict(spreads)
    for n, steps in enumerate(NUDGES, start=1):
        with nudged(steps):
            ((_, moved),) = run_jobs([job], parameters)
        if isinstance(moved, Failure):
            return replace(check, n_nudged=n)
        for name in set(map(str, fresh.data_vars)) - {first_states.NAME}:
            if name in moved and moved[name].sizes == fresh[name].sizes:
                wide[name] = larger(wide.get(name), spread_between(fresh[name], moved[name]))
        found = compare(stored, fresh, wide)
        if not any(c.problem for c in found):
            return replace(check, comparisons=tuple(found), n_nudged=n)
    return replace(check, n_nudged=len(NUDGES))
