"""Time things side by side: in turn, repeated, on a stated number of threads, as ratios."""

from __future__ import annotations

import importlib
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

import torch

DTYPES = {"float32": torch.float32, "float64": torch.float64}

LEAST_SECONDS = 0.01
"""One measurement repeats a short call until it lasts about so long."""

FEWEST = 3
"""So many repeats are made of anything, however slow."""


def peer(name: str) -> ModuleType:
    """Import another library, or stop and say how to install it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"the benchmark compares with {name.split('.')[0]}, and {error.name} is not "
            "installed: pip install -e .[bench]"
        ) from error


def hold_threads(threads: int) -> None:
    """Keep this process to so many threads; call it before JAX is imported.

    PyTorch can be told. JAX sizes its pool by the processors that the process may use, where the
    system lets us limit them; `side_by_side` checks what came of it.
    """
    flags = f"--xla_cpu_multi_thread_eigen={str(threads > 1).lower()}"
    os.environ["XLA_FLAGS"] = f"{flags} intra_op_parallelism_threads={threads}"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    torch.set_num_threads(threads)


@contextmanager
def all_processors() -> Iterator[None]:
    """Let this process and those that it starts use every processor again, for a while."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    held = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        yield
    finally:
        os.sched_setaffinity(0, held)


def wait_for(device: torch.device) -> None:
    """Return when the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(
    run: Callable[[], object],
    device: torch.device,
    clock: Callable[[], float] = time.perf_counter,
    calls: int = 1,
) -> float:
    """Return the time of one call, to its end on the device; the mean of `calls` of them."""
    wait_for(device)
    start = clock()
    for _ in range(calls):
        run()
        wait_for(device)
    return (clock() - start) / calls


def spread(values: list[float]) -> dict[str, float]:
    """Return the median and the quartiles."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": middle, "quartile_1": low, "quartile_3": high}


def side_by_side(
    cases: dict[str, Callable[[], object]],
    repeats: int,
    device: torch.device,
    budget: float = math.inf,
    threads: int | None = None,
) -> dict[str, list[float]]:
    """Return seconds of one call of each case, one entry for each repeat.

    All cases are called in turn, in an order that shifts with each repeat, after a call or two of
    each that are not counted.

    Parameters
    ----------
    budget
        Seconds after which no further repeat begins, once there are `FEWEST`.
    threads
        Where given, the processor's time may not be more than so many times that on the wall.

    Raises
    ------
    RuntimeError
        If a case kept more threads busy than `threads`.
    """
    calls = {}
    for name, run in cases.items():
        wall, processor = time.perf_counter(), time.process_time()
        once = seconds(run, device)
        if once < 10 * LEAST_SECONDS:  # the first call may have had more to do
            once = seconds(run, device)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        calls[name] = max(1, math.ceil(LEAST_SECONDS / max(once, 1e-9)))
        if threads is not None and wall > LEAST_SECONDS and processor > 1.1 * threads * wall:
            raise RuntimeError(
                f"{name} was to keep {threads} threads busy and kept {processor / wall:.1f}"
            )
    return in_turn(cases, repeats, device, calls, budget)


def in_turn(
    cases: dict[str, Callable[[], object]],
    repeats: int,
    device: torch.device,
    calls: dict[str, int] | None = None,
    budget: float = math.inf,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Return seconds of one call of each case, the mean of its number of `calls`, each repeat."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    names, end = list(cases), time.perf_counter() + budget
    for i in range(repeats):
        if i >= FEWEST and time.perf_counter() > end:
            break
        for name in names[i % len(names) :] + names[: i % len(names)]:
            times[name].append(seconds(cases[name], device, clock, calls[name] if calls else 1))
    return times


def ratio(times: dict[str, list[float]], of: str, by: str) -> dict[str, float]:
    """Return how many times as long one case takes as another, taken within each repeat."""
    return spread([a / b for a, b in zip(times[of], times[by], strict=True)])


def compared(times: dict[str, list[float]], ours: str) -> dict[str, object]:
    """Return the seconds of all cases, and how many times as long as ours the others take."""
    return {
        "ours": ours,
        "repeats": len(times[ours]),
        "seconds": {name: spread(values) for name, values in times.items()},
        "ratio": {name: ratio(times, name, ours) for name in times if name != ours},
    }
