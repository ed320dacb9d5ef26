"""Section 4's parameters, its models, and the initial distributions."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field

from steinis_lib.companion.parameters import Parameters, Rising
from steinis_lib.companion.problems.rbm import GaussBernoulliRBM, random_rbm
from steinis_lib.companion.runner.experiment import stream
from steinis_lib.targets.base import Gaussian

NAME = "rbm"
CONDITIONS = ("standard", "matched", "fixed", "wide", "bias")


class RBMPartition(Parameters):
    """Sizes and settings; the defaults are the paper's, but for the number of trials."""

    QUICK: ClassVar[dict[str, Any]] = {
        "n_trials": 6,
        "n_trials_extra": 4,
        "n_trials_other": 4,
        "n_trials_starts": 3,
        "n_trials_between": 3,
        "n_trials_long": 3,
        "trials_per_chunk": 6,
        "dims": (5, 10, 20),
        "dims_between": (15,),
        "n_leaders": 50,
        "n_followers": 50,
        "transitions": (10, 30, 60),
        "n_candidates": 12,
        "tuning_repeats": 2,
        "determinant_transitions": 10,
        "determinant_trials": 2,
    }

    n_trials: int = Field(100, ge=2, description="condition standard; the paper has 500")
    n_trials_extra: int = Field(40, ge=2, description="the same, of variants that few claims need")
    n_trials_other: int = Field(30, ge=2, description="conditions matched and fixed")
    n_trials_starts: int = Field(20, ge=2, description="conditions wide and bias")
    n_trials_between: int = Field(15, ge=2, description="at dims_between")
    n_trials_long: int = Field(20, ge=2, description="at most so many of HAIS-10L, any condition")
    trials_per_chunk: int = Field(5, ge=1, description="trials computed and stored together")
    dims: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Rising] = Field(
        (10, 20, 50, 100), min_length=1, description="d at which methods are tuned, rising"
    )
    dims_between: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Rising] = Field(
        (30, 40, 60, 70, 80, 90), description="more d, with the settings of the nearest tuned one"
    )
    n_hidden: int = Field(10, ge=1, le=15, description="d', hidden units")
    n_leaders: int = Field(100, ge=2, description="|A| of SteinIS")
    n_followers: int = Field(100, ge=5, description="importance samples of each method")
    transitions: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Rising] = Field(
        (50, 100, 200, 500, 1000, 1500), min_length=1, description="at the largest d, rising"
    )
    n_candidates: int = Field(24, ge=9, description="settings tried for each tuned method")
    tuning_repeats: int = Field(3, ge=2, description="pilot models for each candidate")
    determinant_steps: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        (0.03, 0.1, 0.3, 1.0), min_length=1, description="ε at which determinants are compared"
    )
    determinant_transitions: int = Field(100, ge=1, description="the same: transitions")
    determinant_trials: int = Field(8, ge=2, description="the same: trials")


def initial(condition: str, target: GaussBernoulliRBM) -> Gaussian:
    """Return q_0 of a condition; "standard" and "fixed" have N(0, I)."""
    if condition == "matched":
        return Gaussian(target.mean, torch.linalg.cholesky(target.covariance))
    if condition == "bias":
        return Gaussian.isotropic(target.bias_x)
    origin = torch.zeros(target.dim, dtype=target.coupling.dtype)
    return Gaussian.isotropic(origin, 2.0 if condition == "wide" else 1.0)


def models(p: RBMPartition, condition: str, dim: int, count: int, chunk: int) -> GaussBernoulliRBM:
    """Return the models of a chunk: the same for all methods, and in all conditions but "fixed".

    A whole chunk is drawn, and its first `count` models are taken, so that methods with fewer
    trials meet the same ones.

    Parameters
    ----------
    count
        Models to return.
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
    size = max(count, p.trials_per_chunk)
    drawn = random_rbm(dim, p.n_hidden, generator, batch_shape=(size,))
    return GaussBernoulliRBM(drawn.coupling[:count], drawn.bias_x[:count], drawn.bias_h[:count])
