"""Section 2's parameters, its mixtures, and the expectations that are estimated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from steinis_lib.companion.parameters import Parameters, Rising
from steinis_lib.companion.runner.experiment import stream
from steinis_lib.targets.base import Gaussian
from steinis_lib.targets.mixtures import GaussianMixture, random_mixture

NAME = "gmm-estimation"
QUANTITIES = ("x1", "x2", "x1²", "x2²", "cos1", "cos2")
MIXTURES = ("easy", "hard")
"""The kinds of mixture that meet all methods."""
EXTRA = ("fixed", "mild")
"""The kinds that meet fewer methods, in fewer trials."""
Functions = Callable[[Tensor], Tensor]


class GMMEstimation(Parameters):
    """Sizes and settings; the defaults are the paper's where it states them."""

    QUICK: ClassVar[dict[str, Any]] = {
        "n_trials": 20,
        "n_trials_is": 40,
        "n_trials_extra": 10,
        "trials_per_chunk": 20,
        "n_leaders": 50,
        "n_transitions": 40,
        "sizes": (10, 30, 100, 300),
        "interacting_sizes": (10, 30, 100),
        "n_candidates": 12,
        "tuning_repeats": 2,
        "tuning_particles": 50,
    }

    n_trials: int = Field(500, ge=2, description="independent mixtures and particles")
    n_trials_is: int = Field(2000, ge=2, description="the same for plain importance sampling")
    n_trials_extra: int = Field(
        100, ge=2, description="the same for mixtures and methods that only some readings need"
    )
    trials_per_chunk: int = Field(5, ge=1, description="trials computed and stored together")
    n_components: int = Field(10, ge=1, description="components of the mixture")
    easy_spread: float = Field(2.0, ge=0, description="easy mixture: means uniform on ±spread")
    easy_scale: float = Field(1.0, gt=0, description="easy mixture: σ of each component")
    hard_spread: float = Field(4.0, ge=0, description="hard mixture: means uniform on ±spread")
    hard_scale: float = Field(0.7, gt=0, description="hard mixture: σ of each component")
    mild_spread: float = Field(1.0, ge=0, description="mild mixture: means uniform on ±spread")
    mild_scale: float = Field(1.0, gt=0, description="mild mixture: σ of each component")
    n_leaders: int = Field(100, ge=2, description="|A| of SteinIS")
    n_transitions: int = Field(800, ge=1, description="of SteinIS, HAIS, AIS, SVGD and path")
    sizes: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Rising] = Field(
        (10, 20, 50, 100, 200, 500, 1000), min_length=2, description="|B|, rising"
    )
    interacting_sizes: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Rising] = Field(
        (10, 20, 50, 100, 200), min_length=2, description="particles of SVGD and path"
    )
    interacting_work: int = Field(
        100,
        ge=2,
        description="SVGD with n > this takes a share (this/n)² of the trials, at least 2",
    )
    n_candidates: int = Field(24, ge=9, description="settings tried for each tuned method")
    tuning_repeats: int = Field(
        4, ge=2, description="pilot mixtures; each candidate has two runs on each of them"
    )
    tuning_particles: int = Field(100, ge=2, description="particles (or followers) of a pilot")


def problems(
    p: GMMEstimation, mixture: str, count: int, number: int
) -> tuple[GaussianMixture, Functions, Tensor]:
    """Return the problems of chunk `number`, which are the same for all methods.

    Returns
    -------
    target
        A mixture for each of the `count` trials.
    functions
        `functions_of`, with a cosine for each trial.
    exact
        The exact expectations, ``(count, 6)``.
    """
    target = mixtures(p, mixture, count, stream(p.seed, NAME, f"{mixture}-targets", number))
    generator = stream(p.seed, NAME, "functions", number)
    w = torch.randn(count, 1, 1, generator=generator, dtype=torch.float64)
    b = torch.rand(count, 1, 1, generator=generator, dtype=torch.float64)
    return target, functions_of(w, b), exact_values(target, w, b)


def mixtures(
    p: GMMEstimation, mixture: str, count: int, generator: torch.Generator
) -> GaussianMixture:
    """Return mixtures of a kind, ``(count,)``: random ones, or for "fixed" the same every time.

    The fixed one is the first that its own stream gives, so that `generator` is not used.
    """
    if mixture == "fixed":
        one = _random(p, "easy", 1, stream(p.seed, NAME, "fixed-targets", 0))
        parts = (one.log_weights, one.means, one.scales)
        return GaussianMixture(*(part.expand(count, *part.shape[1:]) for part in parts))
    return _random(p, mixture, count, generator)


def _random(
    p: GMMEstimation, mixture: str, count: int, generator: torch.Generator
) -> GaussianMixture:
    spread, scale = {
        "easy": (p.easy_spread, p.easy_scale),
        "hard": (p.hard_spread, p.hard_scale),
        "mild": (p.mild_spread, p.mild_scale),
    }[mixture]
    return random_mixture(
        p.n_components, 2, generator, batch_shape=(count,), spread=spread, scale=scale
    )


def start() -> Gaussian:
    """Return q_0 = N(0, I)."""
    return Gaussian.isotropic(torch.zeros(2, dtype=torch.float64))


def functions_of(w: Tensor, b: Tensor) -> Functions:
    """Return x ↦ (x_j, x_j², cos(w x_j + b)), ``(trials, n, 2)`` to ``(trials, n, 6)``."""
    return lambda x: torch.cat([x, x.square(), torch.cos(w * x + b)], -1)


def exact_values(target: GaussianMixture, w: Tensor, b: Tensor) -> Tensor:
    """Return the exact expectations of `functions_of`, ``(trials, 6)``."""
    pi = target.log_weights.exp().unsqueeze(-1)
    damped = torch.exp(-0.5 * (w * target.scales).square())
    cosine = (pi * torch.cos(w * target.means + b) * damped).sum(1)
    return torch.cat([target.mean, target.second_moment, cosine], -1)
