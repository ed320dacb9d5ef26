"""Estimating expectations and Z on 2-D mixtures (section 5.1, Figure 3).

One run of each method gives all sample sizes at once: independent draws are cut to their first
|B|. SVGD and path integration are one run (Algorithm 2 moves SVGD's particles), and since these
depend on each other there is a run for each size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    tuning_record,
)
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.pilots import annealing_pilot, steinis_pilot
from steinis_lib.companion.runner.engine import Experiment, Task, stream
from steinis_lib.companion.sections.s2_mixtures.direct import direct_sampling
from steinis_lib.companion.tuning import Pilot, Trial, tune
from steinis_lib.importance import ImportanceSample, importance_sampling
from steinis_lib.path_integration import PathIntegration
from steinis_lib.schedules import StepSize
from steinis_lib.stein.kernels import RBF
from steinis_lib.steinis import SteinIS
from steinis_lib.targets.base import Gaussian
from steinis_lib.targets.mixtures import GaussianMixture, random_mixture

NAME = "gmm-estimation"
QUANTITIES = ("x1", "x2", "x1²", "x2²", "cos1", "cos2")
MIXTURES = ("easy", "hard")
TUNED = ("steinis", "steinis-wide", "hais-full", "hais-partial", "ais")


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
    sizes: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        (10, 20, 50, 100, 200, 500, 1000), min_length=2, description="|B|, rising"
    )
    interacting_sizes: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        (10, 20, 50, 100, 200), min_length=2, description="particles of SVGD and path"
    )
    interacting_work: int = Field(
        100,
        ge=2,
        description="SVGD with n > this takes a share (this/n)² of the trials, at least 2",
    )
    tuning_repeats: int = Field(4, ge=2, description="pilot runs for each of the 12 candidates")
    tuning_particles: int = Field(100, ge=2, description="particles (or followers) of a pilot")

    @model_validator(mode="after")
    def _sizes_rise(self) -> GMMEstimation:
        for name in ("sizes", "interacting_sizes"):
            values = getattr(self, name)
            if list(values) != sorted(set(values)):
                raise ValueError(f"{name}: must rise strictly, got {values}")
        return self


def candidates(method: str) -> list[Setting]:
    """Return twelve candidates for every tuned method, so that all have the same budget."""
    if method == "steinis":  # the paper's own family: α and β, its bandwidth rule
        return [Setting(a, b, 1.0) for a in (0.1, 0.3, 1.0, 3.0) for b in (0.0, 0.3, 0.6)]
    if method == "steinis-wide":  # and a multiplier of the bandwidth
        return [Setting(a, 0.0, m) for a in (0.1, 0.3, 0.6) for m in (2.0, 5.0, 10.0, 20.0)]
    return annealing_candidates(method)


def tasks(p: GMMEstimation) -> list[Task]:
    """Return every method's chunks on both mixtures."""
    methods = ("direct", "is", *TUNED, "ais-unadjusted")
    found = []
    for mixture in MIXTURES:
        for method in methods:
            found += _chunks(p, f"{mixture}-{method}", p.n_trials_is if method == "is" else None)
        for n in p.interacting_sizes:
            found += _chunks(p, f"{mixture}-svgd-{n}", interacting_trials(p, n))
    return found


def pilots(p: GMMEstimation) -> list[Task]:
    """Return the tuning of each method on each mixture, which comes first."""
    return [Task(f"{mixture}-tuning-{name}", 0) for mixture in MIXTURES for name in TUNED]


def interacting_trials(p: GMMEstimation, n: int) -> int:
    """Return the trials of SVGD with n particles, whose cost grows as n²."""
    return max(2, min(p.n_trials, int(p.n_trials * (p.interacting_work / n) ** 2)))


def _chunks(p: GMMEstimation, method: str, n_trials: int | None = None) -> list[Task]:
    return [Task(method, c) for c in range(-(-(n_trials or p.n_trials) // p.trials_per_chunk))]


def run_task(
    p: GMMEstimation, task: Task, pilots: Mapping[str, xr.Dataset] | None = None
) -> xr.Dataset:
    """Run one chunk of one method on one mixture, or the tuning of one on it."""
    mixture, _, method = task.method.partition("-")
    if method.startswith("tuning-"):
        return tuning_record(_tune(p, mixture, method.removeprefix("tuning-")))
    assert pilots is not None
    records = {name: pilots[f"{mixture}-tuning-{name}"] for name in TUNED}
    name, _, n = method.partition("svgd-")
    total = p.n_trials_is if method == "is" else interacting_trials(p, int(n)) if n else p.n_trials
    first = task.chunk * p.trials_per_chunk
    count = min(p.trials_per_chunk, total - first)
    target = mixtures(p, mixture, count, stream(p.seed, NAME, f"{mixture}-targets", task.chunk))
    functions = stream(p.seed, NAME, "functions", task.chunk)
    w = torch.randn(count, 1, 1, generator=functions, dtype=torch.float64)
    b = torch.rand(count, 1, 1, generator=functions, dtype=torch.float64)
    exact = exact_values(target, w, b)
    generator = stream(p.seed, NAME, task.method, task.chunk)
    dims = ("trial", "size", "quantity")
    coords: dict[str, Any] = {"trial": range(first, first + count), "quantity": list(QUANTITIES)}

    if n:
        values, log_z = _svgd_and_path(p, records, target, int(n), generator, w, b)
        coords |= {"size": [int(n)], "statistic": ["v", "u"]}
        variables: dict[str, Any] = {
            "error": (dims, (values - exact).unsqueeze(1).numpy()),
            "log_z": (("trial", "size", "statistic"), log_z.unsqueeze(1).numpy()),
        }
        return xr.Dataset(variables, coords=coords)

    sample = _draw(p, records, method, target, generator)
    coords["size"] = list(p.sizes)
    cuts = [ImportanceSample(sample.particles[:, :k], sample.log_w[:, :k]) for k in p.sizes]
    found = {
        "error": torch.stack([c.expectation(functions_of(w, b))[0] - exact for c in cuts], 1),
        "error_unweighted": torch.stack(
            [functions_of(w, b)(c.particles).mean(1) - exact for c in cuts], 1
        ),
        "log_z": torch.stack([c.log_z for c in cuts], 1),
        "ess": torch.stack([c.ess / c.n for c in cuts], 1),
        "pareto_k": cuts[-1].pareto_k,
    }
    if not method.startswith("steinis"):
        del found["error_unweighted"]  # asked for where the proposal itself is of interest
    shape = {"error": dims, "error_unweighted": dims, "pareto_k": dims[:1]}
    return xr.Dataset(
        {key: (shape.get(key, dims[:2]), value.numpy()) for key, value in found.items()}, coords
    )


def _draw(
    p: GMMEstimation,
    records: Mapping[str, xr.Dataset],
    method: str,
    target: GaussianMixture,
    generator: torch.Generator,
) -> ImportanceSample:
    """Draw the largest sample by a method, weighted, ``(trials, max(sizes), 2)``."""
    shape = (len(target.means), max(p.sizes))
    if method == "direct":
        return direct_sampling(target, shape, generator)
    if method == "is":
        return importance_sampling(target, _q0(), shape, generator)
    if method.startswith("steinis"):
        sampler = _steinis(target, chosen(records[method]))
        state = sampler.init(_q0(), p.n_leaders, shape[1], generator, shape[:1])
        return sampler.importance_sample(sampler.run(state, p.n_transitions))
    kind = "ais" if method == "ais-unadjusted" else method  # it takes the unbiased one's step
    setting = chosen(records[kind])
    chain = annealing(target, _q0(), method, setting, p.n_transitions)
    return chain.importance_sample(chain.run(chain.init(shape[1], generator, shape[:1])))


def _svgd_and_path(
    p: GMMEstimation,
    records: Mapping[str, xr.Dataset],
    target: GaussianMixture,
    n: int,
    generator: torch.Generator,
    w: Tensor,
    b: Tensor,
) -> tuple[Tensor, Tensor]:
    """SVGD's plain averages, and log Z by Algorithm 2 with both statistics of KSD²."""
    setting = chosen(records["steinis-wide"])  # the richest family; the maps are the same
    method = PathIntegration(
        target,
        RBF(multiplier=setting.multiplier or 1.0),
        StepSize(setting.alpha, setting.beta or 0.0),
    )
    state = method.init(_q0(), n, generator, (len(target.means),))
    end = method.run(state, p.n_transitions)
    return functions_of(w, b)(end.particles).mean(1), torch.stack([end.log_z, end.log_z_u], -1)


def _tune(p: GMMEstimation, mixture: str, method: str) -> list[Trial[Setting]]:
    """Try all candidates of a method on pilot mixtures of its own."""
    generator = stream(p.seed, NAME, f"{mixture}-{method}-pilots", 0)
    target = mixtures(p, mixture, p.tuning_repeats, stream(p.seed, NAME, f"{mixture}-pilots", 0))
    n, batch = p.tuning_particles, (p.tuning_repeats,)
    pilot: Pilot[Setting]
    if method.startswith("steinis"):
        pilot = steinis_pilot(
            lambda s: _steinis(target, s), _q0(), p.n_leaders, n, p.n_transitions, generator, batch,
            folded_allowed=0.5,
        )  # fmt: skip
        cost = p.n_transitions * p.n_leaders
    else:
        pilot = annealing_pilot(
            lambda s: annealing(target, _q0(), method, s, p.n_transitions), n, generator, batch
        )
        cost = (p.n_transitions + 1) * n
    options = candidates(method)
    return tune(options, pilot, 2 * len(options) * p.tuning_repeats * cost)[1]


def mixtures(
    p: GMMEstimation, mixture: str, count: int, generator: torch.Generator
) -> GaussianMixture:
    """Return random mixtures, "easy" or "hard" ones, ``(count,)``."""
    spread, scale = getattr(p, f"{mixture}_spread"), getattr(p, f"{mixture}_scale")
    return random_mixture(
        p.n_components, 2, generator, batch_shape=(count,), spread=spread, scale=scale
    )


def _q0() -> Gaussian:
    return Gaussian.isotropic(torch.zeros(2, dtype=torch.float64))


def _steinis(target: GaussianMixture, s: Setting) -> SteinIS:
    return SteinIS(target, RBF(multiplier=s.multiplier or 1.0), StepSize(s.alpha, s.beta or 0.0))


def functions_of(w: Tensor, b: Tensor) -> Callable[[Tensor], Tensor]:
    """Return x ↦ (x_j, x_j², cos(w x_j + b)), ``(trials, n, 2)`` to ``(trials, n, 6)``."""
    return lambda x: torch.cat([x, x.square(), torch.cos(w * x + b)], -1)


def exact_values(target: GaussianMixture, w: Tensor, b: Tensor) -> Tensor:
    """The exact expectations of `functions_of`, ``(trials, 6)``."""
    pi = target.log_weights.exp().unsqueeze(-1)
    damped = torch.exp(-0.5 * (w * target.scales).square())
    cosine = (pi * torch.cos(w * target.means + b) * damped).sum(1)
    return torch.cat([target.mean, target.second_moment, cosine], -1)


EXPERIMENT = Experiment(NAME, GMMEstimation, tasks, run_task, pilots)
