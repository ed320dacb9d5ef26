"""Proposals for curved densities: triangular maps fitted to pilots, and mixtures behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from steinis_lib.estimate.explore import TAIL, Explored, good, refined
from steinis_lib.estimate.pool import Round
from steinis_lib.estimate.refine import FEWEST, heavy, usable
from steinis_lib.estimate.space import Space
from steinis_lib.estimate.student import StudentMixture
from steinis_lib.estimate.warp import Warped, fitted

TRIES, ROUNDS, GROWTH = 7, 3, 1.4
"""Maps that are fitted one after the other, each to all draws so far; rounds of pilots of each,
and the factor on the number of pilots from one to the next."""
MOST_DIMENSIONS = 60
"""In more dimensions a map has too many numbers for the pilots."""


def unbent(
    space: Space, explored: Explored, generator: torch.Generator, report: Callable[[Round], None]
) -> Explored:
    """Return the best of the proposals behind maps, and of the one that was there already."""
    best, pool, d = explored, explored.pool, space.dim
    eye = torch.eye(d, dtype=pool.u.dtype, device=pool.u.device)
    round_ones = StudentMixture(
        pool.u.new_tensor([0.7, 0.3]).log(),
        pool.u.new_zeros(2, d),
        torch.stack([eye, 1.5 * eye]),
        pool.u.new_tensor([32.0, 4.0]),
    )
    for i in range(TRIES):
        u, w = heavy(pool.u, usable(pool.log_w, 20.0 + 4 * d))
        if len(u) < FEWEST:
            break
        warp = fitted(u, w)
        q, pool, last = refined(
            space, round_ones, pool, generator, report, rounds=ROUNDS, warp=warp, more=GROWTH**i
        )
        best = replace(best, pool=pool)
        if _worth(last) > _worth(best.last):
            best = replace(best, q=Warped(q, warp), last=last)
        if good(last):
            break
    return best


def _worth(last: Round) -> float:
    """Return the effective share of pilots, less where it rests on a heavy tail."""
    return last.share if last.pareto_k < TAIL else 0.3 * last.share
