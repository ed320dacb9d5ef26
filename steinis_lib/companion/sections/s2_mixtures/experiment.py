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

from functools import partial

import torch
import xarray as xr

from steinis_lib.companion.method_readings import readings
from steinis_lib.companion.methods import build_sampler
from steinis_lib.companion.runner.experiment import Cell, Chunk, Experiment
from steinis_lib.companion.sections.s2_mixtures.direct import direct_sampling
from steinis_lib.companion.sections.s2_mixtures.problem import (
    EXTRA,
    MIXTURES,
    NAME,
    QUANTITIES,
    GMMEstimation,
    mixtures,
    problems,
    start,
)
from steinis_lib.companion.settings import FAMILIES, axes_of, tuned_as
from steinis_lib.companion.tuning import tune_sampler
from steinis_lib.companion.tuning_records import chosen, tuning_record
from steinis_lib.importance import ImportanceSample
from steinis_lib.path_integration import PathIntegration
from steinis_lib.schedules import StepSize
from steinis_lib.stein.kernels import RBF
from steinis_lib.targets.mixtures import GaussianMixture

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


EXPERIMENT = Experiment(NAME, GMMEstimation, cells)
