"""The runs that the comparison of section 5.2 is made of; `experiment` says which are done."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from steinis_lib.baselines.adaptive_is import AdaptiveIS, AdaptiveISState, Objective, Update
from steinis_lib.baselines.mpmc import MixturePMC
from steinis_lib.companion.methods import build_steinis
from steinis_lib.companion.problems.warped import WarpedMixture
from steinis_lib.companion.sections.s3_adaptive_is.divergences import PlaneGrid, kernel_density
from steinis_lib.companion.sections.s3_adaptive_is.mixture_weights import (
    ExactObjective,
    OptimalWeights,
    optimal_weights,
)
from steinis_lib.companion.settings import Setting
from steinis_lib.core.checks import check_log_density
from steinis_lib.importance import ImportanceSample
from steinis_lib.schedules import StepSize
from steinis_lib.stein.inverse import NotInvertibleError, PushForward
from steinis_lib.stein.maps import StepMap
from steinis_lib.steinis import SteinIS, SteinISState
from steinis_lib.targets.base import Proposal
from steinis_lib.targets.mixtures import FullCovarianceMixture

Curves = dict[str, Tensor]
Corner = tuple[float, float]


@dataclass(frozen=True)
class AdaptiveSetting:
    """A candidate of adaptive IS, whose steps are η = rate/√(1 + t)."""

    objective: Objective
    update: Update
    rate: float


def q0_grid() -> Tensor:
    """Return points for sums over N(0, I): ±5 σ, a third of σ apart, ``(961, 2)``."""
    return PlaneGrid.over((-5.0, -5.0), (5.0, 5.0), 1 / 3).points


def follow(
    target: WarpedMixture,
    q0: Proposal,
    setting: Setting,
    n_leaders: int,
    n_followers: int,
    checkpoints: tuple[int, ...],
    generator: torch.Generator,
    *,
    method: str = "steinis",
    batch_shape: tuple[int, ...] = (),
    grid: Tensor | None = None,
    give_up: bool = False,
) -> tuple[Curves, list[StepMap]]:
    """Run SteinIS; return its curves over `checkpoints`, and its maps.

    Parameters
    ----------
    method
        A family of SteinIS; see `build_steinis`.
    grid
        Points for sums over q_0, such as `q0_grid`.
    give_up
        Stop as soon as maps have folded in more than half of the batch, as if numbers had left the
        range: no tuning takes such a setting.

    Returns
    -------
    curves
        ``(*batch, checkpoints)``: `kl`, the mean of log q/p over followers; `log_z`; `ess` over
        |B|; `kl_grid`, KL(q_ℓ‖p) by a sum over `grid`, if that is given; and `folds` ``(*batch,)``.
        Once numbers have left the floating-point range, KL is inf, log Ẑ is -inf, and ESS is 0.
    maps
        Those of all transitions, or up to the one at which numbers left the range.
    """
    sampler = build_steinis(
        target, q0, setting, method=method, n_leaders=n_leaders, n_followers=n_followers
    )
    state = sampler.init(generator, batch_shape=batch_shape)
    n_grid = 0
    weights = torch.zeros(0)
    if grid is not None:
        n_grid, log_q0 = len(grid), q0.log_prob(grid)
        weights = log_q0.softmax(-1)
        points = torch.cat([grid.expand(*batch_shape, n_grid, 2), state.followers], -2)
        log_q = torch.cat([log_q0.expand(*batch_shape, n_grid), state.log_q], -1)
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
        if give_up and 2 * int((state.n_folds > 0).sum()) > state.n_folds.numel():
            break
    diverged = {"kl": math.inf, "kl_grid": math.inf, "log_z": -math.inf, "ess": 0.0}
    while len(rows) < len(checkpoints):
        rows.append({name: torch.full_like(row, diverged[name]) for name, row in rows[0].items()})
    curves = {name: torch.stack([row[name] for row in rows], -1) for name in rows[0]}
    return curves | {"folds": state.n_folds.double()}, maps


def backward_kl(
    target: WarpedMixture, q0: Proposal, maps: list[StepMap], stages: tuple[int, ...], x: Tensor
) -> tuple[Tensor, Tensor]:
    """Return KL(p‖q_ℓ) after each of `stages`, from exact draws of p, and whether q_ℓ exists.

    If a map is not one-to-one, or the run ended before a stage, there is no q_ℓ: 0, and False.
    """
    values, exists = [], []
    for stage in stages:
        log_q = density(q0, maps, stage, x)
        exists.append(log_q is not None)
        values.append(x.new_zeros(()) if log_q is None else (target.log_prob(x) - log_q).mean())
    return torch.stack(values), torch.tensor(exists)


def density(q0: Proposal, maps: list[StepMap], stage: int, x: Tensor) -> Tensor | None:
    """Return log q_ℓ at points, for ℓ = `stage`; None if there is no such density."""
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
    setting: AdaptiveSetting,
    n_samples: int,
    checkpoints: tuple[int, ...],
    plane: PlaneGrid,
    generator: torch.Generator,
    *,
    batch_shape: tuple[int, ...] = (),
) -> tuple[Curves, list[FullCovarianceMixture]]:
    """Run adaptive IS; return its curves over `checkpoints`, and its averaged mixtures there.

    If components have batch axes, each problem of `batch_shape` has components of its own.

    Returns
    -------
    curves
        ``(*batch, checkpoints)``: `kl` and `kl_last`, exact KL(q‖p) of the averaged and of the
        last weights; and `log_z` ``(*batch,)`` at the end.
    """
    mirror = setting.update == "mirror"
    sampler = AdaptiveIS(
        target, components, objective=setting.objective, update=setting.update,
        step_size=StepSize(setting.rate, 0.5), n_particles=n_samples,
        floor=0.0 if mirror else 1e-3 / components.means.shape[-2],
    )  # fmt: skip
    state = sampler.init(generator, batch_shape=batch_shape)
    component_densities = components.log_components(plane.points).exp()
    log_p = target.log_prob(plane.points)
    curves: dict[str, list[Tensor]] = {"kl": [], "kl_last": []}
    averages = []

    def record(state: AdaptiveISState) -> None:
        for name, averaged in (("kl", True), ("kl_last", False)):
            q = sampler.proposal(state, averaged=averaged)
            pi = q.log_weights.exp().unsqueeze(-1)
            curves[name].append(plane.kl((component_densities @ pi).squeeze(-1).log(), log_p))
            if averaged:
                averages.append(q)

    for transition in range(checkpoints[-1] + 1):
        if transition in checkpoints:
            record(state)
        if transition < checkpoints[-1]:
            state, _ = sampler.step(state)
    found = {name: torch.stack(row, -1) for name, row in curves.items()}
    return found | {"log_z": sampler.estimate(state).log_z}, averages


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
    *,
    x: Tensor | None = None,
) -> tuple[Curves, FullCovarianceMixture]:
    """Run M-PMC from components N(μ_k, I) with μ_k ~ N(0, 4 I); return its curves and its end.

    `kl`, KL(q‖p), is the mean of log q/p over 5000 fresh draws of q. If exact draws `x` of p are
    given, `kl_backward` is KL(p‖q) over them.
    """
    means = 2 * torch.randn(n_components, 2, generator=generator, dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64).expand(n_components, 2, 2)
    start = FullCovarianceMixture(torch.full_like(means[:, 0], -math.log(n_components)), means, eye)
    sampler = MixturePMC(target, start, n_particles=n_samples)
    state = sampler.init(generator)
    curves: dict[str, list[Tensor]] = {"kl": [], "kl_backward": [], "log_z": []}
    for transition in range(1, checkpoints[-1] + 1):
        state, info = sampler.step(state)
        if transition in checkpoints:
            q = sampler.proposal(state)
            y = q.sample((5000,), generator)
            curves["kl"].append((q.log_prob(y) - target.log_prob(y)).mean())
            curves["log_z"].append(ImportanceSample(info.particles, info.log_w).log_z)
            if x is not None:
                curves["kl_backward"].append((target.log_prob(x) - q.log_prob(x)).mean())
    return {k: torch.stack(v) for k, v in curves.items() if v}, sampler.proposal(state)


def density_estimates(
    target: WarpedMixture, samples: Tensor, low: Corner, high: Corner, factors: tuple[float, ...]
) -> tuple[Tensor, Tensor]:
    """Return what kernel density estimates say of KL(q‖p), for each bandwidth factor.

    First KL(estimate‖p) by a sum over a grid; then the mean of log(estimate/p) over the samples
    that the estimate was made from (at most 2000 of them).

    Parameters
    ----------
    samples
        Draws of q, ``(n, 2)``.
    low, high
        A box that holds the target.
    factors
        Multiples of Scott's bandwidth.
    """
    plane = PlaneGrid.over((low[0] - 3, low[1] - 3), (high[0] + 3, high[1] + 3), 0.25)
    log_p, some = target.log_prob(plane.points), samples[:2000]
    by_grid, by_samples = [], []
    for factor in factors:
        estimate = kernel_density(samples, factor)
        log_q = _in_parts(estimate.log_prob, plane.points)
        # Narrow kernels can lie between the points of the grid, so that the sum is not 1.
        log_q = log_q - ((log_q + plane.log_volume).logsumexp(-1))
        by_grid.append(plane.kl(log_q, log_p))
        by_samples.append((_in_parts(estimate.log_prob, some) - target.log_prob(some)).mean())
    return torch.stack(by_grid), torch.stack(by_samples)


def _in_parts(f: Callable[[Tensor], Tensor], x: Tensor, size: int = 500) -> Tensor:
    return torch.cat([f(part) for part in x.split(size)])


def seconds(sampler: SteinIS | AdaptiveIS | MixturePMC, repeats: int) -> float:
    """Return the seconds of a step, as of now: the mean of `repeats` steps after a first one."""
    algorithm: Any = sampler  # the three have the same methods, each with a state of its own
    state, _ = algorithm.step(algorithm.init(torch.Generator().manual_seed(0)))
    began = time.perf_counter()
    for _ in range(repeats):
        state, _ = algorithm.step(state)
    return (time.perf_counter() - began) / repeats
