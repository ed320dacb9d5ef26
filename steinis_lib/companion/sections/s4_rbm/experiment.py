"""Log Z of Gauss-Bernoulli RBMs (section 5.3, Figure 5).

Five conditions. In "standard" a model is redrawn in each trial and q_0 = N(0, I). Three have the
same models and another q_0: "matched" N(E_p x, Cov_p x), whose moments a user could know from a
short pilot; "wide" N(0, 4 I); "bias" N(b, I) with the model's own b. In "fixed" one model serves
for all trials, and q_0 = N(0, I). The first is run at every dimension, the others at the largest,
"wide" and "bias" with few methods. One run of SteinIS gives all numbers of transitions. Annealing
needs a run for each.

Methods are tuned at each d of `dims`, for each q_0. At the d of `dims_between`, which fill up the
curves, they take the settings of the nearest d that was tuned, the larger one of two.
"""

from __future__ import annotations

from functools import partial

import torch
import xarray as xr
from torch import Tensor

from steinis_lib.companion.method_readings import Reading, along_transitions, readings
from steinis_lib.companion.methods import Sampler, build_sampler
from steinis_lib.companion.problems.rbm import GaussBernoulliRBM, random_rbm
from steinis_lib.companion.runner.experiment import Cell, Chunk, Experiment
from steinis_lib.companion.sections.s4_rbm.determinants import DETERMINANT, compare_determinants
from steinis_lib.companion.sections.s4_rbm.problem import (
    CONDITIONS,
    NAME,
    RBMPartition,
    initial,
    models,
)
from steinis_lib.companion.settings import FAMILIES, METHODS, TUNED, Setting, axes_of, tuned_as
from steinis_lib.companion.tuning import tune_sampler
from steinis_lib.companion.tuning_records import chosen, tuning_record
from steinis_lib.stein.kernels import RBF
from steinis_lib.steinis import SteinISInfo, SteinISState

MAIN = ("is", "steinis", "steinis-wide", "hais-1l", "ais")
"""The methods that have all trials in condition "standard"."""
OTHER_STARTS = ("is", "steinis-wide", "hais-1l", "ais")
"""The methods of conditions "wide" and "bias"."""
BETWEEN = (*FAMILIES, "hais-1l", "hais-1l-partial", "ais", "ais-unadjusted")
"""The methods at the d of `dims_between`."""
DETERMINANTS = "determinants"
"""The label of the cell that compares determinants."""


def label(condition: str, method: str, dim: int) -> str:
    """Return the label of a method's cell under one condition."""
    return f"{condition}-{method}-{dim}"


def tuning_label(condition: str, method: str, dim: int) -> str:
    """Return the label of the cell that tunes a method for one condition."""
    return label(condition, f"tuning-{method}", dim)


def cells(p: RBMPartition) -> list[Cell]:
    """Return the comparison of determinants, and tuning and trials of all methods."""
    found = [Cell(DETERMINANTS, p.determinant_trials, compare_determinants)]
    for condition, dim in places(p):
        if condition != "fixed" and dim in p.dims:
            found += [
                Cell(
                    tuning_label(condition, method, dim),
                    1,
                    partial(tune_method, condition=condition, method=method, dim=dim),
                    method=f"{condition}-tuning-{method}",
                )
                for method in methods(p, condition, dim)
                if method in TUNED
            ]
        for method in methods(p, condition, dim):
            tuning = tuning_of(p, condition, method, dim)
            found.append(
                Cell(
                    label(condition, method, dim),
                    trials(p, condition, method, dim),
                    partial(estimate, condition=condition, method=method, dim=dim),
                    p.trials_per_chunk,
                    pilots=() if tuning is None else (tuning,),
                    method=f"{condition}-{method}",
                )
            )
    return found


def all_dims(p: RBMPartition) -> list[int]:
    """Return every d of condition "standard", tuned or not, rising."""
    between = [d for d in p.dims_between if p.dims[0] < d < p.dims[-1]]
    return sorted({*p.dims, *between})


def places(p: RBMPartition) -> list[tuple[str, int]]:
    """Return each condition with each d at which it is run."""
    standard = [("standard", dim) for dim in all_dims(p)]
    return standard + [(condition, p.dims[-1]) for condition in CONDITIONS[1:]]


def methods(p: RBMPartition, condition: str, dim: int) -> tuple[str, ...]:
    """Return the methods that are run under a condition at one d."""
    if condition in ("wide", "bias"):
        return OTHER_STARTS
    return METHODS if dim in p.dims else BETWEEN


def tuning_of(p: RBMPartition, condition: str, method: str, dim: int) -> str | None:
    """Return the label of the cell that chose a method's setting; plain IS has none.

    A fixed model takes the settings of redrawn ones.
    """
    if method == "is":
        return None
    tuned_at = min(p.dims, key=lambda d: (abs(d - dim), -d))
    return tuning_label(
        "standard" if condition == "fixed" else condition, tuned_as(method), tuned_at
    )


def trials(p: RBMPartition, condition: str, method: str, dim: int) -> int:
    """Return how many trials a method gets."""
    if dim not in p.dims:
        n = p.n_trials_between
    elif condition == "standard":
        n = p.n_trials if method in MAIN else min(p.n_trials, p.n_trials_extra)
    else:
        n = p.n_trials_starts if condition in ("wide", "bias") else p.n_trials_other
    return min(n, p.n_trials_long) if method == "hais-10l" else n


def estimate(p: RBMPartition, chunk: Chunk, *, condition: str, method: str, dim: int) -> xr.Dataset:
    """Run one chunk of a method on the models of that chunk."""
    target = models(p, condition, dim, chunk.n_trials, chunk.number)
    tuning = tuning_of(p, condition, method, dim)
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
    if reading.steinis is not None:
        found |= _measured_maps(*reading.steinis)
    return reading.or_nothing(found)


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


def tune_method(
    p: RBMPartition, chunk: Chunk, *, condition: str, method: str, dim: int
) -> xr.Dataset:
    """Search for a method's setting on pilot models, which no trial uses.

    HAIS-10L takes a tenth of the transitions, so that its pilots cost what those of others do. For
    "steinis-leaders", whose mean log-weight is no bound, the error of log Ẑ decides.
    """
    pilot_models = chunk.stream(f"pilot-models-{dim}", 0)
    target = random_rbm(dim, p.n_hidden, pilot_models, batch_shape=(p.tuning_repeats,))
    q0, k = initial(condition, target), p.transitions[-1]
    if method == "hais-10l":
        k = max(1, k // 10)

    def build(setting: Setting) -> Sampler:
        return build_sampler(
            method, target, q0, setting, k, n_leaders=p.n_leaders, n_followers=p.n_followers,
            determinant=DETERMINANT,
        )  # fmt: skip

    tried = tune_sampler(
        axes_of(method), build, k, chunk.stream(f"{label(condition, method, dim)}-pilots", 0),
        n_candidates=p.n_candidates, repeats=p.tuning_repeats, reference=target.log_z,
        merit="error" if method == "steinis-leaders" else "mean-log-w",
    )  # fmt: skip
    return tuning_record(tried)


EXPERIMENT = Experiment(NAME, RBMPartition, cells)
