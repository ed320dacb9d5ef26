"""One SteinIS transition beside the version that one writes first.

That one states the map of a single point, has PyTorch differentiate it for each follower
(`torch.func.jacrev` under `vmap`), and takes `torch.linalg.slogdet` of the Jacobians. Both take the
median bandwidth and the target's score; positions and log q must agree before anything is timed.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import torch
from problems import Banana, particles
from timing import DTYPES, compared, side_by_side
from torch import Tensor

from steinis_lib import Gaussian, SteinIS, SteinISState, Target

DIMS, SIZE = (2, 10, 50), 100
STEP = 0.1
TOLERANCE = {"float32": 1e-3, "float64": 1e-9}
"""Largest difference of positions and of log q."""


def transition(
    target: Target, leaders: Tensor, followers: Tensor, log_q: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return leaders, followers and log q after one transition, as the equations say it."""
    scores, m = target.score(leaders), len(leaders)
    h = torch.quantile(torch.pdist(leaders), 0.5).square() / (2 * math.log(m + 1))

    def move(y: Tensor) -> Tensor:
        k = (-(leaders - y).square().sum(-1) / h).exp()
        gradients = -2 / h * (leaders - y) * k.unsqueeze(-1)
        return y + STEP * (k.unsqueeze(-1) * scores + gradients).mean(0)

    jacobians = torch.func.vmap(torch.func.jacrev(move))(followers)
    log_det = torch.linalg.slogdet(jacobians).logabsdet
    moved = torch.func.vmap(move)
    return moved(leaders), moved(followers), log_q - log_det


def state_of(dim: int, size: int, dtype: torch.dtype, device: torch.device) -> SteinISState:
    """Return leaders and followers to start from; log q starts at 0."""
    leaders, followers = particles(2 * size, dim, dtype, device).chunk(2)
    zero = torch.zeros((), dtype=torch.int64, device=device)
    return SteinISState(leaders, followers, followers.new_zeros(size), torch.tensor(0), zero)


def ours(target: Target, state: SteinISState) -> SteinIS:
    """Return our sampler, whose q_0 is not asked for anything after the start."""
    q0 = Gaussian.isotropic(torch.zeros_like(state.leaders[0]))
    return SteinIS(target, q0, step_size=STEP)


def difference(target: Target, state: SteinISState) -> float:
    """Return the largest difference between the two transitions."""
    new, _ = ours(target, state).step(state)
    theirs = transition(target, state.leaders, state.followers, state.log_q)
    pairs = zip((new.leaders, new.followers, new.log_q), theirs, strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)


def measure(args: Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """Time all settings on this device."""
    for name, dtype in DTYPES.items():
        for dim in DIMS:
            state = state_of(dim, SIZE, dtype, device)
            target = Banana(dim).torch(state.leaders)
            off = difference(target, state)
            if not off < TOLERANCE[name]:
                raise RuntimeError(f"the straightforward version differs by {off:.1e} at d = {dim}")
            sampler = ours(target, state)
            cases = {
                "ours": lambda s=sampler, at=state: s.step(at),
                "straightforward": lambda t=target, at=state: transition(
                    t, at.leaders, at.followers, at.log_q
                ),
            }
            times = side_by_side(cases, args.repeats, device, threads=args.threads)
            setting = {"d": dim, "floats": name}
            row = {"setting": setting, "device": device.type, "difference": off}
            yield row | compared(times, "ours")
