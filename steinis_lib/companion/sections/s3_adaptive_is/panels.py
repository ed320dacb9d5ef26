"""The densities of proposals on a grid, for the contours of Figure 4."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import xarray as xr
from torch import Tensor

from steinis_lib.companion.runner.experiment import Chunk
from steinis_lib.companion.sections.s3_adaptive_is.methods import adapt, around, density, follow
from steinis_lib.companion.sections.s3_adaptive_is.problem import (
    MAIN,
    AdaptiveComparison,
    box,
    chosen_adaptive,
    pilot_label,
    placement,
    start,
    warped,
)
from steinis_lib.companion.tuning_records import chosen


def steinis_panels(p: AdaptiveComparison, chunk: Chunk, family: str) -> xr.Dataset:
    """Compute the density of one run of SteinIS on a grid, at some of its checkpoints."""
    setting, stages = chosen(chunk.pilots[pilot_label(family)]), p.panel_stages
    _, maps = follow(
        warped(p, MAIN), start(), setting, p.leaders[0], 10, p.checkpoints, chunk.generator(),
        method=family,
    )  # fmt: skip
    return _panels(p, stages, lambda x: [density(start(), maps, stage, x) for stage in stages])


def adaptive_panels(p: AdaptiveComparison, chunk: Chunk) -> xr.Dataset:
    """Compute the density of one run of adaptive IS on a grid, at each of its checkpoints."""
    scale = p.component_scales[-1]
    _, averages = adapt(
        warped(p, MAIN), placement(p, MAIN, scale, 0),
        chosen_adaptive(chunk.pilots[pilot_label("adaptive", scale)]), p.adaptive_samples,
        p.adaptive_checkpoints, around(*box(p, MAIN), scale), chunk.generator(),
    )  # fmt: skip
    return _panels(p, p.adaptive_checkpoints, lambda x: [q.log_prob(x) for q in averages])


def _panels(
    p: AdaptiveComparison,
    stages: tuple[int, ...],
    log_densities: Callable[[Tensor], Sequence[Tensor | None]],
) -> xr.Dataset:
    """The densities on a grid, first that of the target, whose stage is -1; 0 where there is none.

    `log_densities` maps points ``(G, 2)`` to log q at them, one for each of `stages`.
    """
    axes = [torch.linspace(a - 0.5, b + 0.5, p.panel_points, dtype=torch.float64)
            for a, b in zip(*box(p, MAIN), strict=True)]  # fmt: skip
    points = torch.cartesian_prod(*axes)
    found = [warped(p, MAIN).log_prob(points), *log_densities(points)]
    log_q = [torch.full_like(points[:, 0], -math.inf) if x is None else x for x in found]
    values = torch.stack(log_q).exp().unflatten(-1, (p.panel_points,) * 2)
    return xr.Dataset(
        {
            "density": (("trial", "stage", "x1", "x2"), values.unsqueeze(0).float().numpy()),
            "invertible": (("trial", "stage"), [[float(x is not None) for x in found]]),
        },
        coords={"stage": [-1, *stages], "x1": axes[0].numpy(), "x2": axes[1].numpy()},
    )
