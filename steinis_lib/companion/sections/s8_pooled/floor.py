"""The floor law: how near q_ℓ comes to p, by the number of leaders and by the dimension.

Maps are those of the method throughout. With leaders that all build each map, as in Algorithm 1,
there is no pool: a batch has all leaders.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
import xarray as xr

from steinis_lib.companion.runner.experiment import Cell, Chunk
from steinis_lib.companion.sections.s2_mixtures import problem as gmm_estimation
from steinis_lib.companion.sections.s3_adaptive_is import problem as adaptive_problem
from steinis_lib.companion.sections.s7_extensions.sobol import sobol_sample
from steinis_lib.companion.sections.s8_pooled.measuring import along, divergence
from steinis_lib.companion.sections.s8_pooled.settings import (
    LEADERS,
    TARGETS,
    Pooled,
    answer_label,
    floor_label,
    product_label,
)
from steinis_lib.companion.sections.s8_pooled.without import SkewedProduct
from steinis_lib.extensions.pooled import PooledSteinIS
from steinis_lib.targets.base import Gaussian, Target


def cells(p: Pooled) -> list[Cell]:
    """Return the cells of the law in |A|, of starts at the answer, and of the law in d."""
    found = [
        Cell(floor_label(target, leaders, n), p.floor_mixtures,
             partial(by_leaders, target=target, leaders=leaders, n=n), p.floor_mixtures,
             method=f"floor-{leaders}")
        for target in TARGETS
        for leaders in LEADERS
        for n in p.floor_leaders
        if (n > p.leaders_per_step if leaders == "pool" else n <= p.floor_fixed_up_to)
    ]  # fmt: skip
    found += [
        Cell(answer_label(dim, n), 2, partial(from_the_answer, dim=dim, n=n), 2, method="answer")
        for dim in p.floor_dims
        for n in p.answer_leaders
    ]
    found += [
        Cell(product_label(dim), 2, partial(on_product, dim=dim), 2, method="product")
        for dim in p.floor_dims
    ]
    return found


def by_leaders(p: Pooled, chunk: Chunk, *, target: str, leaders: str, n: int) -> xr.Dataset:
    """KL(q_K‖p) with n leaders, on the bent mixture (again and again) or on easy mixtures."""
    if target == "bent":
        sizes = adaptive_problem.AdaptiveComparison()
        problem: Target = adaptive_problem.warped(sizes, adaptive_problem.MAIN)
    else:
        theirs = gmm_estimation.GMMEstimation()
        problem, _, _ = gmm_estimation.problems(theirs, "easy", chunk.n_trials, chunk.number)
    q0 = gmm_estimation.start()
    sampler = PooledSteinIS(
        problem, q0, n_leaders=n, n_followers=p.plane_followers,
        leaders_per_step=p.leaders_per_step if leaders == "pool" else n,
    )  # fmt: skip
    generator = chunk.generator()
    state = sampler.init(generator, batch_shape=(chunk.n_trials,))
    if leaders == "sobol":
        state = replace(state, leaders=sobol_sample(q0, (chunk.n_trials, n), generator))
    return along(sampler, state, p.plane_transitions[:2], divergence)


def from_the_answer(p: Pooled, chunk: Chunk, *, dim: int, n: int) -> xr.Dataset:
    """Start at p = q_0 = N(0, I) with a pool of n, and see how far q_ℓ walks away.

    Beyond 20 dimensions only the shorter runs are made; the others are NaN.
    """
    q0 = Gaussian.isotropic(torch.zeros(dim, dtype=torch.float64))
    sampler = PooledSteinIS(
        q0, q0, n_leaders=n, n_followers=p.answer_followers, leaders_per_step=p.leaders_per_step
    )
    state = sampler.init(chunk.generator(), batch_shape=(chunk.n_trials,))
    last = p.answer_transitions[-1] if dim <= 2 else p.answer_transitions[-2]
    points = tuple(k for k in p.answer_transitions if k <= last)
    found = along(sampler, state, points, divergence)
    return found.reindex(transitions=list(p.answer_transitions))


def on_product(p: Pooled, chunk: Chunk, *, dim: int) -> xr.Dataset:
    """Run on a product of skewed densities in d dimensions."""
    q0 = Gaussian.isotropic(torch.zeros(dim, dtype=torch.float64))
    sampler = PooledSteinIS(
        SkewedProduct(dim), q0, n_leaders=p.n_leaders, n_followers=p.answer_followers,
        leaders_per_step=p.leaders_per_step,
    )  # fmt: skip
    state = sampler.init(chunk.generator(), batch_shape=(chunk.n_trials,))
    return along(sampler, state, p.answer_transitions[:2], divergence)
