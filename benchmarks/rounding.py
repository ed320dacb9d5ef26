"""Measure how far rounding errors move the stored results, and write ``data/rounding.json``.

One chunk of each method of each experiment is computed again under each of `SWITCHES`, which select
other instruction sets, and once with all random inputs moved by one unit in the last place. The
largest difference from the stored result is the spread of a variable; see
`steinis_lib.companion.rounding`. Chunks are drawn at random, others for each switch and seed.

    python benchmarks/rounding.py --seeds 1 2 --jobs 2

Searches for a setting are left out: verification has another rule for them.

What was measured is kept in ``data/chunks/rounding``, and the same command goes on there. Spreads
in the file only grow. Delete it to begin anew.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from steinis_lib.companion.runner.compute import CHUNKS

SWITCHES: dict[str, dict[str, str]] = {
    "lowest": {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
    },
    "nudged": {},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "default": {"ATEN_CPU_CAPABILITY": "default"},
    "mkl-compatible": {"MKL_CBWR": "COMPATIBLE"},
}
"""Name → environment variables. "nudged" has none; its random inputs are moved."""
KEPT = CHUNKS / "rounding"


def main() -> None:
    """Measure what is asked for, and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="of the choice of chunks")
    parser.add_argument("--switches", nargs="+", choices=list(SWITCHES), default=list(SWITCHES))
    parser.add_argument("--only", nargs="+", help="experiments")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        measure(args.switches[0], args.seeds[0], args.only)
        return
    with ThreadPoolExecutor(args.jobs) as pool:
        pairs = [(switch, seed) for seed in args.seeds for switch in args.switches]
        list(pool.map(lambda pair: run_worker(*pair, args.only), pairs))
    write()


def run_worker(switch: str, seed: int, only: list[str] | None) -> None:
    """Measure in a process of its own, because the switches are read when PyTorch is loaded."""
    command = [sys.executable, __file__, "--worker", "--switches", switch, "--seeds", str(seed)]
    subprocess.run(
        command + (["--only", *only] if only else []), check=True, env=os.environ | SWITCHES[switch]
    )


def measure(switch: str, seed: int, only: list[str] | None) -> None:
    """Append, for each method, the spreads of one chunk under one switch to the kept file."""
    from steinis_lib.companion.obtain import stored
    from steinis_lib.companion.registry import EXPERIMENTS
    from steinis_lib.companion.rounding import nudged, spread_between
    from steinis_lib.companion.runner.experiment import with_pilots
    from steinis_lib.companion.runner.workers import Failure, run_jobs

    path = KEPT / f"{switch}-{seed}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    done = {(r["experiment"], r["method"]) for r in rows(path)}
    for name, experiment in EXPERIMENTS.items():
        parameters = experiment.parameters.of_profile("paper")
        tree = stored(name, parameters)
        if tree is None or (only and name not in only):
            continue
        groups = {label: node.to_dataset() for label, node in tree.children.items()}
        by_method: dict[str, list[Any]] = {}
        for cell in experiment.cells(parameters):
            jobs = [(cell, chunk) for chunk in experiment.chunks(parameters, cell)]
            by_method.setdefault(cell.method or cell.label, []).extend(jobs)
        for method, jobs in by_method.items():
            cell, chunk = random.Random(f"{switch} {seed} {method}").choice(jobs)
            if (name, method) in done or "candidate" in groups[cell.label].dims:
                continue
            started = time.process_time()
            job = (cell, with_pilots(cell, chunk, groups))
            with nudged() if switch == "nudged" else nullcontext():
                ((_, fresh),) = run_jobs([job], {name: parameters})
            if isinstance(fresh, Failure):
                raise RuntimeError(f"{chunk.name}: {fresh.report}")
            old = groups[chunk.label].sel(trial=fresh.trial)
            spreads = {
                str(v): spread_between(old[v], fresh[v])
                for v in fresh.data_vars
                if fresh[v].attrs.get("units") != "s"
            }
            row = {
                "experiment": name, "method": method, "chunk": chunk.name, "switch": switch,
                "seconds": round(time.process_time() - started, 2), "spreads": spreads,
            }  # fmt: skip
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{switch} {seed}: {chunk.name}", flush=True)


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Give what was kept in a file."""
    if path.exists():
        yield from map(json.loads, path.read_text("utf-8").splitlines())


def write() -> None:
    """Write the larger of what was kept and of what the file has."""
    from steinis_lib.companion.results import provenance
    from steinis_lib.companion.rounding import FILE, larger
    from steinis_lib.core.files import replacing

    before = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    spreads: dict[str, Any] = before.get("spreads", {})
    took: dict[str, Any] = before.get("seconds", {})
    n_chunks, seconds = Counter[str](), 0.0
    for path in sorted(KEPT.glob("*.jsonl")):
        for row in rows(path):
            n_chunks[row["switch"]] += 1
            seconds += row["seconds"]
            others = took.setdefault(row["experiment"], {})
            others[row["method"]] = min(row["seconds"], others.get(row["method"], row["seconds"]))
            of_method = spreads.setdefault(row["experiment"], {}).setdefault(row["method"], {})
            for variable, spread in row["spreads"].items():
                of_method[variable] = larger(of_method.get(variable), finite(spread))
    for of_experiment in spreads.values():
        share(of_experiment)
    measured = provenance(time.time() - seconds)
    measured |= {
        "switches": {
            name: {"environment": SWITCHES[name], "chunks": n} for name, n in n_chunks.items()
        }
    }
    found = {"measured": measured, "seconds": took, "spreads": spreads}
    text = json.dumps(found, indent=1, ensure_ascii=False)
    with replacing(FILE) as scratch:
        scratch.write_text(text + "\n", "utf-8")
    print(f"{FILE}: {n_chunks.total()} chunks, {seconds:.0f} s of computing")


def share(spreads: dict[str, Any]) -> None:
    """Give all methods of an experiment that run HAIS the largest of their spreads.

    A Metropolis decision is turned in few chunks, and in any of them, so that one chunk of a method
    does not show it.
    """
    from steinis_lib.companion.rounding import larger

    methods = [m for m in spreads if "hais" in m]
    largest: dict[str, Any] = {}
    for method in methods:
        for variable, spread in spreads[method].items():
            largest[variable] = larger(largest.get(variable), spread)
    for method in methods:
        spreads[method] = {variable: largest[variable] for variable in spreads[method]}


def finite(spread: Any) -> Any:
    """Return a spread with infinity, which JSON does not have, as the largest number."""
    if isinstance(spread, dict):
        return {key: finite(value) for key, value in spread.items()}
    return min(spread, sys.float_info.max)


if __name__ == "__main__":
    main()
