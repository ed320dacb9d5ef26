"""Run methods over targets and seeds, one thread, and write a line of JSON for each run.

    cd benchmarks && python -m evidence.run --methods steinis --seeds 0 --output evidence.jsonl

A run that is in the file already, by the same version, is not repeated: what was interrupted goes
on. `python -m evidence.table evidence.jsonl` shows what was found.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from timing import hold_threads

from evidence.case import GROUPS, Case
from evidence.cases import CASES
from evidence.methods import METHODS, Found, version
from steinis_lib.companion.results import provenance
from steinis_lib.core.files import replacing

Row = dict[str, Any]
KEY = ("case", "method", "seed", "version")


def measure(case: Case, method: str, seed: int, limit: float) -> Row:
    """Run a method once, and return what it found, what that cost, or why it failed.

    Parameters
    ----------
    case, method, seed
        The run.
    limit
        Seconds after which it is stopped.
    """
    row: Row = {"case": case.name, "method": method, "seed": seed}
    truth = case.truth
    wall, processor = time.perf_counter(), time.process_time()
    found, failure = Found(math.nan, math.nan, 0), ""
    try:
        with warnings.catch_warnings(), stopped_after(limit):
            warnings.simplefilter("ignore")
            found = METHODS[method](case, seed)
    except (ArithmeticError, ValueError, RuntimeError, TypeError, IndexError) as error:
        failure = f"{type(error).__name__}: {error}"
    row |= {
        "log_z": _number(found.log_z),
        "error": _number(found.log_z - truth.log_z),
        "se": _number(found.se),
        "evaluations": found.evaluations,
        "seconds": round(time.perf_counter() - wall, 2),
        "cpu_seconds": round(time.process_time() - processor, 2),
        "warnings": list(found.warnings),
        "failure": failure,
    }
    return row


def _number(value: float) -> float | None:
    """JSON has no infinities and no NaN."""
    return value if math.isfinite(value) else None


@contextmanager
def stopped_after(limit: float) -> Iterator[None]:
    """Raise RuntimeError in what is running after so many seconds; only in the main thread."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise RuntimeError(f"stopped after {limit:g} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def read(path: Path) -> list[Row]:
    """Return the runs of a file; a last line that was cut off is dropped from it."""
    if not path.exists():
        return []
    lines = path.read_text("utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
        with replacing(path) as scratch:
            scratch.write_text("".join(lines), "utf-8")
    return [json.loads(line) for line in lines]


def run(
    names: Sequence[str], methods: Sequence[str], seeds: Sequence[int], path: Path, limit: float
) -> None:
    """Do the runs that the file does not have, and append each to it when it is done."""
    about = provenance(time.time())
    versions = {m: about["commit"] if m == "steinis" else version(m) for m in methods}
    done = {tuple(row[key] for key in KEY) for row in read(path)}
    path.parent.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        for name in names:
            for method in methods:
                if (name, method, seed, versions[method]) in done:
                    continue
                row = measure(CASES[name], method, seed, limit)
                row |= {"version": versions[method], "commit": about["commit"]}
                row |= {"machine": about["machine"], "torch": about["torch"]}
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
                print(f"seed {seed}, {name}, {method}: {row['seconds']:.1f} s", flush=True)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["steinis"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--cases", nargs="+", metavar="NAME", help="default: all of the groups")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds of a run; 3600")
    parser.add_argument("--output", type=Path, required=True, help="a file of JSON lines")
    args = parser.parse_args()
    names = args.cases or [case.name for case in CASES.values() if case.group in args.groups]
    if unknown := sorted(set(names) - set(CASES)):
        parser.error(f"no such case: {', '.join(unknown)}; there are {', '.join(CASES)}")
    hold_threads(1)
    run(names, args.methods, args.seeds, args.output, args.limit)


if __name__ == "__main__":
    main()
