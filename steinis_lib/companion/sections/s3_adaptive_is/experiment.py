"""SteinIS against adaptive importance sampling on a warped mixture (section 5.2, Figure 4).

KL(q_ℓ‖p) is exact given the leaders: a grid of points under q_0 is pushed along with the
followers, and KL is a sum over it with q_0's weights. KL(p‖q_ℓ) comes from exact draws of p, which
are taken back through the recorded maps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import xarray as xr

from steinis_lib.baselines.mixture_weights import ExactObjective
from steinis_lib.companion.runner.engine import Experiment, Task, stream
from steinis_lib.companion.sections.s3_adaptive_is.methods import (
    Curves,
    adapt,
    around,
    backward_kl,
    best,
    density,
    density_estimates,
    follow,
    place,
    population,
    q0_grid,
    seconds,
)
from steinis_lib.companion.sections.s3_adaptive_is.problem import (
    FAMILIES,
    NAME,
    AdaptiveComparison,
    box,
    candidates,
    chosen,
    exact_draws,
    fitted,
    placement,
    start,
    together,
    warped,
)
from steinis_lib.targets.base import Proposal

OBJECTIVES: tuple[ExactObjective, ...] = ("variance", "reverse-kl")
REFINED = ("poor", "good")


def pilots(p: AdaptiveComparison) -> list[Task]:
    """Return the tuning, on the main target: a chunk for each candidate of each method."""
    names = [f"main-pilot-{family}" for family in FAMILIES]
    names += [f"main-pilot-adaptive-{scale:g}" for scale in p.component_scales]
    names += [f"main-pilot-refine-{which}" for which in REFINED]
    return [Task(name, c) for name in names for c in range(12)]


def tasks(p: AdaptiveComparison) -> list[Task]:
    """Return every method's repeats on each target, mostly a chunk each, and the single tasks."""
    found = []
    for t in p.targets:
        everything = t == "main"
        counts = p.leaders if everything else p.leaders[:1]
        components = p.pmc_components if everything else p.pmc_components[:3][-1:]
        scales = p.component_scales if everything else p.component_scales[:2][-1:]
        names = [f"{t}-{family}-{m}" for family in FAMILIES for m in counts]
        names += [f"{t}-pmc-{k}" for k in components]
        names += [f"main-refine-{which}" for which in REFINED if everything]
        found += [Task(name, c) for name in names for c in range(p.n_repeats)]
        names = [f"{t}-optimum-{scale:g}" for scale in scales]
        found += [Task(name, c) for name in names for c in range(p.n_placements)]
    singles = [f"main-adaptive-{scale:g}" for scale in p.component_scales]
    singles += ["main-cost", *(f"main-panels-{name}" for name in (*FAMILIES, "adaptive"))]
    found += [Task(name, 0) for name in singles]
    return found + [Task("main-kde", c) for c in range(p.tuning_repeats)]


def run_task(
    p: AdaptiveComparison, task: Task, pilots: Mapping[str, xr.Dataset] | None = None
) -> xr.Dataset:
    """Run one repeat of one method on one target, or the pilots of one candidate."""
    name, _, method = task.method.partition("-")
    kind, _, rest = method.partition("-")
    generator = stream(p.seed, NAME, task.method, task.chunk)
    if kind == "pilot":
        return _pilot(p, name, rest, task.chunk, generator)
    assert pilots is not None
    if kind == "steinis":
        return _steinis(p, name, method, task.chunk, pilots, generator)
    if kind == "adaptive":
        return _adaptive(p, name, float(rest), pilots, generator)
    if kind == "optimum":
        return _optimum(p, name, float(rest), task.chunk)
    if kind == "pmc":
        target, x = warped(p, name), exact_draws(p, name, task.chunk)
        curves, _ = population(target, int(rest), p.pmc_samples, p.pmc_checkpoints, generator, x)
        return _dataset(curves, task.chunk, p.pmc_checkpoints)
    if kind == "refine":
        setting = chosen(pilots[f"main-pilot-{method}"], "steinis-wide")
        curves, _ = follow(
            warped(p, name), fitted(p, rest), setting, p.leaders[0], p.n_followers,
            p.refine_checkpoints, generator,
        )  # fmt: skip
        return _dataset(curves, task.chunk, p.refine_checkpoints)
    if kind == "cost":
        return _cost(p)
    if kind == "kde":
        return _kde(p, name, task.chunk, generator)
    return _panels(p, name, rest, pilots, generator)


def _pilot(
    p: AdaptiveComparison, name: str, method: str, index: int, generator: torch.Generator
) -> xr.Dataset:
    """Run one candidate's pilots."""
    r, target = p.tuning_repeats, warped(p, name)
    kind, _, rest = method.partition("-")
    q0: Proposal = start()
    family, checkpoints = method, p.checkpoints
    if kind == "adaptive":
        low, high = box(p, name)
        components = together(
            [place(p.n_components, float(rest), low, high, generator) for _ in range(r)]
        )
        curves, _ = adapt(
            target, components, candidates("adaptive")[index], p.adaptive_samples,
            p.adaptive_checkpoints, around(low, high, float(rest)), generator, (r,),
        )  # fmt: skip
        kl, folds, checkpoints = curves["kl"], torch.zeros(r), p.adaptive_checkpoints
    else:
        if kind == "refine":
            q0, family, checkpoints = fitted(p, rest), "steinis-wide", p.refine_checkpoints
        setting = candidates(family)[index]
        curves, _ = follow(target, q0, setting, p.leaders[0], 200, checkpoints, generator, (r,))
        kl, folds = curves["kl"], curves["folds"]
    return xr.Dataset(
        {"kl": (("trial", "checkpoint"), kl.numpy()), "folds": ("trial", folds.numpy())},
        coords={"trial": range(index * r, (index + 1) * r), "checkpoint": list(checkpoints)},
    )


def _steinis(
    p: AdaptiveComparison,
    name: str,
    method: str,
    chunk: int,
    pilots: Mapping[str, xr.Dataset],
    generator: torch.Generator,
) -> xr.Dataset:
    family, _, m = method.rpartition("-")
    target, setting = warped(p, name), chosen(pilots[f"main-pilot-{family}"], family)
    curves, maps = follow(
        target, start(), setting, int(m), p.n_followers, p.checkpoints, generator, (), q0_grid()
    )
    if name == "main" and int(m) == p.leaders[0]:
        x = exact_draws(p, name, chunk)
        backward, exists = backward_kl(target, start(), maps, p.checkpoints[-1:], x)
        curves |= {"kl_backward": backward[0], "invertible": exists[0].double()}
    return _dataset(curves, chunk, p.checkpoints)


def _adaptive(
    p: AdaptiveComparison,
    name: str,
    scale: float,
    pilots: Mapping[str, xr.Dataset],
    generator: torch.Generator,
) -> xr.Dataset:
    """Run all repeats of adaptive IS together."""
    target, (low, high), repeats = warped(p, name), box(p, name), range(p.n_repeats)
    setting = chosen(pilots[f"{name}-pilot-adaptive-{scale:g}"], "adaptive")
    components = together([placement(p, name, scale, c) for c in repeats])
    plane = around(low, high, scale)
    curves, averages = adapt(
        target,
        components,
        setting,
        p.adaptive_samples,
        p.adaptive_checkpoints,
        plane,
        generator,
        (p.n_repeats,),
    )
    x = torch.stack([exact_draws(p, name, c) for c in repeats])
    log_p = target.log_prob(x)
    curves["kl_backward"] = torch.stack([(log_p - q.log_prob(x)).mean(-1) for q in averages], -1)
    return xr.Dataset(
        {
            key: (("trial", "checkpoint")[: values.ndim], values.numpy())
            for key, values in curves.items()
        },
        coords={"trial": repeats, "checkpoint": list(p.adaptive_checkpoints)},
    )


def _optimum(p: AdaptiveComparison, name: str, scale: float, chunk: int) -> xr.Dataset:
    """KL(q‖p) of the exactly optimal mixture, and how far its weights can be from optimal."""
    target, plane = warped(p, name), around(*box(p, name), scale)
    found = [best(target, placement(p, name, scale, chunk), plane, o) for o in OBJECTIVES]
    return xr.Dataset(
        {
            "kl": (("trial", "objective"), [[kl for _, _, kl in found]]),
            "gap": (("trial", "objective"), [[optimum.gap for _, optimum, _ in found]]),
        },
        coords={"trial": [chunk], "objective": list(OBJECTIVES)},
    )


def _kde(p: AdaptiveComparison, name: str, chunk: int, generator: torch.Generator) -> xr.Dataset:
    """What the paper's estimator says of exact draws of p, whose KL is 0."""
    target = warped(p, name)
    samples = target.sample((max(p.kde_samples),), generator)
    pairs = [
        density_estimates(target, samples[:n], *box(p, name), p.kde_factors) for n in p.kde_samples
    ]
    dims = ("trial", "n", "factor")
    by_grid, by_samples = (
        torch.stack(rows).unsqueeze(0).numpy() for rows in zip(*pairs, strict=True)
    )
    return xr.Dataset(
        {"by_grid": (dims, by_grid), "by_samples": (dims, by_samples)},
        coords={"trial": [chunk], "n": list(p.kde_samples), "factor": list(p.kde_factors)},
    )


def _cost(p: AdaptiveComparison) -> xr.Dataset:
    """Seconds for whole runs, on the machine of the day: the methods in turn, five times."""
    components = placement(p, "main", p.component_scales[-1], 0)
    counts = [p.checkpoints[-1], p.adaptive_checkpoints[-1], p.pmc_checkpoints[-1]]
    pmc = (min(max(p.pmc_components), p.n_components), p.pmc_samples)
    steps = [
        seconds(
            warped(p, "main"),
            start(),
            components,
            p.leaders[0],
            p.n_followers,
            p.adaptive_samples,
            pmc,
        )
        for _ in range(5)
    ]
    return xr.Dataset(
        {"run": (("trial", "method"), [[s * n for s, n in zip(row, counts, strict=True)]
                                       for row in steps], {"units": "s"})},
        coords={"trial": range(5), "method": ["steinis", "adaptive", "pmc"]},
    )  # fmt: skip


def _panels(
    p: AdaptiveComparison,
    name: str,
    method: str,
    pilots: Mapping[str, xr.Dataset],
    generator: torch.Generator,
) -> xr.Dataset:
    """The density of one run's proposal on a grid, at each checkpoint of its method."""
    target, (low, high) = warped(p, name), box(p, name)
    axes = [torch.linspace(a - 0.5, b + 0.5, p.panel_points, dtype=torch.float64)
            for a, b in zip(low, high, strict=True)]  # fmt: skip
    points = torch.cartesian_prod(*axes)
    checkpoints, log_q = p.checkpoints, [target.log_prob(points)]
    invertible = [1.0]
    if method == "adaptive":
        scale, checkpoints = p.component_scales[-1], p.adaptive_checkpoints
        setting = chosen(pilots[f"{name}-pilot-adaptive-{scale:g}"], "adaptive")
        _, averages = adapt(
            target, placement(p, name, scale, 0), setting, p.adaptive_samples, checkpoints,
            around(low, high, scale),
            generator,
        )  # fmt: skip
        log_q += [q.log_prob(points) for q in averages]
        invertible += [1.0] * len(averages)
    else:
        setting = chosen(pilots[f"{name}-pilot-{method}"], method)
        _, maps = follow(target, start(), setting, p.leaders[0], 10, checkpoints, generator)
        for stage in checkpoints:
            found = density(start(), maps, stage, points)
            log_q.append(torch.full_like(points[:, 0], -math.inf) if found is None else found)
            invertible.append(float(found is not None))
    values = torch.stack(log_q).exp().unflatten(-1, (p.panel_points,) * 2)
    return xr.Dataset(
        {
            "density": (("trial", "stage", "x1", "x2"), values.unsqueeze(0).float().numpy()),
            "invertible": (("trial", "stage"), [invertible]),
        },
        coords={"trial": [0], "stage": [-1, *checkpoints], "x1": axes[0].numpy(),
                "x2": axes[1].numpy()},
    )  # fmt: skip


def _dataset(curves: Curves, chunk: int, checkpoints: tuple[int, ...]) -> xr.Dataset:
    """One repeat's curves over checkpoints, and its single numbers."""
    return xr.Dataset(
        {
            name: (("trial", "checkpoint")[: 1 + values.ndim], values.unsqueeze(0).numpy())
            for name, values in curves.items()
        },
        coords={"trial": [chunk], "checkpoint": list(checkpoints)},
    )


EXPERIMENT = Experiment(NAME, AdaptiveComparison, tasks, run_task, pilots)
