"""Estimating expectations and Z on 2-D mixtures (section 5.1, Figure 3).

All methods but SVGD draw independent particles, given the leaders. One run of such a method gives
all sample sizes at once: the first |B| of its particles are a sample of size |B|. SVGD's particles
depend on each other, so there is a run for each size; path integration (Algorithm 2) uses the same
run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, ClassVar

import torch
import xarray as xr
from pydantic import Field
from torch import Tensor

from steinis_lib.companion.methods import (
    Setting,
    annealing_candidates,
    build_sampler,
    readings,
    tuned_as,
)
from steinis_lib.companion.parameters import Parameters, Rising
from steinis_lib.companion.runner.experiment import Cell, Chunk, Experiment, stream
from steinis_lib.companion.sections.s2_mixtures.direct import direct_sampling
from steinis_lib.companion.tuning import chosen, tune_sampler, tuning_record
from steinis_lib.importance import ImportanceSample
from steinis_lib.path_integration import PathIntegration
from steinis_lib.schedules import StepSize
from steinis_lib.stein.kernels import RBF
from steinis_lib.targets.base import Gaussian
from steinis_lib.targets.mixtures import GaussianMixture, random_mixture

NAME = "gmm-estimation"
QUANTITIES = ("x1", "x2", "x1²", "x2²", "cos1", "cos2")
MIXTURES = ("easy", "hard")
TUNED = ("steinis", "steinis-wide", "hais-full", "hais-partial", "ais")

Functions = Callable[[Tensor], Tensor]


class GMMEstimation(Parameters):
    """Sizes and settings; the defaults are the paper's where it states them."""

    QUICK: ClassVar[dict[str, Any]] = {
        "n_trials": 20,
        "n_trials_is": 40,
        "trials_per_chunk": 20,
        "n_leaders": 50,
        "n_transitions": 40,
        "sizes": (10, 30, 100, 300),
        "interacting_sizes": (10, 30, 100),
        "tuning_repeats": 2,
        "tuning_particles": 50,
    }

    n_trials: int = Field(500, ge=2, description="independent mixtures and particles")
    n_trials_is: int = Field(2000, ge=2, description="the same for plain importance sampling")
    trials_per_chunk: int = Field(5, ge=1, description="trials computed and stored together")
    n_components: int = Field(10, ge=1, description="components of the mixture")
    easy_spread: float = Field(2.0, ge=0, description="easy mixture: means uniform on ±spread")
    easy_scale: float = Field(1.0, gt=0, description="easy mixture: σ of each component")
    hard_spread: float = Field(4.0, ge=0, description="hard mixture: means uniform on ±spread")
    hard_scale: float = Field(0.7, gt=0, description="hard mixture: σ of each component")
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
    tuning_repeats: int = Field(4, ge=2, description="pilot runs for each of the 12 candidates")
    tuning_particles: int = Field(100, ge=2, description="particles (or followers) of a pilot")


def candidates(method: str) -> list[Setting]:
    """Return twelve candidates for every tuned method, so that all have the same budget."""
    if method == "steinis":  # the paper's own family: α and β, its bandwidth rule
        return [Setting(a, b, 1.0) for a in (0.1, 0.3, 1.0, 3.0) for b in (0.0, 0.3, 0.6)]
    if method == "steinis-wide":  # and a multiplier of the bandwidth
        return [Setting(a, 0.0, m) for a in (0.1, 0.3, 0.6) for m in (2.0, 5.0, 10.0, 20.0)]
    return annealing_candidates(method)


def label(mixture: str, method: str, n: int | None = None) -> str:
    """Return the label of a method's cell on a mixture; `n` is the number of SVGD's particles."""
    return f"{mixture}-{method}" if n is None else f"{mixture}-{method}-{n}"


def tuning_label(mixture: str, method: str) -> str:
    """Return the label of the pilot cell that tunes a method on a mixture."""
    return f"{mixture}-tuning-{method}"


def cells(p: GMMEstimation) -> list[Cell]:
    """Return, for both mixtures, the tuning of methods, all methods, and SVGD at each size."""
    found = []
    for mixture in MIXTURES:
        for method in TUNED:
            tune = partial(tune_method, mixture=mixture, method=method)
            found.append(Cell(tuning_label(mixture, method), 1, tune))
        for method in ("direct", "is", *TUNED, "ais-unadjusted"):
            like = tuned_as(method)
            found.append(
                Cell(
                    label(mixture, method),
                    p.n_trials_is if method == "is" else p.n_trials,
                    partial(errors_of, mixture=mixture, method=method),
                    p.trials_per_chunk,
                    (tuning_label(mixture, like),) if like in TUNED else (),
                )
            )
        for n in p.interacting_sizes:
            found.append(
                Cell(
                    label(mixture, "svgd", n),
                    interacting_trials(p, n),
                    partial(svgd_errors, mixture=mixture, n=n),
                    p.trials_per_chunk,
                    (tuning_label(mixture, "steinis-wide"),),
                    method=label(mixture, "svgd"),
                )
            )
    return found


def interacting_trials(p: GMMEstimation, n: int) -> int:
    """Return the trials of SVGD with n particles, whose cost grows as n²."""
    return max(2, min(p.n_trials, int(p.n_trials * (p.interacting_work / n) ** 2)))


def tune_method(p: GMMEstimation, chunk: Chunk, mixture: str, method: str) -> xr.Dataset:
    """Try all candidates of a method on pilot mixtures, which are the same for all methods."""
    target = mixtures(p, mixture, p.tuning_repeats, chunk.stream(f"{mixture}-pilots"))
    trials = tune_sampler(
        candidates(method),
        lambda setting: build_sampler(
            method, target, start(), setting, p.n_transitions, n_leaders=p.n_leaders,
            n_followers=p.tuning_particles,
        ),
        p.n_transitions,
        chunk.stream(f"{mixture}-{method}-pilots"),
        repeats=2,
        batch_shape=(p.tuning_repeats,),
        folded_allowed=0.5,
    )  # fmt: skip
    return tuning_record(trials)


def errors_of(p: GMMEstimation, chunk: Chunk, mixture: str, method: str) -> xr.Dataset:
    """Compute the errors of a method's estimates in one chunk, for all sample sizes."""
    target, functions, exact = problems(p, mixture, chunk.n_trials, chunk.number)
    sample = _draw(p, chunk, mixture, method, target)
    cuts = [ImportanceSample(sample.particles[:, :k], sample.log_w[:, :k]) for k in p.sizes]
    found = {"error": torch.stack([c.expectation(functions)[0] - exact for c in cuts], 1)}
    if method.startswith("steinis"):  # plain averages show what the proposal is like
        found["error_unweighted"] = torch.stack(
            [functions(c.particles).mean(1) - exact for c in cuts], 1
        )
    found["log_z"] = torch.stack([c.log_z for c in cuts], 1)
    found["ess"] = torch.stack([c.ess / c.n for c in cuts], 1)
    found["pareto_k"] = cuts[-1].pareto_k
    dims = ("trial", "size", "quantity")
    return xr.Dataset(
        {name: (dims[: values.ndim], values.numpy()) for name, values in found.items()},
        coords={"size": list(p.sizes), "quantity": list(QUANTITIES)},
    )


def _draw(
    p: GMMEstimation, chunk: Chunk, mixture: str, method: str, target: GaussianMixture
) -> ImportanceSample:
    """Draw the largest sample by a method, weighted, ``(trials, max(sizes), 2)``."""
    if method == "direct":
        return direct_sampling(target, (chunk.n_trials, max(p.sizes)), chunk.generator())
    tuning = tuning_label(mixture, tuned_as(method))
    (reading,) = readings(
        method, target, start(), None if method == "is" else chosen(chunk.pilots[tuning]),
        [p.n_transitions], chunk.generator(), batch_shape=(chunk.n_trials,),
        n_leaders=p.n_leaders, n_followers=max(p.sizes),
    )  # fmt: skip
    return reading.sample


def svgd_errors(p: GMMEstimation, chunk: Chunk, mixture: str, n: int) -> xr.Dataset:
    """Compute the errors of SVGD's plain averages, and log Z by Algorithm 2 along the same run.

    The setting is that of "steinis-wide", the richest family, because the maps are the same.
    """
    target, functions, exact = problems(p, mixture, chunk.n_trials, chunk.number)
    setting = chosen(chunk.pilots[tuning_label(mixture, "steinis-wide")])
    method = PathIntegration(
        target, start(), kernel=RBF(multiplier=setting.multiplier or 1.0),
        step_size=StepSize(setting.alpha, setting.beta or 0.0), n_particles=n,
    )  # fmt: skip
    state = method.init(chunk.generator(), batch_shape=(chunk.n_trials,))
    end = method.run(state, p.n_transitions)
    found = method.estimate(end)
    error = functions(end.particles).mean(1) - exact
    log_z = torch.stack([found.log_z, found.log_z_u], -1)
    return xr.Dataset(
        {
            "error": (("trial", "size", "quantity"), error.unsqueeze(1).numpy()),
            "log_z": (("trial", "size", "statistic"), log_z.unsqueeze(1).numpy()),
        },
        coords={"size": [n], "statistic": ["v", "u"], "quantity": list(QUANTITIES)},
    )


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
    """Return random mixtures, "easy" or "hard" ones, ``(count,)``."""
    spread, scale = {"easy": (p.easy_spread, p.easy_scale), "hard": (p.hard_spread, p.hard_scale)}[
        mixture
    ]
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


EXPERIMENT = Experiment(NAME, GMMEstimation, cells)
