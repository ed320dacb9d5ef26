"""Properties of Algorithm 1 that the paper states in passing, measured on mixtures.

Unbiased Ẑ; the first-order determinant's error against ε; going on from 1000 to 2000
transitions; stopping on the effective sample size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar

import torch
import xarray as xr
from pydantic import Field

from steinis_lib.companion.parameters import Parameters, Rising
from steinis_lib.companion.runner.experiment import Cell, Chunk, Experiment
from steinis_lib.stein.kernels import RBF
from steinis_lib.stein.maps import Determinant, build
from steinis_lib.steinis import SteinIS, SteinISState
from steinis_lib.targets.base import Gaussian
from steinis_lib.targets.mixtures import GaussianMixture, random_mixture


class AlgorithmChecks(Parameters):
    """Sizes and settings of the checks; the paper states none of them."""

    QUICK: ClassVar[dict[str, Any]] = {
        "n_trials": 200,
        "n_stopping_trials": 40,
        "trials_per_chunk": 40,
        "n_long_trials": 2,
        "n_long_transitions": 40,
    }

    n_trials: int = Field(2000, ge=10, description="independent mixtures and particles")
    trials_per_chunk: int = Field(50, ge=1, description="trials computed and stored together")
    n_components: int = Field(10, ge=1, description="components of the mixture")
    spread: float = Field(3.0, ge=0, description="means are uniform on ±spread")
    n_leaders: int = Field(50, ge=2, description="|A|")
    n_followers: int = Field(100, ge=2, description="|B|")
    multiplier: float = Field(6.0, gt=0, description="factor on the bandwidth rule")
    step_size: float = Field(0.3, gt=0, description="ε, constant")
    n_transitions: int = Field(50, ge=1, description="transitions of the unbiasedness check")
    q0_scale: float = Field(1.5, gt=0, description="σ of the Gaussian q0, centred at 0")
    epsilons: Annotated[tuple[Annotated[float, Field(gt=0, le=0.5)], ...], Rising] = Field(
        (0.005, 0.01, 0.02, 0.04, 0.08),
        min_length=3,
        description="step sizes of the determinant check, rising",
    )
    ess_threshold: float = Field(0.8, gt=0, le=1, description="stop at this ESS/|B|")
    max_transitions: int = Field(300, ge=1, description="stop at the latest then")
    n_stopping_trials: int = Field(1000, ge=10, description="trials of the stopping check")
    determinant_dim: int = Field(
        5, ge=3, le=100, description="d of the determinant check; for d of 2 the order is exact"
    )
    n_long_trials: int = Field(10, ge=1, description="trials of the continuation check")
    n_long_transitions: int = Field(1000, ge=1, description="transitions before continuing")


Check = Callable[[AlgorithmChecks, SteinIS, SteinISState], xr.Dataset]


def cells(p: AlgorithmChecks) -> list[Cell]:
    """Return a cell for each check; continuation needs few trials, but long ones."""
    counts: dict[str, tuple[int, Check]] = {
        "unbiased-exact": (p.n_trials, partial(_estimate_z, determinant="exact")),
        "unbiased-first-order": (p.n_trials, partial(_estimate_z, determinant="first-order")),
        "determinant": (p.n_trials, _determinant_errors),
        "stopping": (p.n_stopping_trials, _stop),
        "continuing": (p.n_long_trials, _continue),
    }
    return [
        Cell(label, n, partial(run_check, check=check), p.trials_per_chunk)
        for label, (n, check) in counts.items()
    ]


def run_check(p: AlgorithmChecks, chunk: Chunk, check: Check) -> xr.Dataset:
    """Run one chunk of one check on mixtures that it shares with the other checks."""
    dim = p.determinant_dim if check is _determinant_errors else 2
    target = random_mixture(
        p.n_components, dim, chunk.stream("mixtures"), batch_shape=(chunk.n_trials,),
        spread=p.spread,
    )  # fmt: skip
    q0 = Gaussian.isotropic(torch.zeros(dim, dtype=torch.float64), p.q0_scale)
    sampler = SteinIS(
        target, q0, kernel=RBF(multiplier=p.multiplier), step_size=p.step_size,
        n_leaders=p.n_leaders, n_followers=p.n_followers,
    )  # fmt: skip
    start = sampler.init(chunk.stream("particles"), batch_shape=(chunk.n_trials,))
    return check(p, sampler, start)


def _estimate_z(
    p: AlgorithmChecks, sampler: SteinIS, start: SteinISState, determinant: Determinant
) -> xr.Dataset:
    """Estimate Z with one kind of determinant."""
    sampler = replace(sampler, determinant=determinant)
    end = sampler.run(start, p.n_transitions)
    sample = sampler.importance_sample(end)
    found = {
        "log_z": sample.log_z,
        "log_z_se": sample.log_z_se,
        "ess": sample.ess / sample.n,
        "folds": end.n_folds,
    }
    return xr.Dataset({name: ("trial", values.numpy()) for name, values in found.items()})


def _determinant_errors(p: AlgorithmChecks, sampler: SteinIS, start: SteinISState) -> xr.Dataset:
    """Root mean square over followers of det(I + εA) - Π(1 + ε a_kk), in the first transition."""
    errors = []
    for epsilon in p.epsilons:
        step_map = build(sampler.target, start.leaders, sampler.kernel, epsilon)
        exact = step_map.with_log_det(start.followers, "exact")[1].exp()
        first_order = step_map.with_log_det(start.followers, "first-order")[1].exp()
        errors.append((exact - first_order).square().mean(-1).sqrt())
    return xr.Dataset(
        {"error": (("trial", "epsilon"), torch.stack(errors, -1).numpy())},
        coords={"epsilon": list(p.epsilons)},
    )


def _continue(p: AlgorithmChecks, sampler: SteinIS, start: SteinISState) -> xr.Dataset:
    """Largest difference between K + K transitions and one run of 2K."""
    n = p.n_long_transitions
    twice = sampler.run(sampler.run(start, n), n)
    once = sampler.run(start, 2 * n)
    gap = (twice.log_q - once.log_q).abs().amax(-1)
    moved = (twice.followers - once.followers).abs().amax((-2, -1))
    return xr.Dataset({"difference": ("trial", torch.maximum(gap, moved).numpy())})


def _stop(p: AlgorithmChecks, sampler: SteinIS, start: SteinISState) -> xr.Dataset:
    """Run each trial alone until ESS/|B| reaches the threshold, and note log Ẑ there."""
    target, rows = sampler.target, []
    assert isinstance(target, GaussianMixture)
    for i in range(len(target.means)):
        one = GaussianMixture(target.log_weights[i], target.means[i], target.scales[i])
        alone = replace(sampler, target=one)
        state = alone.start(start.leaders[i], start.followers[i], start.log_q[i])
        end = alone.run_until(
            state, p.max_transitions, ess_threshold=p.ess_threshold, check_every=5
        )
        sample = alone.importance_sample(end)
        ess = sample.ess / sample.n
        rows.append(torch.stack([end.transition, sample.log_z, sample.log_z_se, ess]))
    names = ("transition", "log_z", "log_z_se", "ess")
    columns = torch.stack(rows, -1).numpy()
    return xr.Dataset({n: ("trial", column) for n, column in zip(names, columns, strict=True)})


EXPERIMENT = Experiment("algorithm-checks", AlgorithmChecks, cells)
