"""What the parts of the comparison of section 5.2 compute; `adaptive_comparison` lists them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from steinis_lib.baselines.adaptive_is import AdaptiveIS, AdaptiveISState, Objective, Update
from steinis_lib.baselines.mixture_weights import ExactObjective, OptimalWeights, optimal_weights
from steinis_lib.baselines.mpmc import MixturePMC, MixturePMCState
from steinis_lib.companion.candidates import Setting
from steinis_lib.companion.sections.s3_adaptive_is.divergences import PlaneGrid, kernel_density
from steinis_lib.core.checks import check_log_density
from steinis_lib.importance import ImportanceSample
from steinis_lib.schedules import StepSize
from steinis_lib.stein.inverse import NotInvertibleError, PushForward
from steinis_lib.stein.kernels import RBF
from steinis_lib.stein.maps import StepMap
from steinis_lib.steinis import SteinIS, SteinISState
from steinis_lib.targets.base import Proposal
from steinis_lib.targets.mixtures import FullCovarianceMixture
from steinis_lib.targets.warped import WarpedMixture

Curves = dict[str, Tensor]
Corner = tuple[float, float]


def q0_grid() -> Tensor:
    """Return points that sums over N(0, I) are taken at: ±5 σ, a third of σ apart, ``(961, 2)``."""
    return PlaneGrid.over((-5.0, -5.0), (5.0, 5.0), 1 / 3).points


def follow(
    target: WarpedMixture,
    q0: Proposal,
    setting: Setting,
    n_leaders: int,
    n_followers: int,
    checkpoints: tuple[int, ...],
    generator: torch.Generator,
    batch: tuple[int, ...] = (),
    grid: Tensor | None = None,
) -> tuple[Curves, list[StepMap]]:
    """Run SteinIS; return its curves over `checkpoints`, and its maps.

    Returns
    -------
    curves
        ``(*batch, checkpoints)``: `kl`, the mean of log q/p over followers; `log_z`; `ess` over
        |B|; `kl_grid`, KL(q_ℓ‖p) by a sum over `grid`, if that is given; and `folds` ``(*batch,)``.
        From where a run leaves the range of numbers on, KL is inf, log Ẑ -inf and ESS 0.
    maps
        As far as the run came.
    """
    sampler = SteinIS(target, RBF(multiplier=setting.multiplier or 1.0),
                      StepSize(setting.alpha, setting.beta or 0.0))  # fmt: skip
    state = sampler.init(q0, n_leaders, n_followers, generator, batch)
    n_grid = 0
    weights = torch.zeros(0)
    if grid is not None:
        n_grid, log_q0 = len(grid), q0.log_prob(grid)
        weights = log_q0.softmax(-1)
        points = torch.cat([grid.expand(*batch, n_grid, 2), state.followers], -2)
        log_q = torch.cat([log_q0.expand(*batch, n_grid), state.log_q], -1)
        state = sampler.start(state.leaders, points, log_q)
    rows: list[Curves] = []
    maps: list[StepMap] = []

    def record(state: SteinISState) -> None:
        log_w = target.log_prob(state.followers) - state.log_q
        check_log_density(log_w, "a weight")
        sample = ImportanceSample(state.followers[..., n_grid:, :], log_w[..., n_grid:])
        row = {"kl": -sample.log_w.mean(-1), "log_z": sample.log_z, "ess": sample.ess / sample.n}
        if grid is not None:
            row["kl_grid"] = -(log_w[..., :n_grid] * weights).sum(-1)
        rows.append(row)

    for transition in range(checkpoints[-1] + 1):
        try:
            if transition in checkpoints:
                record(state)
            if transition < checkpoints[-1]:
                state, info = sampler.step(state)
                maps.append(info.step_map)
        except FloatingPointError:
            break
    diverged = {"kl": math.inf, "kl_grid": math.inf, "log_z": -math.inf, "ess": 0.0}
    while len(rows) < len(checkpoints):
        rows.append({name: torch.full_like(row, diverged[name]) for name, row in rows[0].items()})
    curves = {name: torch.stack([row[name] for row in rows], -1) for name in rows[0]}
    return curves | {"folds": state.n_folds.double()}, maps


def backward_kl(
    target: WarpedMixture, q0: Proposal, maps: list[StepMap], stages: tuple[int, ...], x: Tensor
) -> tuple[Tensor, Tensor]:
    """Return KL(p‖q_ℓ) from exact draws of p after each of `stages`, and whether it exists.

    Where a map is not one-to-one, or the run did not come so far, there is no q_ℓ: 0, and False.
    """
    values, exists = [], []
    for stage in stages:
        log_q = density(q0, maps, stage, x)
        exists.append(log_q is not None)
        values.append(x.new_zeros(()) if log_q is None else (target.log_prob(x) - log_q).mean())
    return torch.stack(values), torch.tensor(exists)


def density(q0: Proposal, maps: list[StepMap], stage: int, x: Tensor) -> Tensor | None:
    """Return log q_ℓ at points, for ℓ = `stage`, if there is such a density."""
    if len(maps) < stage:
        return None
    try:
        return PushForward(q0, tuple(maps[:stage])).log_prob(x)
    except NotInvertibleError:
        return None


def place(
    n: int, scale: float, low: Corner, high: Corner, generator: torch.Generator
) -> FullCovarianceMixture:
    """Return n equal components N(μ_k, scale² I), centres spread evenly over a box (Sobol)."""
    seed = int(torch.randint(2**31, (), generator=generator))
    engine = torch.quasirandom.SobolEngine(2, scramble=True, seed=seed)
    unit = engine.draw(n, dtype=torch.float64)
    a, b = (torch.tensor(corner, dtype=torch.float64) for corner in (low, high))
    tril = (scale * torch.eye(2, dtype=torch.float64)).expand(n, 2, 2)
    return FullCovarianceMixture(
        torch.full_like(unit[:, 0], -math.log(n)), a + (b - a) * unit, tril
    )


def around(low: Corner, high: Corner, scale: float) -> PlaneGrid:
    """Return a grid that holds all components of this scale with centres in a box."""
    margin = 6 * scale
    return PlaneGrid.over(
        (low[0] - margin, low[1] - margin), (high[0] + margin, high[1] + margin), scale / 2.5
    )


def adapt(
    target: WarpedMixture,
    components: FullCovarianceMixture,
    setting: tuple[Objective, Update, float],
    n_samples: int,
    checkpoints: tuple[int, ...],
    plane: PlaneGrid,
    generator: torch.Generator,
    batch: tuple[int, ...] = (),
) -> tuple[Curves, list[FullCovarianceMixture]]:
    """Run adaptive IS; return exact KL(q‖p) of the average and the last iterate, and the averages.

    Components with batch axes of their own give each problem of `batch` its own.
    """
    objective, update, rate = setting
    floor = 0.0 if update == "mirror" else 1e-3 / components.means.shape[-2]
    sampler = AdaptiveIS(
        target, components, objective, update, StepSize(rate, 0.5), n_samples, floor
    )
    state = sampler.init(generator, batch)
    density = components.log_components(plane.points).exp()
    log_p = target.log_prob(plane.points)
    curves: dict[str, list[Tensor]] = {"kl": [], "kl_last": []}
    averages = []

    def record(state: AdaptiveISState) -> None:
        for name, averaged in (("kl", True), ("kl_last", False)):
            q = sampler.proposal(state, averaged)
            pi = q.log_weights.exp().unsqueeze(-1)
            curves[name].append(plane.kl((density @ pi).squeeze(-1).log(), log_p))
            if averaged:
                averages.append(q)

    for iteration in range(checkpoints[-1] + 1):
        if iteration in checkpoints:
            record(state)
        if iteration < checkpoints[-1]:
            state, _ = sampler.step(state)
    log_z = {"log_z": state.log_z}
    return {name: torch.stack(row, -1) for name, row in curves.items()} | log_z, averages


def best(
    target: WarpedMixture,
    components: FullCovarianceMixture,
    plane: PlaneGrid,
    objective: ExactObjective,
) -> tuple[FullCovarianceMixture, OptimalWeights, float]:
    """Return the mixture with the exactly optimal weights, these, and its KL(q‖p)."""
    log_n, log_p = components.log_components(plane.points), target.log_prob(plane.points)
    found = optimal_weights(log_n, log_p, plane.log_volume, objective)
    q = replace(components, log_weights=found.weights.log())
    return q, found, float(plane.kl(q.log_prob(plane.points), log_p))


def population(
    target: WarpedMixture,
    n_components: int,
    n_samples: int,
    checkpoints: tuple[int, ...],
    generator: torch.Generator,
    x: Tensor | None = None,
) -> tuple[Curves, FullCovarianceMixture]:
    """Run M-PMC from components N(μ_k, I) with μ_k ~ N(0, 4 I); return its curves and its end.

    `kl`, KL(q‖p), is the mean of log q/p over 5000 fresh draws of q; `kl_backward` is over exact
    draws `x` of p.
    """
    means = 2 * torch.randn(n_components, 2, generator=generator, dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64).expand(n_components, 2, 2)
    start = FullCovarianceMixture(torch.full_like(means[:, 0], -math.log(n_components)), means, eye)
    sampler = MixturePMC(target, n_samples)
    state: MixturePMCState = sampler.init(start, generator)
    curves: dict[str, list[Tensor]] = {"kl": [], "kl_backward": [], "log_z": []}
    for iteration in range(1, checkpoints[-1] + 1):
        state, sample = sampler.step(state)
        if iteration in checkpoints:
            q = sampler.proposal(state)
            y = q.sample((5000,), generator)
            curves["kl"].append((q.log_prob(y) - target.log_prob(y)).mean())
            curves["log_z"].append(sample.log_z)
            if x is not None:
                curves["kl_backward"].append((target.log_prob(x) - q.log_prob(x)).mean())
    return {k: torch.stack(v) for k, v in curves.items() if v}, sampler.proposal(state)


def density_estimates(
    target: WarpedMixture, samples: Tensor, low: Corner, high: Corner, factors: tuple[float, ...]
) -> tuple[Tensor, Tensor]:
    """Return what kernel density estimates say of KL(p‖p) = 0, for each bandwidth factor.

    First KL(estimate‖p) by a sum over a grid; then the mean of log(estimate/p) over the samples
    that the estimate was made from (at most 2000 of them).
    """
    plane = PlaneGrid.over((low[0] - 3, low[1] - 3), (high[0] + 3, high[1] + 3), 0.25)
    log_p, some = target.log_prob(plane.points), samples[:2000]
    by_grid, by_samples = [], []
    for factor in factors:
        estimate = kernel_density(samples, factor)
        log_q = _in_parts(estimate.log_prob, plane.points)
        log_q = log_q - ((log_q + plane.log_volume).logsumexp(-1))  # narrow kernels fall between
        by_grid.append(plane.kl(log_q, log_p))
        by_samples.append((_in_parts(estimate.log_prob, some) - target.log_prob(some)).mean())
    return torch.stack(by_grid), torch.stack(by_samples)


def _in_parts(f: Callable[[Tensor], Tensor], x: Tensor, size: int = 500) -> Tensor:
    return torch.cat([f(part) for part in x.split(size)])


def seconds(
    target: WarpedMixture,
    q0: Proposal,
    components: FullCovarianceMixture,
    n_leaders: int,
    n_followers: int,
    n_samples: int,
    pmc: tuple[int, int],
) -> tuple[float, float, float]:
    """Return seconds for a step of SteinIS, adaptive IS and M-PMC (components, draws), as of now.

    Each is the mean of some steps after a first one.
    """
    generator = torch.Generator().manual_seed(0)
    k, n_draws = pmc
    steinis = SteinIS(target)
    adaptive = AdaptiveIS(
        target, components, "cross-entropy", "mirror", StepSize(0.01, 0.5), n_samples
    )
    population = MixturePMC(target, n_draws)
    start = replace(components, log_weights=components.log_weights[:k].log_softmax(-1),
                    means=components.means[:k], scale_trils=components.scale_trils[:k])  # fmt: skip
    steps: list[tuple[Callable[..., tuple[Any, Any]], Any, int]] = [
        (steinis.step, steinis.init(q0, n_leaders, n_followers, generator), 20),
        (adaptive.step, adaptive.init(generator), 200),
        (population.step, population.init(start, generator), 10),
    ]
    found = []
    for step, state, repeats in steps:
        state, _ = step(state)
        began = time.perf_counter()
        for _ in range(repeats):
            state, _ = step(state)
        found.append((time.perf_counter() - began) / repeats)
    return found[0], found[1], found[2]
