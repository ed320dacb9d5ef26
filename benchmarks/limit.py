"""The parts of a SteinIS transition beside what this machine can do at best.

A part that needs F floating-point operations in matrix products and must move B bytes cannot take
less than max(F / G, B / M). G and M, the rate of a large square product and that of moving large
arrays, are measured in turn with the parts. Only products and the bytes of inputs and results
count: exponentials, medians and intermediate results are for the library to hide.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

import torch
from problems import decoder_posterior
from timing import DTYPES, side_by_side, spread
from torch import Tensor

from steinis_lib import RBF, SteinIS, SteinISState
from steinis_lib.stein.kernels import squared_distances
from steinis_lib.stein.maps import StepMap

DIMS = (10, 20, 50)
IMAGES, SIZE = 10, 100
"""Problems in a batch, and leaders and followers of each."""
SQUARE, LONG = 1536, 2**24
"""Side of the square product, and numbers in an array whose moving is timed."""
STEP = 0.01

Part = tuple[Callable[[], object], float, float]


def yardsticks(like: Tensor) -> tuple[dict[str, Callable[[], object]], dict[str, float]]:
    """Return what measures the machine, and the operations or bytes of each."""
    a, b, out = (torch.ones(SQUARE, SQUARE).to(like) for _ in range(3))
    x, y, z = (torch.ones(LONG).to(like) for _ in range(3))
    runs: dict[str, Callable[[], object]] = {
        "square product": lambda: torch.mm(a, b, out=out),
        "copy": lambda: z.copy_(x),
        "triad": lambda: torch.add(x, y, alpha=2.0, out=z),
    }
    bytes_each = float(LONG * like.element_size())
    return runs, {
        "square product": 2.0 * SQUARE**3,
        "copy": 2 * bytes_each,
        "triad": 3 * bytes_each,
    }


def parts(dim: int, dtype: torch.dtype, device: torch.device) -> dict[str, Part]:
    """Return each part with its operations and its bytes; leaders are half of the particles."""
    target, z = decoder_posterior(dim, IMAGES, 2 * SIZE, dtype, device)
    x, y = (half.contiguous() for half in z.chunk(2, dim=-2))
    log_q, zeros = y.new_zeros(y.shape[:-1]), torch.zeros(IMAGES, dtype=torch.int64, device=device)
    state = SteinISState(x, y, log_q, torch.tensor(0), zeros)
    scores, kernel = target.score(x), RBF().fit(x)
    step = StepMap(x, scores, kernel, STEP)
    sampler = SteinIS(target, target.prior(), step_size=STEP)

    net, number = target.decoder, x.element_size()
    weights = sum(m.numel() for m in (net.hidden_weight, net.output_weight))
    n, pairs, d = IMAGES * SIZE, IMAGES * SIZE * SIZE, dim
    vectors = float(n * d * number)  # one array of particles
    score = 4.0 * n * weights, weights * number + target.images.numel() * number + 2 * vectors
    distances, matrix = 2.0 * pairs * d, 2 * vectors + pairs * number
    phi = distances + 2.0 * pairs * (2 * d + 1), 4 * vectors
    full = phi[0] + 2.0 * pairs * d * d, 4 * vectors + vectors * d
    exact = full[0] + 2.0 / 3.0 * n * d**3, 4 * vectors + n * number
    diagonal = phi[0] + 2.0 * pairs * d, exact[1]
    bandwidth = distances, vectors
    return {
        "score of the leaders": (lambda: target.score(x), *score),
        "bandwidth": (lambda: RBF().fit(x), *bandwidth),
        "squared distances": (lambda: squared_distances(y, x), distances, matrix),
        "kernel matrix": (lambda: kernel.gram(y, x), distances, matrix),
        "φ": (lambda: kernel.field(y, x, scores), *phi),
        "φ and ∇φ": (lambda: kernel.field(y, x, scores, "full"), *full),
        "map, first-order determinant": (lambda: step.with_log_det(y, "first-order"), *diagonal),
        "map, exact determinant": (lambda: step.with_log_det(y, "exact"), *exact),
        "whole transition": (
            lambda: sampler.step(state),
            score[0] + bandwidth[0] + phi[0] + exact[0],
            score[1] + phi[1] + exact[1],
        ),
    }


def measure(args: Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """Time the parts at each size on this device."""
    for floats, dtype in DTYPES.items():
        for dim in DIMS:
            tools, amounts = yardsticks(torch.zeros((), dtype=dtype, device=device))
            found = parts(dim, dtype, device)
            cases = tools | {name: part[0] for name, part in found.items()}
            times = side_by_side(cases, args.repeats, device, threads=args.threads)
            rates = {name: [amounts[name] / t for t in times[name]] for name in tools}
            moving = [max(pair) for pair in zip(rates["copy"], rates["triad"], strict=True)]
            for name, (_, flops, moved) in found.items():
                bounds = [
                    max(flops / g, moved / m)
                    for g, m in zip(rates["square product"], moving, strict=True)
                ]
                yield {
                    "setting": {"part": name, "d": dim, "floats": floats},
                    "device": device.type,
                    "repeats": len(bounds),
                    "seconds": spread(times[name]),
                    "flops": flops,
                    "bytes": moved,
                    "flops_per_second": spread(rates["square product"]),
                    "bytes_per_second": spread(moving),
                    "share": spread([b / t for b, t in zip(bounds, times[name], strict=True)]),
                }
