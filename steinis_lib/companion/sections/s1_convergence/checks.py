"""Properties of Algorithm 1 that the paper states in passing, measured on mixtures.

Unbiased Ẑ; the first-order determinant's error against ε; going on from 1000 to 2000
transitions; stopping on the effective sample size.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import torch
import xarray as xr
from pydantic import Field, model_validator

from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner.engine import Experiment, Task, stream
from steinis_lib.schedules import StepSize
from steinis_lib.stein.kernels import RBF
from steinis_lib.stein.maps import Determinant, build
from steinis_lib.steinis import SteinIS, SteinISState
from steinis_lib.targets.base import Gaussian
from steinis_lib.targets.mixtures import GaussianMixture, random_mixture

NAME = "algorithm-checks"


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
    epsilons: tuple[Annotated[float, Field(gt=0, le=0.5)], ...] = Field(
        (0.005, 0.01, 0.02, 0.04, 0.08),
        min_length=3,
        description="step sizes of the determinant check, rising",
    )
    ess_threshold: float = Field(0.8, gt=0, le=1, description="stop at this ESS/|B|")
    max_transitions: int = Field(300, ge=1, description="stop at the latest then")
    n_stopping_trials: int = Field(1000, ge=10, description="trials of the stopping check")
    determinant_dim: int = Field(
        5, ge=3, le=100, description="d of the determinant check; at d = 2 the order is exact"
    )
    n_long_trials: int = Field(10, ge=1, description="trials of the continuation check")
    n_long_transitions: int = Field(1000, ge=1, description="transitions before continuing")

    @model_validator(mode="after")
    def _epsilons_rise(self) -> AlgorithmChecks:
        if list(self.epsilons) != sorted(set(self.epsilons)):
            raise ValueError(f"epsilons: must rise strictly, got {self.epsilons}")
        return self


def tasks(p: AlgorithmChecks) -> list[Task]:
    """Return the chunks of each check; continuation needs few trials, but long ones."""
    return [
        Task(method, chunk)
        for method, n in trial_counts(p).items()
        for chunk in range(-(-n // p.trials_per_chunk))
    ]


def trial_counts(p: AlgorithmChecks) -> dict[str, int]:
    """Return the trials of each check."""
    return {
        "unbiased-exact": p.n_trials,
        "unbiased-first-order": p.n_trials,
        "determinant": p.n_trials,
        "stopping": p.n_stopping_trials,
        "continuing": p.n_long_trials,
    }


def run_task(p: AlgorithmChecks, task: Task) -> xr.Dataset:
    """Run one chunk of one check."""
    first = task.chunk * p.trials_per_chunk
    trials = min(p.trials_per_chunk, trial_counts(p)[task.method] - first)
    dim = p.determinant_dim if task.method == "determinant" else 2
    target = random_mixture(
        p.n_components,
        dim,
        stream(p.seed, NAME, "mixtures", task.chunk),
        batch_shape=(trials,),
        spread=p.spread,
    )
    q0 = Gaussian.isotropic(torch.zeros(dim, dtype=torch.float64), p.q0_scale)
    generator = stream(p.seed, NAME, "particles", task.chunk)
    determinant: Determinant = "first-order" if "first-order" in task.method else "exact"
    sampler = SteinIS(target, RBF(multiplier=p.multiplier), StepSize(p.step_size), determinant)
    start = sampler.init(q0, p.n_leaders, p.n_followers, generator, (trials,))
    if task.method == "determinant":
        variables = _determinant_errors(p, target, start)
    elif task.method == "continuing":
        variables = _continue(p, sampler, start)
    elif task.method == "stopping":
        variables = _stop(p, target, start)
    else:
        end = sampler.run(start, p.n_transitions)
        sample = sampler.importance_sample(end)
        variables = {
            "log_z": (("trial",), sample.log_z.numpy()),
            "log_z_se": (("trial",), sample.log_z_se.numpy()),
            "ess": (("trial",), (sample.ess / sample.n).numpy()),
            "folds": (("trial",), end.n_folds.numpy()),
        }
    coords: dict[str, Any] = {"trial": range(first, first + trials)}
    if task.method == "determinant":
        coords["epsilon"] = list(p.epsilons)
    return xr.Dataset(variables, coords=coords)


def _determinant_errors(
    p: AlgorithmChecks, target: GaussianMixture, start: SteinISState
) -> dict[str, Any]:
    """Root mean square over followers of det(I + εA) - Π(1 + ε a_kk), in the first transition."""
    errors = []
    for epsilon in p.epsilons:
        step_map = build(target, start.leaders, RBF(multiplier=p.multiplier), epsilon)
        exact = step_map.with_log_det(start.followers, "exact")[1].exp()
        first_order = step_map.with_log_det(start.followers, "first-order")[1].exp()
        errors.append((exact - first_order).square().mean(-1).sqrt())
    return {"error": (("trial", "epsilon"), torch.stack(errors, -1).numpy())}


def _continue(p: AlgorithmChecks, sampler: SteinIS, start: SteinISState) -> dict[str, Any]:
    """Largest difference between K + K transitions and one run of 2K."""
    n = p.n_long_transitions
    twice = sampler.run(sampler.run(start, n), n)
    once = sampler.run(start, 2 * n)
    gap = (twice.log_q - once.log_q).abs().amax(-1)
    moved = (twice.followers - once.followers).abs().amax((-2, -1))
    return {"difference": (("trial",), torch.maximum(gap, moved).numpy())}


def _stop(p: AlgorithmChecks, target: GaussianMixture, start: SteinISState) -> dict[str, Any]:
    """Run each trial alone until ESS/|B| reaches the threshold, and note log Ẑ there."""
    rows = []
    for i in range(start.leaders.shape[0]):
        alone = GaussianMixture(target.log_weights[i], target.means[i], target.scales[i])
        sampler = SteinIS(alone, RBF(multiplier=p.multiplier), StepSize(p.step_size))
        state = sampler.start(start.leaders[i], start.followers[i], start.log_q[i])
        end = sampler.run(state, p.max_transitions, ess_threshold=p.ess_threshold, check_every=5)
        sample = sampler.importance_sample(end)
        ess = sample.ess / sample.n
        rows.append(torch.stack([end.transition, sample.log_z, sample.log_z_se, ess]))
    transition, log_z, log_z_se, ess = torch.stack(rows, -1).numpy()
    return {
        "transition": (("trial",), transition),
        "log_z": (("trial",), log_z),
        "log_z_se": (("trial",), log_z_se),
        "ess": (("trial",), ess),
    }


EXPERIMENT = Experiment(NAME, AlgorithmChecks, tasks, run_task)
