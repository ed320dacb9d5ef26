"""Measure the memory that chunks of each result take, and write ``data/memory.json``.

Of each experiment, some chunks are computed again, one process for each experiment. The largest
resident size of the process is what a worker needs, PyTorch and all. The methods that take longest
come first, up to so many seconds for a chunk.

    python benchmarks/memory.py --methods 6 --seconds 15
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys

from steinis_lib.companion import rounding
from steinis_lib.companion.conditions import MEMORY
from steinis_lib.companion.obtain import stored
from steinis_lib.companion.registry import EXPERIMENTS
from steinis_lib.companion.results import provenance
from steinis_lib.companion.runner.experiment import with_pilots
from steinis_lib.companion.runner.workers import Failure, run_jobs
from steinis_lib.core.files import replacing


def main() -> None:
    """Measure each experiment in a process of its own, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", type=int, default=6, help="at most, of each experiment")
    parser.add_argument("--seconds", type=float, default=15.0, help="that a chunk takes at most")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        print(json.dumps(measure(args.only, args.methods, args.seconds)))
        return
    found = {}
    for name in EXPERIMENTS:
        options = ["--methods", str(args.methods), "--seconds", str(args.seconds), "--only", name]
        done = subprocess.run(
            [sys.executable, __file__, *options], check=True, capture_output=True, text=True
        )
        found[name] = json.loads(done.stdout.splitlines()[-1])
        print(name, found[name], flush=True)
    with replacing(MEMORY) as scratch:
        scratch.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def measure(name: str, n_methods: int, seconds: float) -> dict[str, object]:
    """Compute a chunk of each of some methods, and return the largest resident size in MB."""
    experiment = EXPERIMENTS[name]
    parameters = experiment.parameters.of_profile("paper")
    tree = stored(name, parameters)
    if tree is None:
        raise FileNotFoundError(f"no result of {name} is stored at profile paper")
    groups = {label: node.to_dataset() for label, node in tree.children.items()}
    known = rounding.seconds().get(name, {})
    by_method = {}
    for cell in experiment.cells(parameters):  # the last cell of a method is its largest
        method = cell.method or cell.label
        if known.get(method, 0.0) <= seconds:
            by_method[method] = cell
    longest = sorted(by_method, key=lambda method: known.get(method, 0.0))[-n_methods:]
    for method in longest:
        cell = by_method[method]
        chunk = experiment.chunks(parameters, cell)[0]
        job = (cell, with_pilots(cell, chunk, groups))
        ((_, outcome),) = run_jobs([job], {name: parameters})
        if isinstance(outcome, Failure):
            raise RuntimeError(f"{chunk.name}: {outcome.report}")
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    megabytes = size / 1e6 if sys.platform == "darwin" else size * 1024 / 1e6
    return {
        "megabytes": round(megabytes),
        "methods": longest,
        "machine": provenance(0.0)["machine"],
    }


if __name__ == "__main__":
    main()
