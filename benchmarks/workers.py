"""Throughput of the engine on the same chunks: one process, two, and a Dask cluster of two workers.

All runs are on this machine and must give the same numbers bit for bit. Two rates are taken: of the
whole run, in which two processes are also started and stopped; and from the moment when as many
chunks are done as there are workers, in which chunks alone are computed.
"""

from __future__ import annotations

import logging
import time
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import torch
import xarray as xr
from timing import all_processors, spread

from steinis_lib.companion.runner.compute import compute
from steinis_lib.companion.runner.experiment import Chunk
from steinis_lib.companion.sections.s1_convergence.experiment import EXPERIMENT, GMMConvergence

WORKERS = 2
SIZES = {"n_trials": 3, "end_time": 24.0, "n_times": 25}
"""Of the first experiment, beside its quick profile: 27 chunks of some 0.5 seconds."""
REPEATS = 3
RATES = ("whole run", "chunks alone")


def run(
    at_once: int, where: dict[str, Any], sizes: dict[str, Any]
) -> tuple[dict[str, float], xr.DataTree]:
    """Return chunks per second, by the names in `RATES`, and the result."""
    times: list[float] = []

    def progress(done: int, total: int, chunk: Chunk | None) -> None:
        times.append(time.perf_counter())

    parameters = GMMConvergence(**GMMConvergence.QUICK | sizes)
    start = time.perf_counter()
    tree = compute(EXPERIMENT, parameters, progress=progress, **where)
    whole = time.perf_counter() - start
    n = len(times) - 1  # the first call comes before any chunk
    alone = (n - at_once) / (times[-1] - times[at_once])
    return dict(zip(RATES, (n / whole, alone), strict=True)), tree


def measure(args: Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """Compute the chunks in each way in turn; on the CPU, which is where the engine runs."""
    import dask
    from distributed import LocalCluster

    if device.type != "cpu":
        return
    options = {"threads_per_worker": 1, "memory_limit": None, "dashboard_address": None}
    # As the engine has it: by default workers return freed memory at once, which takes long.
    environment = {"distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1}}
    with (
        all_processors(),
        dask.config.set(environment),
        LocalCluster(n_workers=WORKERS, silence_logs=logging.CRITICAL, **options) as cluster,
    ):
        ways: dict[str, tuple[int, dict[str, Any]]] = {
            "1 process": (1, {"workers": 1}),
            "2 processes": (WORKERS, {"workers": WORKERS}),
            "Dask cluster": (WORKERS, {"scheduler": cluster.scheduler_address}),
        }
        run(*ways["Dask cluster"], {**SIZES, "end_time": 4.8})  # its workers import what they need
        found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
        names = list(ways)
        for i in range(REPEATS):
            trees = {}
            for name in names[i:] + names[:i]:
                rate, trees[name] = run(*ways[name], SIZES)
                found[name].append(rate)
            for name in names[1:]:
                for group, expected in trees[names[0]].children.items():
                    if not trees[name][group].to_dataset().equals(expected.to_dataset()):
                        raise RuntimeError(f"{group} from the {name} is not as from 1 process")
    for which in RATES:
        per_second = {name: [rate[which] for rate in values] for name, values in found.items()}
        yield {
            "setting": {"rate": which},
            "device": device.type,
            "repeats": REPEATS,
            "chunks_per_second": {name: spread(v) for name, v in per_second.items()},
            "ratio": {
                name: spread([a / b for a, b in zip(v, per_second["1 process"], strict=True)])
                for name, v in per_second.items()
            },
        }
