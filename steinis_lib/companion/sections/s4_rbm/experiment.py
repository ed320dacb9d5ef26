"""Log Z of Gauss-Bernoulli RBMs (section 5.3, Figure 5).

Three conditions: "standard", a model redrawn in each trial and q_0 = N(0, I); "matched", the same
models and q_0 = N(E_p x, Cov_p x), whose moments a user could know from a short pilot; "fixed", one
model for all trials and q_0 = N(0, I). The first is run at every dimension, the other two at the
largest. One run of SteinIS gives all numbers of transitions. Annealing needs a run for each.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar

import torch
import xarray as xr
from pydantic import Field
from torch import Tensor

from steinis_lib.companion.methods import (
    METHODS,
    TUNED,
    Reading,
    Sampler,
    Setting,
    along_transitions,
    annealing_candidates,
    build_sampler,
    build_steinis,
    readings,
    tuned_as,
)
from steinis_lib.companion.parameters import Parameters, Rising
from steinis_lib.companion.problems.rbm import GaussBernoulliRBM, random_rbm
from steinis_lib.companion.runner.experiment import Cell, Chunk, Experiment, stream
from steinis_lib.companion.tuning import chosen, tune_sampler, tuning_record
from steinis_lib.importance import ImportanceSample
from steinis_lib.stein.kernels import RBF
from steinis_lib.stein.maps import Determinant
from steinis_lib.steinis import SteinISInfo, SteinISState
from steinis_lib.targets.base import Gaussian

NAME = "rbm"
CONDITIONS = ("standard", "matched", "fixed")
DETERMINANTS = "determinants"
"""The label of the cell that compares determinants."""
DETERMINANT: Determinant = "first-order"
"""Of all runs of SteinIS. Exact determinants cost more than ten times as much at d = 100."""
CHECK_MULTIPLIER = 20.0
"""Factor on the bandwidth where determinants are compared. Wide kernels have the largest ∇φ."""


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
    dims: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Rising] = Field(
        (10, 20, 50, 100), min_length=1, description="d, rising"
    )
    n_hidden: int = Field(10, ge=1, le=15, description="d', hidden units")
    n_leaders: int = Field(100, ge=2, description="|A| of SteinIS")
    n_followers: int = Field(100, ge=5, description="importance samples of each method")
    transitions: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Rising] = Field(
        (50, 100, 200, 500, 1000, 1500), min_length=1, description="at the largest d, rising"
    )
    tuning_repeats: int = Field(3, ge=2, description="pilot models for each of the 12 candidates")
    determinant_steps: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        (0.03, 0.1, 0.3, 1.0), min_length=1, description="ε at which determinants are compared"
    )
    determinant_transitions: int = Field(100, ge=1, description="the same: transitions")
    determinant_trials: int = Field(8, ge=2, description="the same: trials")


def candidates(method: str) -> list[Setting]:
    """Return twelve candidates for every tuned method, so that all have the same budget."""
    if method == "steinis":  # the paper's own family: α and β, its bandwidth rule
        return [Setting(a, b, 1.0) for a in (0.1, 1.0, 10.0, 100.0) for b in (0.0, 0.3, 0.6)]
    if method == "steinis-wide":  # and a multiplier of the bandwidth
        schedules = ((0.1, 0.0), (0.3, 0.6), (1.0, 0.6))
        return [Setting(a, b, m) for a, b in schedules for m in (5.0, 10.0, 20.0, 40.0)]
    return annealing_candidates(method)


def label(condition: str, method: str, dim: int) -> str:
    """Return the label of a method's cell under one condition."""
    return f"{condition}-{method}-{dim}"


def tuning_label(condition: str, method: str, dim: int) -> str:
    """Return the label of the cell that tunes a method for one condition."""
    return label(condition, f"tuning-{method}", dim)


def cells(p: RBMPartition) -> list[Cell]:
    """Return the comparison of determinants, and tuning and trials of all methods."""
    found = [Cell(DETERMINANTS, p.determinant_trials, compare_determinants)]
    for condition, dim in [("standard", d) for d in p.dims] + [
        (condition, p.dims[-1]) for condition in CONDITIONS[1:]
    ]:
        if condition != "fixed":
            found += [
                Cell(
                    tuning_label(condition, method, dim),
                    1,
                    partial(tune_method, condition=condition, method=method, dim=dim),
                    method=f"{condition}-tuning-{method}",
                )
                for method in TUNED
            ]
        for method in METHODS:
            tuning = _tuning_of(condition, method, dim)
            found.append(
                Cell(
                    label(condition, method, dim),
                    trials(p, condition, method),
                    partial(estimate, condition=condition, method=method, dim=dim),
                    p.trials_per_chunk,
                    pilots=() if tuning is None else (tuning,),
                    method=f"{condition}-{method}",
                )
            )
    return found


def _tuning_of(condition: str, method: str, dim: int) -> str | None:
    """The cell that chose a method's setting. A fixed model takes the settings of redrawn ones."""
    if method == "is":
        return None
    return tuning_label("standard" if condition == "fixed" else condition, tuned_as(method), dim)


def trials(p: RBMPartition, condition: str, method: str) -> int:
    """Return how many trials a method gets."""
    n = p.n_trials if condition == "standard" else p.n_trials_other
    return min(n, p.n_trials_long) if method == "hais-10l" else n


def estimate(p: RBMPartition, chunk: Chunk, *, condition: str, method: str, dim: int) -> xr.Dataset:
    """Run one chunk of a method on the models of that chunk."""
    target = models(p, condition, dim, chunk.n_trials, chunk.number)
    tuning = _tuning_of(condition, method, dim)
    setting = None if tuning is None else chosen(chunk.pilots[tuning])
    every = method.startswith("steinis") or (condition == "standard" and dim == p.dims[-1])
    found = readings(
        method, target, initial(condition, target), setting,
        p.transitions if every else p.transitions[-1:], chunk.generator(),
        batch_shape=(chunk.n_trials,), n_leaders=p.n_leaders, n_followers=p.n_followers,
        determinant=DETERMINANT,
    )  # fmt: skip
    dataset = along_transitions({r.n_transitions: _measured(target, r) for r in found})
    per_trial = {
        "model": torch.tensor([0 if condition == "fixed" else i for i in chunk.trials]),
        "log_z": target.log_z,
        "target_variance": target.covariance.diagonal(dim1=-2, dim2=-1).mean(-1),
        "likeliest": target.state_log_probs.amax(-1).exp(),
    }
    return dataset.assign({name: ("trial", v.numpy()) for name, v in per_trial.items()})


def initial(condition: str, target: GaussBernoulliRBM) -> Gaussian:
    """Return q_0: N(0, I), or N(E_p x, Cov_p x) in condition "matched"."""
    if condition != "matched":
        return Gaussian.isotropic(torch.zeros(target.dim, dtype=target.coupling.dtype))
    return Gaussian(target.mean, torch.linalg.cholesky(target.covariance))


def _measured(target: GaussBernoulliRBM, reading: Reading) -> dict[str, Tensor]:
    """What is kept of a method's estimate, each ``(trials,)``."""
    sample = reading.sample
    likeliest = target.state_log_probs.argmax(-1)
    place = torch.arange(target.n_hidden - 1, -1, -1)
    signs = 2 * ((likeliest.unsqueeze(-1) >> place) & 1) - 1
    phi = sample.particles @ target.coupling + target.bias_h.unsqueeze(-2)
    there = (phi.sign() == signs.unsqueeze(-2)).all(-1)
    found = {
        "error": sample.log_z - target.log_z,
        "mean_log_w": sample.log_w.mean(-1) - target.log_z,
        "ess": sample.ess / sample.n,
        "pareto_k": sample.pareto_k,
        "variance": _variance(sample.particles),
        "in_likeliest": there.to(phi).mean(-1),
    }
    return found if reading.steinis is None else found | _measured_maps(*reading.steinis)


def _measured_maps(
    before: SteinISState, after: SteinISState, info: SteinISInfo
) -> dict[str, Tensor]:
    """What is kept of SteinIS's last map and of its leaders, each ``(trials,)``."""
    kernel = info.step_map.kernel
    assert isinstance(kernel, RBF)
    values = kernel.gram(before.followers, info.step_map.leaders)  # as the map met them
    return {
        "kernel_value": values.flatten(1).median(-1).values,
        "leader_variance": _variance(after.leaders),
        "n_folds": after.n_folds,
    }


def _variance(x: Tensor) -> Tensor:
    """tr Cov(x)/d of particles ``(*batch, n, d)``, ``(*batch,)``."""
    return x.var(-2).mean(-1)


def compare_determinants(p: RBMPartition, chunk: Chunk) -> xr.Dataset:
    """Track one run with exact and with first-order determinants, at each step size."""
    target = models(p, "standard", p.dims[-1], 1, chunk.number)
    generator = chunk.generator()
    found: dict[str, list[float]] = {}
    for epsilon in p.determinant_steps:
        sampler = build_steinis(
            target, initial("standard", target), Setting(epsilon, 0.0, CHECK_MULTIPLIER),
            n_leaders=p.n_leaders, n_followers=p.n_followers, determinant=DETERMINANT,
        )  # fmt: skip
        state = sampler.init(generator, batch_shape=(1,))
        total, seconds = torch.zeros_like(state.log_q), {"exact": 0.0, "first_order": 0.0}
        for _ in range(p.determinant_transitions):
            started = time.perf_counter()
            new, first_order = sampler.step(state)
            between = time.perf_counter()
            _, exact = replace(sampler, determinant="exact").step(state)
            seconds["first_order"] += between - started
            seconds["exact"] += time.perf_counter() - between
            total = total + first_order.log_abs_det - exact.log_abs_det
            state = new
        sample = sampler.importance_sample(state)
        exact_sample = ImportanceSample(sample.particles, sample.log_w - total)
        values = {
            "log_w_bias": float(total.mean()),
            "log_z_bias": float(sample.log_z - exact_sample.log_z),
            "error": float(sample.log_z - target.log_z),
        } | {f"seconds_{kind}": s / p.determinant_transitions for kind, s in seconds.items()}
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return xr.Dataset(
        {
            name: (
                ("trial", "step_size"), [row], {"units": "s"} if "seconds" in name else {}
            )
            for name, row in found.items()
        },
        coords={"step_size": list(p.determinant_steps)},
    )  # fmt: skip


def tune_method(
    p: RBMPartition, chunk: Chunk, *, condition: str, method: str, dim: int
) -> xr.Dataset:
    """Try all candidates of a method on the same pilot models, which no trial uses."""
    pilot_models = chunk.stream(f"pilot-models-{dim}", 0)
    target = random_rbm(dim, p.n_hidden, pilot_models, batch_shape=(p.tuning_repeats,))
    q0, k = initial(condition, target), p.transitions[-1]

    def build(setting: Setting) -> Sampler:
        return build_sampler(
            method, target, q0, setting, k, n_leaders=p.n_leaders, n_followers=p.n_followers,
            determinant=DETERMINANT,
        )  # fmt: skip

    generator = chunk.stream(f"{label(condition, method, dim)}-pilots", 0)
    return tuning_record(
        tune_sampler(candidates(method), build, k, generator, repeats=p.tuning_repeats)
    )


def models(p: RBMPartition, condition: str, dim: int, count: int, chunk: int) -> GaussBernoulliRBM:
    """Return the models of a chunk: the same for all methods, and for "standard" and "matched".

    Parameters
    ----------
    count
        Models in the chunk.
    chunk
        The chunk's number.
    """
    if condition == "fixed":
        one = random_rbm(dim, p.n_hidden, stream(p.seed, NAME, f"fixed-model-{dim}", 0))
        return GaussBernoulliRBM(
            one.coupling.repeat(count, 1, 1),
            one.bias_x.repeat(count, 1),
            one.bias_h.repeat(count, 1),
        )
    generator = stream(p.seed, NAME, f"models-{dim}", chunk)
    return random_rbm(dim, p.n_hidden, generator, batch_shape=(count,))


EXPERIMENT = Experiment(NAME, RBMPartition, cells)
