"""Compare the decoder's score with the matrix products that it cannot do without.

The score of `DecoderPosterior` is four matrix products and what lies between them: tanh, sigmoid,
biases. Here it is timed beside those products alone and beside one large square product, in turn,
so that whatever else the machine does falls on all alike. README.md says how to read the table.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from problems import decoder_posterior
from timing import DTYPES, in_turn, spread
from torch import Tensor

from steinis_lib.companion.problems.decoder import DecoderPosterior
from steinis_lib.companion.vae.networks import BUNDLED
from steinis_lib.targets import decoder as module

SQUARE = 2048
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def products(target: DecoderPosterior, z: Tensor, rows: int) -> Callable[[], None]:
    """Return the four products of one score, `rows` particles at a time, into kept memory."""
    w, v = target.decoder.hidden_weight, target.decoder.output_weight
    flat = z.flatten(0, -2)
    size, out = min(rows, len(flat)), torch.empty_like(flat)
    hidden, pixels, back = (flat.new_ones(size, n) for n in (len(v), v.shape[1], len(v)))

    def run() -> None:
        for a, b in zip(flat.split(rows), out.split(rows), strict=True):
            n = len(a)
            torch.mm(a, w, out=hidden[:n])
            torch.mm(hidden[:n], v, out=pixels[:n])
            torch.mm(pixels[:n], v.mT, out=back[:n])
            torch.mm(back[:n], w.mT, out=b)

    return run


def square(like: Tensor) -> Callable[[], None]:
    """Return one product of two square matrices."""
    a, b, out = (torch.ones(SQUARE, SQUARE, dtype=like.dtype, device=like.device) for _ in "abc")

    def run() -> None:
        torch.mm(a, b, out=out)

    return run


def measure(args: argparse.Namespace, dim: int, dtype: str) -> dict[str, Any]:
    """Time one setting; shares of the products' rate are ratios within each repeat."""
    device, clock = torch.device(args.device), CLOCKS[args.clock]
    target, z = decoder_posterior(dim, args.images, args.particles, DTYPES[dtype], device)
    net, n = target.decoder, z.shape[0] * z.shape[1]
    flops = 4.0 * n * sum(m.numel() for m in (net.hidden_weight, net.output_weight))
    cases: dict[str, Callable[[], object]] = {
        "score": lambda: target.score(z),
        "log_prob_and_score": lambda: target.log_prob_and_score(z),
        "square product": square(z),
    }
    pieces = {f"products, {rows} rows": rows for rows in {module.ROWS, *args.pieces}}
    cases |= {name: products(target, z, rows) for name, rows in pieces.items()}
    for run in cases.values():  # once for nothing: threads, caches, and what is kept by the target
        run()
    times = in_turn(cases, args.repeats, device, clock=clock)
    best = min(pieces, key=lambda name: statistics.median(times[name]))
    per_flop = {
        name: [t / (2.0 * SQUARE**3 if name == "square product" else flops) for t in values]
        for name, values in times.items()
    }

    def share(of: str, by: str) -> dict[str, float]:
        return spread([b / a for a, b in zip(per_flop[of], per_flop[by], strict=True)])

    return {
        "dim": dim,
        "dtype": dtype,
        "flops": flops,
        "best_products": best,
        "seconds": {name: spread(values) for name, values in times.items()},
        "share_of_products": {name: share(name, best) for name in ("score", "log_prob_and_score")},
        "share_of_square": {
            name: share(name, "square product") for name in ("score", "log_prob_and_score", best)
        },
    }


def row(result: dict[str, Any]) -> str:
    """One line of the table."""
    seconds_of, of_products, of_square = (
        result[key] for key in ("seconds", "share_of_products", "share_of_square")
    )
    both, score = seconds_of["log_prob_and_score"], seconds_of["score"]
    p, s = of_products["score"], of_square["score"]
    return (
        f"{result['dim']:>3}  {result['dtype']}  {score['median']:>8.3f}  {both['median']:>8.3f}  "
        f"{result['flops'] / score['median'] / 1e9:>8.1f}  "
        f"{p['median']:>5.1%} ({p['quartile_1']:.1%} to {p['quartile_3']:.1%})  "
        f"{s['median']:>5.1%} ({s['quartile_1']:.1%} to {s['quartile_3']:.1%})"
    )


def main() -> None:
    """Measure all settings asked for; print the table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dim", type=int, nargs="+", choices=BUNDLED, default=[20])
    parser.add_argument("--dtype", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--particles", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=7, help="at least 2; default 7")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="such as cpu or cuda")
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--rows", type=int, default=module.ROWS, help="particles at once in score")
    parser.add_argument(
        "--pieces", type=int, nargs="+", default=[8192], help="more sizes for the bare products"
    )
    parser.add_argument("--output", type=Path, help="where to write JSON")
    args = parser.parse_args()
    if args.repeats < 2:
        parser.error("--repeats must be at least 2: there is no spread of one")
    if args.clock == "cpu" and (args.device != "cpu" or args.threads > 1):
        parser.error("--clock cpu is for one thread on the CPU")
    torch.set_num_threads(args.threads)
    module.ROWS = args.rows
    print("  d  dtype     score/s    both/s   Gflop/s  of its products         of a square product")
    results = []
    for dim in args.dim:
        for dtype in args.dtype:
            results.append(measure(args, dim, dtype))
            print(row(results[-1]), flush=True)
    if args.output:
        settings = {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items()}
        machine = {"machine": platform.machine(), "torch": torch.__version__}
        if args.device.startswith("cuda"):
            machine["gpu"] = torch.cuda.get_device_name(args.device)
        del settings["output"]
        text = json.dumps({"settings": settings, **machine, "results": results}, indent=2)
        args.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
