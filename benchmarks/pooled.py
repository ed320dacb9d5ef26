"""A transition of SteinIS with a pool beside one of HAIS-1L, and where its time goes.

Both take the same number of scores of the decoder's posterior: SteinIS's leaders of a map, and
HAIS's chains. SteinIS also moves its followers, with exact determinants, and its pool. The share of
matrix products is that of the time within PyTorch's operators; decompositions of matrices count
among them, as they are products of blocks.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

import torch
from problems import decoder_posterior, drawn_decoder_posterior
from timing import DTYPES, compared, side_by_side, spread
from torch.profiler import ProfilerActivity, profile

from steinis_lib.baselines.geometric_path import linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.companion.vae.networks import BUNDLED
from steinis_lib.extensions.pooled import PooledSteinIS

DIMS, IMAGES, SCORES, FOLLOWERS = (10, 20, 50, 100), 4, 200, 2000
"""Latent dimensions, images at once, and for each of them scores in a transition and |B|."""
SETTLED = 3
"""Transitions before the clock starts: leaders are still at q_0 in the first."""
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "lu_factor", "slogdet", "triangular", "cholesky")
"""Operators whose names end with one of these, or contain one of the last four."""
BUDGET = 6.0
"""Seconds for one setting, beyond the fewest repeats."""


def measure(args: Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """Time both in turn, for each dimension and precision."""
    for dim in DIMS:
        for floats, dtype in DTYPES.items():
            make = decoder_posterior if dim in BUNDLED else drawn_decoder_posterior
            target, _ = make(dim, IMAGES, 1, dtype, device)
            ours, theirs = _steinis(target, device), _hais(target, device)
            shares = [_share_of_products(ours) for _ in range(3)]
            times = side_by_side(
                {"ours": ours, "HAIS-1L": theirs}, args.repeats, device, BUDGET, args.threads
            )
            yield {
                "setting": {"d": dim, "floats": floats},
                "device": device.type,
                "share_of_products": spread(shares),
                **compared(times, "ours"),
            }


def _steinis(target: Any, device: torch.device) -> Callable[[], object]:
    """Return one transition of SteinIS with a pool, from a state some transitions on."""
    sampler = PooledSteinIS(target, target.prior(), n_followers=FOLLOWERS, leaders_per_step=SCORES)
    generator = torch.Generator(device).manual_seed(0)
    state = sampler.run(sampler.init(generator, batch_shape=(IMAGES,)), SETTLED)
    return lambda: sampler.step(state)


def _hais(target: Any, device: torch.device) -> Callable[[], object]:
    """Return one transition of HAIS with one leapfrog step, in the middle of its path."""
    sampler = HAIS(
        target, target.prior(), n_particles=SCORES, schedule=linear_schedule(2 * SETTLED),
        step_size=0.05,
    )  # fmt: skip
    generator = torch.Generator(device).manual_seed(0)
    state = sampler.run(sampler.init(generator, batch_shape=(IMAGES,)), SETTLED)
    return lambda: sampler.step(state)


def _share_of_products(run: Callable[[], object]) -> float:
    """Return the share of the operators' own time that matrix products take."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        run()
    times = {e.key: float(e.self_cpu_time_total) for e in found.key_averages()}
    own = {name: t for name, t in times.items() if name.startswith("aten::")}
    return sum(t for name, t in own.items() if is_product(name)) / sum(own.values())


def is_product(name: str) -> bool:
    """Say whether an operator of PyTorch multiplies or decomposes matrices."""
    short = name.removeprefix("aten::").removeprefix("_").removeprefix("linalg_")
    return short in PRODUCTS[:4] or any(part in short for part in PRODUCTS[4:])
