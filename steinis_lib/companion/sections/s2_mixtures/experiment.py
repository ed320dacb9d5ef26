"""Estimating expectations and Z on 2-D mixtures (section 5.1, Figure 3).

All methods but SVGD draw independent particles, given the leaders. One run of such a method gives
all sample sizes at once: the first |B| of its particles are a sample of size |B|. SVGD's particles
depend on each other, so there is a run for each size; path integration (Algorithm 2) uses the same
run.

Four kinds of mixture. "easy" and "hard" ones are drawn anew for each trial, and meet all methods.
Two more serve readings of the paper, with fewer trials and methods: "fixed", one easy mixture for
all trials, and "mild", whose components nearly coincide.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, ClassVar

import torch
import xarray as xr
from pydantic import Field
from torch import Tensor

from steinis_lib.companion.method_readings import readings
from steinis_lib.companion.methods import build_sampler
from steinis_lib.companion.parameters import Parameters, Rising
from steinis_lib.companion.runner.experiment import Cell, Chunk, Experiment, stream
from steinis_lib.companion.sections.s2_mixtures.direct import direct_sampling
from steinis_lib.companion.settings import FAMILIES, axes_of, tuned_as
from steinis_lib.companion.tuning import tune_sampler
from steinis_lib.companion.tuning_records import chosen, tuning_record
from steinis_lib.importance import ImportanceSample
from steinis_lib.path_integration import PathIntegration
from steinis_lib.schedules import StepSize
from steinis_lib.stein.kernels import RBF
from steinis_lib.targets.base import Gaussian
from steinis_lib.targets.mixtures import GaussianMixture, random_mixture

NAME = "gmm-estimation"
QUANTITIES = ("x1", "x2", "x1²", "x2²", "cos1", "cos2")
MIXTURES = ("easy", "hard")
"""The kinds of mixture that meet all methods."""
EXTRA = ("fixed", "mild")
"""The kinds that meet fewer methods, in fewer trials."""
TUNED = (*FAMILIES, "hais-full", "hais-partial", "ais")
METHODS = ("direct", "is", *TUNED, "ais-unadjusted")
"""All methods but SVGD."""
ON_EXTRA = ("direct", *FAMILIES, "hais-full")
"""Those of them that are run on the `EXTRA` kinds."""
FEWER = {
    "easy": ("steinis-double", "svgd-rule"),
    "hard": ("steinis", "steinis-double", "steinis-adagrad", "ais", "ais-unadjusted", "svgd"),
}
"""The methods that have fewer trials on main mixtures, because only some readings need them."""
SVGD = {"svgd": "steinis-wide", "svgd-rule": "steinis"}
"""SVGD's two variants: the method whose setting each takes, because the maps are the same."""

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


def label(mixture: str, method: str, n: int | None = None) -> str:
    """Return the label of a method's cell on a mixture; `n` is the number of SVGD's particles."""
    return f"{mixture}-{method}" if n is None else f"{mixture}-{method}-{n}"


def tuning_label(mixture: str, method: str) -> str:
    """Return the label of the pilot cell that tunes a method on a mixture."""
    return f"{mixture}-tuning-{method}"


def methods_on(mixture: str) -> tuple[str, ...]:
    """Return the methods that are run on a kind of mixture, without SVGD."""
    return METHODS if mixture in MIXTURES else ON_EXTRA


def svgd_sizes(p: GMMEstimation, mixture: str, variant: str) -> tuple[int, ...]:
    """Return the numbers of particles of a variant of SVGD on a kind of mixture; () for none.

    "svgd-rule" serves readings on easy mixtures alone. The largest sizes are for main mixtures.
    """
    if variant == "svgd" and mixture in MIXTURES:
        return p.interacting_sizes
    if variant == "svgd" or mixture == "easy":
        return tuple(n for n in p.interacting_sizes if n <= p.interacting_work)
    return ()


def trials(p: GMMEstimation, mixture: str, method: str) -> int:
    """Return the trials of a method on a kind of mixture; `method` may be a variant of SVGD."""
    if mixture in EXTRA or method in FEWER[mixture]:
        return min(p.n_trials, p.n_trials_extra)
    return p.n_trials_is if method == "is" else p.n_trials


def interacting_trials(
    p: GMMEstimation, n: int, mixture: str = "easy", variant: str = "svgd"
) -> int:
    """Return the trials of SVGD with n particles, whose cost grows as n²."""
    most = trials(p, mixture, variant)
    return max(2, min(most, int(most * (p.interacting_work / n) ** 2)))


def cells(p: GMMEstimation) -> list[Cell]:
    """Return, for each kind of mixture, the tuning of methods, all methods, and SVGD's sizes."""
    found = []
    for mixture in (*MIXTURES, *EXTRA):
        for method in methods_on(mixture):
            if method in TUNED:
                tune = partial(tune_method, mixture=mixture, method=method)
                found.append(Cell(tuning_label(mixture, method), 1, tune))
            like = tuned_as(method)
            found.append(
                Cell(
                    label(mixture, method),
                    trials(p, mixture, method),
                    partial(errors_of, mixture=mixture, method=method),
                    p.trials_per_chunk,
                    (tuning_label(mixture, like),) if like in TUNED else (),
                )
            )
        found += [
            Cell(
                label(mixture, variant, n),
                interacting_trials(p, n, mixture, variant),
                partial(svgd_errors, mixture=mixture, n=n, variant=variant),
                p.trials_per_chunk,
                (tuning_label(mixture, like),),
                method=label(mixture, variant),
            )
            for variant, like in SVGD.items()
            for n in svgd_sizes(p, mixture, variant)
        ]
    return found


def tune_method(p: GMMEstimation, chunk: Chunk, mixture: str, method: str) -> xr.Dataset:
    """Search for a method's setting on pilot mixtures, which are the same for all methods.

    The pilots of "fixed" are runs on that one mixture.
    """
    target = mixtures(p, mixture, p.tuning_repeats, chunk.stream(f"{mixture}-pilots"))
    found = tune_sampler(
        axes_of(method),
        lambda setting: build_sampler(
            method, target, start(), setting, p.n_transitions, n_leaders=p.n_leaders,
            n_followers=p.tuning_particles,
        ),
        p.n_transitions,
        chunk.stream(f"{mixture}-{method}-pilots"),
        n_candidates=p.n_candidates,
        repeats=2,
        batch_shape=(p.tuning_repeats,),
    )  # fmt: skip
    return tuning_record(found)


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
    if reading.lost is not None and bool(reading.lost.any()):
        raise FloatingPointError(
            f"{method} diverges in {int(reading.lost.sum())} of {chunk.n_trials} trials of "
            f"{chunk.name}; expected a setting under which it does not"
        )
    return reading.sample


def svgd_errors(
    p: GMMEstimation, chunk: Chunk, mixture: str, n: int, variant: str = "svgd"
) -> xr.Dataset:
    """Compute the errors of SVGD's plain averages, and log Z by Algorithm 2 along the same run."""
    target, functions, exact = problems(p, mixture, chunk.n_trials, chunk.number)
    setting = chosen(chunk.pilots[tuning_label(mixture, SVGD[variant])])
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


EXPERIMENT = Experiment(NAME, GMMEstimation, cells)
