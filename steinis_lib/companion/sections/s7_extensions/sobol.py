"""Scrambled Sobol points of a Gaussian, for leaders that cover q_0 evenly.

Each point alone has the law of q_0; together they fill space more evenly than independent draws,
so that averages over them vary less (randomised quasi-Monte Carlo; Owen 1997). The scrambling is
that of PyTorch's `SobolEngine`: random lower triangular matrices and a digital shift (Matoušek
1998).

For leaders only. Any leaders give valid weights, but followers must be independent draws from q_0:
points of one scrambling are not, and standard errors, ESS and Pareto-k̂ would be wrong.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from steinis_lib.targets.base import Gaussian

CELL = 2.0**-30
"""The spacing of a Sobol coordinate in [0, 1): the engine counts in 30 bits."""


def sobol_sample(q0: Gaussian, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Return scrambled Sobol points of a Gaussian, ``(*batch, n, d)``, independent over the batch.

    Leaders of SteinIS, for example: ``sampler.start(sobol_sample(q0, …), followers, log_q)``.

    Parameters
    ----------
    q0
        N(m, L Lᵀ); dtype and device of the points are those of m.
    shape
        ``(*batch, n)``; the points are the most even where n is a power of 2.
    generator
        Seeds the scramblings, one for each problem of the batch.

    Raises
    ------
    ValueError
        If n is less than 1, or d is more than the 21201 that the engine has tables for.
    """
    if not shape or shape[-1] < 1:
        raise ValueError(f"shape must be (*batch, n) with n at least 1, got {shape}")
    *batch, n = shape
    seeds = torch.randint(
        2**62, (math.prod(batch),), generator=generator, device=generator.device
    ).tolist()
    points = [
        SobolEngine(q0.dim, scramble=True, seed=seed).draw(n, dtype=torch.float64) for seed in seeds
    ]
    uniform = torch.stack(points) if points else torch.empty(0, n, q0.dim, dtype=torch.float64)
    z = normal_scores(uniform).to(q0.mean).reshape(*shape, q0.dim)
    return q0.mean.unsqueeze(-2) + z @ q0.scale_tril.mT


def normal_scores(uniform: Tensor) -> Tensor:
    """Return Φ⁻¹ at the middle of each cell [u, u + 2⁻³⁰), for u in [0, 1] in float64.

    The engine returns the left ends of cells. Their middles are exact in float64 and are never 0
    or 1, so that no score is infinite, whatever precision it is rounded to later: the largest is
    Φ⁻¹(1 - 2⁻³¹) = 6.23. (The engine's first point is rounded to PyTorch's default dtype, in
    float32 possibly up to 1: it is brought back into the last cell.)
    """
    return torch.special.ndtri(uniform.clamp(max=1 - CELL) + CELL / 2)
