"""SteinIS against adaptive importance sampling on a warped mixture (section 5.2, Figure 4).

KL(q_ℓ‖p) is exact given the leaders: a grid of points under q_0 is pushed along with the
followers, and KL is a sum over it with q_0's weights. KL(p‖q_ℓ) comes from exact draws of p, which
are taken back through the recorded maps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import xarray as xr

from steinis_lib.baselines.adaptive_is import AdaptiveIS
from steinis_lib.baselines.mpmc import MixturePMC
from steinis_lib.companion.runner.experiment import Cell, Chunk, Experiment
from steinis_lib.companion.sections.s3_adaptive_is.methods import (
    Curves,
    adapt,
    around,
    backward_kl,
    best,
    density_estimates,
    follow,
    place,
    population,
    q0_grid,
    seconds,
)
from steinis_lib.companion.sections.s3_adaptive_is.mixture_weights import ExactObjective
from steinis_lib.companion.sections.s3_adaptive_is.panels import adaptive_panels, steinis_panels
from steinis_lib.companion.sections.s3_adaptive_is.problem import (
    ADAPTIVE,
    FAMILIES,
    MAIN,
    NAME,
    REFINED,
    AdaptiveComparison,
    box,
    candidates,
    chosen,
    exact_draws,
    fitted,
    label,
    pilot_label,
    placement,
    start,
    together,
    warped,
)
from steinis_lib.schedules import StepSize
from steinis_lib.steinis import SteinIS
from steinis_lib.targets.base import Proposal

OBJECTIVES: tuple[ExactObjective, ...] = ("variance", "reverse-kl")


def cells(p: AdaptiveComparison) -> list[Cell]:
    """Return the pilots on the main target, the runs on each target, and what is done once."""
    found = _pilots(p)
    for name in p.targets:
        found += _runs(p, name)
    for scale in p.component_scales:
        compute = partial(run_adaptive, scale=scale)
        tuned = (pilot_label("adaptive", scale),)
        found.append(
            Cell(label(MAIN, "adaptive", scale), p.n_repeats, compute, p.n_repeats, tuned,
                 label(MAIN, "adaptive"))
        )  # fmt: skip
    found.append(Cell(label(MAIN, "cost"), 5, measure_cost, 5))
    for family in FAMILIES:
        compute = partial(steinis_panels, family=family)
        found.append(
            Cell(label(MAIN, f"panels-{family}"), 1, compute, pilots=(pilot_label(family),))
        )
    tuned = (pilot_label("adaptive", p.component_scales[-1]),)
    found.append(Cell(label(MAIN, "panels-adaptive"), 1, adaptive_panels, pilots=tuned))
    return [*found, Cell(label(MAIN, "kde"), p.tuning_repeats, estimate_density)]


def _pilots(p: AdaptiveComparison) -> list[Cell]:
    """The tuning of each method: a chunk for each of its twelve candidates, in their order."""
    computes: dict[str, Callable[[AdaptiveComparison, Chunk], xr.Dataset]] = {}
    for family in FAMILIES:
        computes[pilot_label(family)] = partial(pilot_steinis, family=family)
    for scale in p.component_scales:
        computes[pilot_label("adaptive", scale)] = partial(pilot_adaptive, scale=scale)
    for which in REFINED:
        computes[pilot_label(f"refine-{which}")] = partial(pilot_refinement, which=which)
    r, adaptive = p.tuning_repeats, pilot_label("adaptive")
    return [
        Cell(name, 12 * r, compute, r, method=adaptive if name.startswith(adaptive) else "")
        for name, compute in computes.items()
    ]


def _runs(p: AdaptiveComparison, name: str) -> list[Cell]:
    """What is done on a target, with a chunk for each repeat or placement."""
    found = [
        Cell(
            label(name, family, m),
            p.n_repeats,
            partial(run_steinis, name=name, family=family, m=m),
            pilots=(pilot_label(family),),
            method=label(name, family),
        )
        for family in FAMILIES
        for m in p.leaders_on(name)
    ]
    for k in p.components_on(name):
        compute = partial(run_population, name=name, k=k)
        found.append(Cell(label(name, "pmc", k), p.n_repeats, compute, method=label(name, "pmc")))
    for which in REFINED if name == MAIN else ():
        compute, tuned = partial(run_refinement, which=which), (pilot_label(f"refine-{which}"),)
        found.append(Cell(label(MAIN, f"refine-{which}"), p.n_repeats, compute, pilots=tuned))
    for scale in p.scales_on(name):
        compute = partial(find_optimum, name=name, scale=scale)
        found.append(
            Cell(label(name, "optimum", scale), p.n_placements, compute,
                 method=label(name, "optimum"))
        )  # fmt: skip
    return found


def pilot_steinis(p: AdaptiveComparison, chunk: Chunk, family: str) -> xr.Dataset:
    """Run the pilots of one candidate of SteinIS from q_0."""
    return _pilot(p, chunk, start(), family, p.checkpoints)


def pilot_refinement(p: AdaptiveComparison, chunk: Chunk, which: str) -> xr.Dataset:
    """Run the pilots of one candidate of SteinIS from a fitted mixture."""
    return _pilot(p, chunk, fitted(p, which), "steinis-wide", p.refine_checkpoints)


def _pilot(
    p: AdaptiveComparison, chunk: Chunk, q0: Proposal, family: str, checkpoints: tuple[int, ...]
) -> xr.Dataset:
    setting = candidates(family)[chunk.number]
    curves, _ = follow(
        warped(p, MAIN), q0, setting, p.leaders[0], 200, checkpoints, chunk.generator(),
        batch_shape=(chunk.n_trials,),
    )  # fmt: skip
    return _dataset({name: curves[name] for name in ("kl", "folds")}, checkpoints)


def pilot_adaptive(p: AdaptiveComparison, chunk: Chunk, scale: float) -> xr.Dataset:
    """Run the pilots of one candidate of adaptive IS, each with components of its own."""
    r, generator, (low, high) = chunk.n_trials, chunk.generator(), box(p, MAIN)
    components = together([place(p.n_components, scale, low, high, generator) for _ in range(r)])
    curves, _ = adapt(
        warped(p, MAIN), components, ADAPTIVE[chunk.number], p.adaptive_samples,
        p.adaptive_checkpoints, around(low, high, scale), generator, batch_shape=(r,),
    )  # fmt: skip
    return _dataset({"kl": curves["kl"], "folds": torch.zeros(r)}, p.adaptive_checkpoints)


def run_steinis(p: AdaptiveComparison, chunk: Chunk, name: str, family: str, m: int) -> xr.Dataset:
    """Run SteinIS from q_0 with m leaders."""
    target, setting = warped(p, name), chosen(chunk.pilots[pilot_label(family)], candidates(family))
    curves, maps = follow(
        target, start(), setting, m, p.n_followers, p.checkpoints, chunk.generator(), grid=q0_grid()
    )
    if name == MAIN and m == p.leaders[0]:
        x = exact_draws(p, name, chunk.number)
        backward, exists = backward_kl(target, start(), maps, p.checkpoints[-1:], x)
        curves |= {"kl_backward": backward[0], "invertible": exists[0].double()}
    return _dataset(_alone(curves), p.checkpoints)


def run_population(p: AdaptiveComparison, chunk: Chunk, name: str, k: int) -> xr.Dataset:
    """Run M-PMC with k components."""
    curves, _ = population(
        warped(p, name), k, p.pmc_samples, p.pmc_checkpoints, chunk.generator(),
        x=exact_draws(p, name, chunk.number),
    )  # fmt: skip
    return _dataset(_alone(curves), p.pmc_checkpoints)


def run_refinement(p: AdaptiveComparison, chunk: Chunk, which: str) -> xr.Dataset:
    """Run SteinIS from a fitted mixture."""
    setting = chosen(chunk.pilots[pilot_label(f"refine-{which}")], candidates("steinis-wide"))
    curves, _ = follow(
        warped(p, MAIN), fitted(p, which), setting, p.leaders[0], p.n_followers,
        p.refine_checkpoints, chunk.generator(),
    )  # fmt: skip
    return _dataset(_alone(curves), p.refine_checkpoints)


def run_adaptive(p: AdaptiveComparison, chunk: Chunk, scale: float) -> xr.Dataset:
    """Run all repeats of adaptive IS together."""
    target, repeats = warped(p, MAIN), chunk.trials
    curves, averages = adapt(
        target, together([placement(p, MAIN, scale, i) for i in repeats]),
        chosen(chunk.pilots[pilot_label("adaptive", scale)], ADAPTIVE), p.adaptive_samples,
        p.adaptive_checkpoints, around(*box(p, MAIN), scale), chunk.generator(),
        batch_shape=(len(repeats),),
    )  # fmt: skip
    x = torch.stack([exact_draws(p, MAIN, i) for i in repeats])
    log_p = target.log_prob(x)
    curves["kl_backward"] = torch.stack([(log_p - q.log_prob(x)).mean(-1) for q in averages], -1)
    return _dataset(curves, p.adaptive_checkpoints)


def find_optimum(p: AdaptiveComparison, chunk: Chunk, name: str, scale: float) -> xr.Dataset:
    """Find the exactly optimal mixtures, their KL(q‖p), and how far they can be from optimal."""
    target, plane = warped(p, name), around(*box(p, name), scale)
    components = placement(p, name, scale, chunk.number)
    found = [best(target, components, plane, objective) for objective in OBJECTIVES]
    return xr.Dataset(
        {
            "kl": (("trial", "objective"), [[kl for _, _, kl in found]]),
            "gap": (("trial", "objective"), [[optimum.gap for _, optimum, _ in found]]),
        },
        coords={"objective": list(OBJECTIVES)},
    )


def estimate_density(p: AdaptiveComparison, chunk: Chunk) -> xr.Dataset:
    """Compute what the paper's estimator says of exact draws of p, whose KL is 0."""
    target = warped(p, MAIN)
    samples = target.sample((max(p.kde_samples),), chunk.generator())
    pairs = [
        density_estimates(target, samples[:n], *box(p, MAIN), p.kde_factors) for n in p.kde_samples
    ]
    by_grid, by_samples = (
        (("trial", "n", "factor"), torch.stack(rows).unsqueeze(0).numpy())
        for rows in zip(*pairs, strict=True)
    )
    return xr.Dataset(
        {"by_grid": by_grid, "by_samples": by_samples},
        coords={"n": list(p.kde_samples), "factor": list(p.kde_factors)},
    )


def measure_cost(p: AdaptiveComparison, chunk: Chunk) -> xr.Dataset:
    """Measure seconds of whole runs on the machine of the day, the methods in turn."""
    target, q = warped(p, MAIN), placement(p, MAIN, p.component_scales[-1], 0)
    k = min(max(p.pmc_components), p.n_components)
    some = replace(q, log_weights=q.log_weights[:k].log_softmax(-1), means=q.means[:k],
                   scale_trils=q.scale_trils[:k])  # fmt: skip
    steinis = SteinIS(target, start(), n_leaders=p.leaders[0], n_followers=p.n_followers)
    adaptive = AdaptiveIS(
        target, q, objective="cross-entropy", update="mirror", step_size=StepSize(0.01, 0.5),
        n_particles=p.adaptive_samples,
    )  # fmt: skip
    pmc = MixturePMC(target, some, n_particles=p.pmc_samples)
    runs = [
        [
            p.checkpoints[-1] * seconds(steinis, 20),
            p.adaptive_checkpoints[-1] * seconds(adaptive, 200),
            p.pmc_checkpoints[-1] * seconds(pmc, 10),
        ]
        for _ in chunk.trials
    ]
    return xr.Dataset(
        {"run": (("trial", "method"), runs, {"units": "s"})},
        coords={"method": ["steinis", "adaptive", "pmc"]},
    )


def _alone(curves: Curves) -> Curves:
    """The curves of one run, with an axis for the trial."""
    return {name: values.unsqueeze(0) for name, values in curves.items()}


def _dataset(curves: Curves, checkpoints: tuple[int, ...]) -> xr.Dataset:
    """Curves ``(trials, checkpoints)`` and single numbers ``(trials,)``."""
    return xr.Dataset(
        {
            name: (("trial", "checkpoint")[: values.ndim], values.numpy())
            for name, values in curves.items()
        },
        coords={"checkpoint": list(checkpoints)},
    )


EXPERIMENT = Experiment(NAME, AdaptiveComparison, cells)
