"""SteinIS against adaptive importance sampling on a warped mixture (section 5.2, Figure 4).

KL(q_ℓ‖p) is exact given the leaders: a grid of points under q_0 is pushed along with the
followers, and KL is a sum over it with q_0's weights. KL(p‖q_ℓ) comes from exact draws of p, which
are taken back through the recorded maps.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
import xarray as xr

from steinis_lib.baselines.adaptive_is import AdaptiveIS
from steinis_lib.baselines.mpmc import MixturePMC
from steinis_lib.companion.methods import build_steinis
from steinis_lib.companion.runner.experiment import Cell, Chunk, Experiment
from steinis_lib.companion.sections.s3_adaptive_is.methods import (
    Curves,
    adapt,
    around,
    backward_kl,
    best,
    density_estimates,
    follow,
    population,
    q0_grid,
    seconds,
)
from steinis_lib.companion.sections.s3_adaptive_is.mixture_weights import ExactObjective
from steinis_lib.companion.sections.s3_adaptive_is.panels import adaptive_panels, steinis_panels
from steinis_lib.companion.sections.s3_adaptive_is.pilots import (
    tune_adaptive,
    tune_refinement,
    tune_steinis,
)
from steinis_lib.companion.sections.s3_adaptive_is.problem import (
    KINDS,
    MAIN,
    NAME,
    REFINED,
    AdaptiveComparison,
    box,
    chosen_adaptive,
    exact_draws,
    families_on,
    fitted,
    label,
    pilot_label,
    placement,
    refinement,
    start,
    together,
    warped,
)
from steinis_lib.companion.tuning_records import chosen
from steinis_lib.schedules import StepSize
from steinis_lib.steinis import SteinIS

OBJECTIVES: tuple[ExactObjective, ...] = ("variance", "reverse-kl")
PLACEMENTS_AT_ONCE = 5
"""Repeats of adaptive IS that are computed together."""


def cells(p: AdaptiveComparison) -> list[Cell]:
    """Return the pilots, the runs on each target, and what is done on the main one only."""
    found = _pilots(p)
    for name in p.targets:
        found += _runs(p, name)
    for which, families in REFINED.items():
        for family in families:
            kind = refinement(which, family)
            compute = partial(run_refinement, which=which, family=family)
            found.append(
                Cell(label(MAIN, kind), p.n_repeats, compute, pilots=(pilot_label(kind),),
                     method=label(MAIN, "refine"))
            )  # fmt: skip
    for scale in p.component_scales:
        compute = partial(run_adaptive, scale=scale)
        tuned = (pilot_label("adaptive", scale),)
        found.append(
            Cell(label(MAIN, "adaptive", scale), p.n_repeats, compute, PLACEMENTS_AT_ONCE, tuned,
                 label(MAIN, "adaptive"))
        )  # fmt: skip
    found.append(Cell(label(MAIN, "cost"), 5, measure_cost, 5))
    found += _panels(p)
    found.append(Cell(label(MAIN, "kde"), p.tuning_repeats, estimate_density))
    return found + [
        Cell(label(MAIN, f"kde-{family}"), p.kde_runs, partial(estimate_proposal, family=family),
             pilots=(pilot_label(family),), method=label(MAIN, "kde-runs"))
        for family in families_on(MAIN)
    ]  # fmt: skip


def _pilots(p: AdaptiveComparison) -> list[Cell]:
    """The searches: a chunk for each, and for adaptive IS one for each of its kinds."""
    found = [
        Cell(pilot_label(family, target=name), 1, partial(tune_steinis, name=name, family=family))
        for name in p.targets
        for family in families_on(name)
    ]
    adaptive = pilot_label("adaptive")
    found += [
        Cell(pilot_label("adaptive", scale), len(KINDS), partial(tune_adaptive, scale=scale),
             method=adaptive)
        for scale in p.component_scales
    ]  # fmt: skip
    found += [
        Cell(pilot_label(refinement(which, family)), 1,
             partial(tune_refinement, which=which, family=family))
        for which, families in REFINED.items()
        for family in families
    ]  # fmt: skip
    return found


def _runs(p: AdaptiveComparison, name: str) -> list[Cell]:
    """What is done on each target, with a chunk for each run or placement."""
    found = [
        Cell(
            label(name, family, m),
            p.n_runs,
            partial(run_steinis, name=name, family=family, m=m),
            pilots=(pilot_label(family, target=name),),
            method=family,
        )
        for family in families_on(name)
        for m in p.leaders_on(name)
    ]
    for k in p.components_on(name):
        compute = partial(run_population, name=name, k=k)
        found.append(Cell(label(name, "pmc", k), p.n_repeats, compute, method=label(name, "pmc")))
    for scale in p.optimum_scales:
        compute = partial(find_optimum, name=name, scale=scale)
        found.append(
            Cell(label(name, "optimum", scale), p.n_placements, compute,
                 method=label(name, "optimum"))
        )  # fmt: skip
    return found


def _panels(p: AdaptiveComparison) -> list[Cell]:
    """The contours: two families of SteinIS, and adaptive IS with the widest components."""
    scale = p.component_scales[-1]
    panels = {
        family: (partial(steinis_panels, family=family), pilot_label(family))
        for family in ("steinis", "steinis-wide")
    } | {"adaptive": (adaptive_panels, pilot_label("adaptive", scale))}
    return [
        Cell(label(MAIN, f"panels-{kind}"), 1, compute, pilots=(pilot,),
             method=label(MAIN, "panels"))
        for kind, (compute, pilot) in panels.items()
    ]  # fmt: skip


def run_steinis(p: AdaptiveComparison, chunk: Chunk, name: str, family: str, m: int) -> xr.Dataset:
    """Run SteinIS from q_0 with m leaders."""
    target, setting = warped(p, name), chosen(chunk.pilots[pilot_label(family, target=name)])
    curves, maps = follow(
        target, start(), setting, m, p.n_followers, p.checkpoints, chunk.generator(),
        method=family, grid=q0_grid(),
    )  # fmt: skip
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


def run_refinement(p: AdaptiveComparison, chunk: Chunk, which: str, family: str) -> xr.Dataset:
    """Run SteinIS from a fitted mixture."""
    setting = chosen(chunk.pilots[pilot_label(refinement(which, family))])
    curves, _ = follow(
        warped(p, MAIN), fitted(p, which), setting, p.leaders[0], p.n_followers,
        p.refine_checkpoints, chunk.generator(), method=family,
    )  # fmt: skip
    return _dataset(_alone(curves), p.refine_checkpoints)


def run_adaptive(p: AdaptiveComparison, chunk: Chunk, scale: float) -> xr.Dataset:
    """Run adaptive IS, some repeats together."""
    target, repeats = warped(p, MAIN), chunk.trials
    curves, averages = adapt(
        target, together([placement(p, MAIN, scale, i) for i in repeats]),
        chosen_adaptive(chunk.pilots[pilot_label("adaptive", scale)]), p.adaptive_samples,
        p.adaptive_checkpoints, around(*box(p, MAIN), scale), chunk.generator(),
        batch_shape=(len(repeats),),
    )  # fmt: skip
    x = torch.stack([exact_draws(p, MAIN, i) for i in repeats])
    log_p = target.log_prob(x)
    curves["kl_backward"] = torch.stack([(log_p - q.log_prob(x)).mean(-1) for q in averages], -1)
    return _dataset(curves, p.adaptive_checkpoints)


def find_optimum(p: AdaptiveComparison, chunk: Chunk, name: str, scale: float) -> xr.Dataset:
    """Find the exactly optimal mixtures, their KL(q‖p), and how far they can be from optimal.

    This gap is in nats, or relative to the variance: see `optimal_weights`.
    """
    target, plane = warped(p, name), around(*box(p, name), scale)
    components = placement(p, name, scale, chunk.number)
    found = [best(target, components, plane, objective) for objective in OBJECTIVES]
    gaps = [
        optimum.gap / (optimum.value if objective == "variance" else 1.0)
        for objective, (_, optimum, _) in zip(OBJECTIVES, found, strict=True)
    ]
    return xr.Dataset(
        {
            "kl": (("trial", "objective"), [[kl for _, _, kl in found]]),
            "gap": (("trial", "objective"), [gaps]),
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


def estimate_proposal(p: AdaptiveComparison, chunk: Chunk, family: str) -> xr.Dataset:
    """Compute what the paper's estimator says of SteinIS at its end, with the last |A|.

    It gets the followers themselves. `kl` is their mean of log q/p, with the tracked density q.
    """
    target, setting = warped(p, MAIN), chosen(chunk.pilots[pilot_label(family)])
    sampler = build_steinis(
        target, start(), setting, method=family, n_leaders=p.leaders[-1],
        n_followers=p.kde_followers,
    )  # fmt: skip
    state = sampler.run(sampler.init(chunk.generator()), p.checkpoints[-1])
    kl = -sampler.importance_sample(state).log_w.mean()
    by_grid, by_samples = density_estimates(
        target, state.followers, *box(p, MAIN), p.kde_factors
    )  # fmt: skip
    return xr.Dataset(
        {
            "by_grid": (("trial", "factor"), by_grid.unsqueeze(0).numpy()),
            "by_samples": (("trial", "factor"), by_samples.unsqueeze(0).numpy()),
            "kl": ("trial", [float(kl)]),
            "folds": ("trial", [float(state.n_folds)]),
        },
        coords={"factor": list(p.kde_factors)},
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
