"""Compare the library's speed with others', with the straightforward version, and with the machine.

Every figure is a ratio within one run: what is compared does the same work, in turn, repeatedly.
README.md says what each benchmark compares.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import time
from pathlib import Path
from typing import Any

import torch
from tables import BENCHMARKS, table
from timing import FEWEST, hold_threads

from steinis_lib.companion.results import provenance

PEERS = ("jax", "jaxlib", "blackjax", "numpyro", "pyro-ppl", "tfp-nightly")


def versions() -> dict[str, str]:
    """Return the versions of the peers that are installed."""
    found = {d.metadata["Name"].lower(): d.version for d in importlib.metadata.distributions()}
    return {name: found[name] for name in PEERS if name in found}


def main() -> None:
    """Run the benchmarks asked for; print a table of each, and write JSON where asked."""
    started = time.time()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=9, help=f"at least {FEWEST}; default 9")
    parser.add_argument(
        "--device", nargs="+", choices=["cpu", "cuda"], default=["cpu"], help="one, or both"
    )
    parser.add_argument("--output", type=Path, help="where to write JSON")
    args = parser.parse_args()
    if args.repeats < FEWEST:
        parser.error(f"--repeats must be at least {FEWEST}")
    if "cuda" in args.device and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch finds no CUDA device")
    hold_threads(args.threads)
    modules = {name: importlib.import_module(name) for name in args.only}  # a missing peer stops it
    machine: dict[str, Any] = {"peers": versions()}
    if "cuda" in args.device:
        machine["gpu"] = torch.cuda.get_device_name()
    settings = {"threads": args.threads, "repeats": args.repeats, "device": args.device}
    results: dict[str, list[Any]] = {}
    for name, module in modules.items():
        results[name] = []
        for device in map(torch.device, args.device):
            for row in module.measure(args, device):
                results[name].append(row)
                print(f"[{time.time() - started:.0f} s] {name}: {row['setting']}", flush=True)
        machine |= provenance(started)
        report = {"machine": machine, "settings": settings, "results": results}
        if args.output:
            text = json.dumps(report, indent=1, ensure_ascii=False)
            args.output.write_text(text + "\n", encoding="utf-8")
    for name in results:
        print(f"\n{name}\n\n{table(report, name)}")


if __name__ == "__main__":
    main()
