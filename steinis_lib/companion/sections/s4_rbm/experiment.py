"""Log Z of Gauss-Bernoulli RBMs (section 5.3, Figure 5).

Three conditions: "standard", a model redrawn in each trial and q_0 = N(0, I); "matched", the same
models and q_0 = N(E_p x, Cov_p x), moments that a user could know from a short pilot; "fixed", one
model for all trials and q_0 = N(0, I). The first is run at every dimension, the other two at the
largest. SteinIS reads all numbers of transitions off one run; annealing needs a run for each.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
import xarray as xr
from pydantic import Field, model_validator
from torch import Tensor

from steinis_lib.companion.candidates import (
    Setting,
    annealing,
    annealing_candidates,
    chosen,
    steinis,
    tune_on_problems,
    tuning_record,
)
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner.engine import Experiment, Task, stream
from steinis_lib.companion.tuning import Trial
from steinis_lib.importance import ImportanceSample, importance_sampling
from steinis_lib.stein.kernels import RBF
from steinis_lib.stein.maps import Determinant
from steinis_lib.steinis import SteinISInfo, SteinISState
from steinis_lib.targets.base import Gaussian
from steinis_lib.targets.rbm import GaussBernoulliRBM, random_rbm

NAME = "rbm"
CONDITIONS = ("standard", "matched", "fixed")
TUNED = ("steinis", "steinis-wide", "hais-1l", "hais-1l-partial", "hais-10l", "ais")
METHODS = ("is", *TUNED, "ais-unadjusted")
DETERMINANT: Determinant = "first-order"
"""Exact ones cost more than ten times as much at d = 100."""
CHECK_MULTIPLIER = 20.0
"""Of the bandwidth, where determinants are compared: the widest kernel has the largest ∇φ."""


class RBMPartition(Parameters):
    """Sizes and settings; the defaults are the paper's, but for the number of trials."""

    QUICK: ClassVar[dict[str, Any]] = {
        "n_trials": 6,
        "n_trials_other": 4,
        "n_trials_long": 4,
        "trials_per_chunk": 6,
        "dims": (5, 10, 20),
        "n_leaders": 50,
        "n_followers": 50,
        "transitions": (10, 30, 60),
        "tuning_repeats": 2,
        "determinant_transitions": 10,
        "determinant_trials": 2,
    }

    n_trials: int = Field(100, ge=2, description="condition standard; the paper has 500")
    n_trials_other: int = Field(50, ge=2, description="conditions matched and fixed")
    n_trials_long: int = Field(40, ge=2, description="at most so many of HAIS-10L, any condition")
    trials_per_chunk: int = Field(5, ge=1, description="trials computed and stored together")
    dims: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        (10, 20, 50, 100), min_length=1, description="d, rising"
    )
    n_hidden: int = Field(10, ge=1, le=15, description="d', hidden units")
    n_leaders: int = Field(100, ge=2, description="|A| of SteinIS")
    n_followers: int = Field(100, ge=5, description="importance samples of each method")
    transitions: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (50, 100, 200, 500, 1000, 1500), min_length=1, description="at the largest d, rising"
    )
    tuning_repeats: int = Field(3, ge=2, description="pilot models for each of the 12 candidates")
    determinant_steps: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        (0.03, 0.1, 0.3, 1.0), min_length=1, description="ε at which determinants are compared"
    )
    determinant_transitions: int = Field(100, ge=1, description="the same: transitions")
    determinant_trials: int = Field(8, ge=2, description="the same: trials")

    @model_validator(mode="after")
    def _rising(self) -> RBMPartition:
        for name in ("dims", "transitions"):
            values = getattr(self, name)
            if list(values) != sorted(set(values)):
                raise ValueError(f"{name}: must rise strictly, got {values}")
        return self


def candidates(method: str) -> list[Setting]:
    """Return twelve candidates for every tuned method, so that all have the same budget."""
    if method == "steinis":  # the paper's own family: α and β, its bandwidth rule
        return [Setting(a, b, 1.0) for a in (0.1, 1.0, 10.0, 100.0) for b in (0.0, 0.3, 0.6)]
    if method == "steinis-wide":  # and a multiplier of the bandwidth
        schedules = ((0.1, 0.0), (0.3, 0.6), (1.0, 0.6))
        return [Setting(a, b, m) for a, b in schedules for m in (5.0, 10.0, 20.0, 40.0)]
    return annealing_candidates(method)


def cells(p: RBMPartition) -> list[tuple[str, int]]:
    """Return the (condition, d) that are run."""
    return [("standard", d) for d in p.dims] + [(c, p.dims[-1]) for c in CONDITIONS[1:]]


def pilots(p: RBMPartition) -> list[Task]:
    """Return the tuning of each method; a fixed model takes the settings of redrawn ones."""
    return [
        Task(f"{condition}-tuning-{name}-{d}", 0)
        for condition, d in cells(p)
        if condition != "fixed"
        for name in TUNED
    ]


def tasks(p: RBMPartition) -> list[Task]:
    """Return every method's chunks in each cell, and those that compare determinants."""
    found = [Task("determinants", c) for c in range(p.determinant_trials)]
    for condition, d in cells(p):
        for method in METHODS:
            chunks = -(-trials(p, condition, method) // p.trials_per_chunk)
            found += [Task(f"{condition}-{method}-{d}", c) for c in range(chunks)]
    return found


def trials(p: RBMPartition, condition: str, method: str) -> int:
    """Return how many trials a method gets."""
    n = p.n_trials if condition == "standard" else p.n_trials_other
    return min(n, p.n_trials_long) if method == "hais-10l" else n


def run_task(
    p: RBMPartition, task: Task, pilots: Mapping[str, xr.Dataset] | None = None
) -> xr.Dataset:
    """Run one chunk of one method in one cell, or the tuning of one, or the determinants."""
    if task.method == "determinants":
        return _determinants(p, task)
    condition, _, rest = task.method.partition("-")
    method, _, size = rest.rpartition("-")
    dim = int(size)
    if method.startswith("tuning-"):
        return tuning_record(_tune(p, condition, method.removeprefix("tuning-"), dim))
    assert pilots is not None
    first = task.chunk * p.trials_per_chunk
    count = min(p.trials_per_chunk, trials(p, condition, method) - first)
    target = models(p, condition, dim, count, task.chunk)
    generator = stream(p.seed, NAME, task.method, task.chunk)
    setting = Setting(1.0)
    if method != "is":  # unadjusted AIS takes the step of the unbiased one
        tuned_in = "standard" if condition == "fixed" else condition
        tuned = "ais" if method == "ais-unadjusted" else method
        setting = chosen(pilots[f"{tuned_in}-tuning-{tuned}-{dim}"])
    q0 = initial(condition, target)
    if method.startswith("steinis"):
        found = _steinis_curve(p, target, q0, setting, generator)
    elif method == "is":
        sample = importance_sampling(target, q0, (count, p.n_followers), generator)
        found = {0: _measured(target, sample)}
    else:
        every = condition == "standard" and dim == p.dims[-1]
        found = {}
        for k in p.transitions if every else p.transitions[-1:]:
            chain = annealing(target, q0, method, setting, k)
            end = chain.run(chain.init(p.n_followers, generator, (count,)))
            found[k] = _measured(target, chain.importance_sample(end))
    return _dataset(found, range(first, first + count), condition, target)


def initial(condition: str, target: GaussBernoulliRBM) -> Gaussian:
    """Return q_0: N(0, I), or N(E_p x, Cov_p x) in condition "matched"."""
    if condition != "matched":
        return Gaussian.isotropic(torch.zeros(target.dim, dtype=target.coupling.dtype))
    return Gaussian(target.mean, torch.linalg.cholesky(target.covariance))


def _steinis_curve(
    p: RBMPartition,
    target: GaussBernoulliRBM,
    q0: Gaussian,
    setting: Setting,
    generator: torch.Generator,
) -> dict[int, dict[str, Tensor]]:
    """Run SteinIS once and measure it at every number of transitions."""
    sampler = steinis(target, setting, DETERMINANT)
    state = sampler.init(q0, p.n_leaders, p.n_followers, generator, tuple(target.bias_x.shape[:-1]))
    found = {}
    kernel_values: Tensor

    def keep(state: SteinISState, info: SteinISInfo) -> None:
        nonlocal kernel_values
        kernel = info.step_map.kernel
        assert isinstance(kernel, RBF)
        if int(state.transition) in p.transitions:  # as the map met them, before they moved
            kernel_values = kernel.gram(before, info.step_map.leaders).flatten(1).median(-1).values

    for k in p.transitions:
        state = sampler.run(state, k - 1 - int(state.transition))
        before = state.followers
        state = sampler.run(state, 1, on_step=keep)
        found[k] = _measured(target, sampler.importance_sample(state)) | {
            "kernel_value": kernel_values,
            "leader_variance": _variance(state.leaders),
            "n_folds": state.n_folds,
        }
    return found


def _measured(target: GaussBernoulliRBM, sample: ImportanceSample) -> dict[str, Tensor]:
    """What is kept of a weighted sample, each ``(trials,)``."""
    likeliest = target.state_log_probs.argmax(-1)
    place = torch.arange(target.n_hidden - 1, -1, -1)
    signs = 2 * ((likeliest.unsqueeze(-1) >> place) & 1) - 1
    phi = sample.particles @ target.coupling + target.bias_h.unsqueeze(-2)
    there = (phi.sign() == signs.unsqueeze(-2)).all(-1)
    return {
        "error": sample.log_z - target.log_z,
        "mean_log_w": sample.log_w.mean(-1) - target.log_z,
        "ess": sample.ess / sample.n,
        "pareto_k": sample.pareto_k,
        "variance": _variance(sample.particles),
        "in_likeliest": there.to(phi).mean(-1),
    }


def _dataset(
    found: Mapping[int, Mapping[str, Tensor]],
    numbers: range,
    condition: str,
    target: GaussBernoulliRBM,
) -> xr.Dataset:
    names = next(iter(found.values()))
    variables: dict[str, Any] = {
        name: (
            ("trial", "transitions"),
            torch.stack([values[name] for values in found.values()], -1).numpy(),
        )
        for name in names
    }
    variables["model"] = (("trial",), [0 if condition == "fixed" else i for i in numbers])
    variables["log_z"] = (("trial",), target.log_z.numpy())
    variables["target_variance"] = (
        ("trial",),
        (target.covariance.diagonal(dim1=-2, dim2=-1).mean(-1)).numpy(),
    )
    variables["likeliest"] = (("trial",), target.state_log_probs.amax(-1).exp().numpy())
    return xr.Dataset(variables, coords={"trial": list(numbers), "transitions": list(found)})


def _variance(x: Tensor) -> Tensor:
    """tr Cov(x)/d of particles ``(*batch, n, d)``, ``(*batch,)``."""
    return x.var(-2).mean(-1)


def _determinants(p: RBMPartition, task: Task) -> xr.Dataset:
    """Track one run with exact and with first-order determinants, at each step size."""
    target = models(p, "standard", p.dims[-1], 1, task.chunk)
    generator = stream(p.seed, NAME, task.method, task.chunk)
    found: dict[str, list[list[float]]] = {}
    for epsilon in p.determinant_steps:
        sampler = steinis(target, Setting(epsilon, 0.0, CHECK_MULTIPLIER), DETERMINANT)
        state = sampler.init(
            initial("standard", target), p.n_leaders, p.n_followers, generator, (1,)
        )
        total, seconds = torch.zeros_like(state.log_q), {"exact": 0.0, "first-order": 0.0}
        for _ in range(p.determinant_transitions):
            started = time.perf_counter()
            new, first_order = sampler.step(state)
            between = time.perf_counter()
            _, exact = replace(sampler, determinant="exact").step(state)
            seconds["first-order"] += between - started
            seconds["exact"] += time.perf_counter() - between
            total = total + first_order.log_abs_det - exact.log_abs_det
            state = new
        sample = sampler.importance_sample(state)
        exact_sample = ImportanceSample(sample.particles, sample.log_w - total)
        values = {
            "log_w_bias": total.mean(),
            "log_z_bias": sample.log_z - exact_sample.log_z,
            "error": sample.log_z - target.log_z,
        }
        for name, value in values.items():
            found.setdefault(name, []).append([float(value)])
        for name, spent in seconds.items():
            key = f"seconds_{name.replace('-', '_')}"
            found.setdefault(key, []).append([spent / p.determinant_transitions])
    dataset = xr.Dataset(
        {name: (("step_size", "trial"), rows) for name, rows in found.items()},
        coords={"step_size": list(p.determinant_steps), "trial": [task.chunk]},
    )
    for name in ("seconds_exact", "seconds_first_order"):
        dataset[name].attrs["units"] = "s"
    return dataset.transpose("trial", "step_size")


def _tune(p: RBMPartition, condition: str, method: str, dim: int) -> list[Trial[Setting]]:
    """Try all candidates of a method on the same pilot models, which no trial uses."""
    generator = stream(p.seed, NAME, f"{condition}-{method}-{dim}-pilots", 0)
    models = stream(p.seed, NAME, f"pilot-models-{dim}", 0)
    target = random_rbm(dim, p.n_hidden, models, batch_shape=(p.tuning_repeats,))
    q0, k = initial(condition, target), p.transitions[-1]
    return tune_on_problems(
        method, candidates(method), target, q0, p.tuning_repeats, k, generator,
        n_leaders=p.n_leaders, n_followers=p.n_followers, determinant=DETERMINANT,
    )  # fmt: skip


def models(p: RBMPartition, condition: str, dim: int, count: int, chunk: int) -> GaussBernoulliRBM:
    """The models of a chunk: the same for all methods, and for "standard" and "matched"."""
    if condition == "fixed":
        one = random_rbm(dim, p.n_hidden, stream(p.seed, NAME, f"fixed-model-{dim}", 0))
        return GaussBernoulliRBM(
            one.coupling.repeat(count, 1, 1),
            one.bias_x.repeat(count, 1),
            one.bias_h.repeat(count, 1),
        )
    models = stream(p.seed, NAME, f"models-{dim}", chunk)
    return random_rbm(dim, p.n_hidden, models, batch_shape=(count,))


EXPERIMENT = Experiment(NAME, RBMPartition, tasks, run_task, pilots)
