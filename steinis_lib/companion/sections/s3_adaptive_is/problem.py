"""The problem of section 5.2: parameters, the warped targets, candidates and how one is chosen."""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, Any, ClassVar

import torch
import xarray as xr
from pydantic import Field, model_validator
from torch import Tensor

from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner.engine import stream
from steinis_lib.companion.sections.s2_mixtures.experiment import candidates as families
from steinis_lib.companion.sections.s3_adaptive_is.methods import (
    Corner,
    around,
    best,
    place,
    population,
)
from steinis_lib.targets.base import Gaussian, Proposal
from steinis_lib.targets.mixtures import FullCovarianceMixture, GaussianMixture
from steinis_lib.targets.warped import WarpedMixture

NAME = "adaptive-comparison"
FAMILIES = ("steinis", "steinis-wide")
Whole = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]


class AdaptiveComparison(Parameters):
    """Sizes and settings; the defaults are the paper's where it states them."""

    QUICK: ClassVar[dict[str, Any]] = {
        "n_repeats": 4,
        "leaders": (30, 60),
        "checkpoints": (0, 5, 10, 20, 50, 80),
        "n_followers": 100,
        "n_exact": 50,
        "component_scales": (0.5, 1.0),
        "n_components": 50,
        "adaptive_checkpoints": (0, 50, 300),
        "n_placements": 2,
        "pmc_components": (5, 10, 20),
        "pmc_samples": 500,
        "pmc_checkpoints": (1, 5, 15),
        "refine_checkpoints": (0, 10, 40),
        "tuning_repeats": 2,
        "kde_samples": (200, 1000),
        "panel_points": 40,
    }

    n_repeats: int = Field(20, ge=2, description="independent runs of each method")
    weights: tuple[Positive, Positive, Positive] = Field(
        (0.35, 0.3, 0.35), description="of the three components that are warped"
    )
    means: tuple[Corner, Corner, Corner] = Field(
        ((-2.0, 0.0), (0.0, 1.0), (2.0, 0.0)), description="of the components"
    )
    variances: tuple[Positive, Positive] = Field((0.8, 0.6), description="of all, on the diagonal")
    a1: float = Field(1.0, description="T(z) = (a1 z1 + b1, a2 z1² + a3 z2 + b2); not 0")
    a2: float = Field(0.35, description="the bend of the target named main")
    a2_easy: float = Field(0.1, description="the bend of the easy target")
    a2_hard: float = Field(0.8, description="the bend of the hard target")
    a3: float = Field(1.0, description="not 0")
    b1: float = Field(0.0, description="shift of x1")
    b2: float = Field(-1.5, description="shift of x2")
    leaders: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        (100, 200), min_length=1, description="|A|: the paper's text and its caption differ"
    )
    checkpoints: tuple[Whole, ...] = Field(
        (0, 10, 20, 50, 100, 200, 500, 1000, 2000), min_length=2,
        description="transitions of SteinIS at which it is measured, from 0 to the last",
    )  # fmt: skip
    n_followers: int = Field(300, ge=10, description="|B| of SteinIS")
    n_exact: int = Field(200, ge=10, description="exact draws of p for KL(p‖q)")
    n_components: int = Field(200, ge=2, description="fixed components of adaptive IS")
    component_scales: tuple[Positive, ...] = Field(
        (0.3, 0.6, 1.0), min_length=1, description="their σ; the last is refined as poor"
    )
    adaptive_checkpoints: tuple[Whole, ...] = Field(
        (0, 100, 1000, 10_000), min_length=2, description="iterations of adaptive IS, from 0"
    )
    adaptive_samples: int = Field(10, ge=1, description="draws in each iteration of adaptive IS")
    n_placements: int = Field(5, ge=2, description="placements of components, for the optimum")
    pmc_components: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (5, 10, 20, 50, 100, 200), min_length=1, description="components of M-PMC"
    )
    pmc_samples: int = Field(2000, ge=10, description="draws in each iteration of M-PMC")
    pmc_checkpoints: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (1, 2, 5, 10, 20, 50), min_length=1, description="iterations of M-PMC"
    )
    refine_checkpoints: tuple[Whole, ...] = Field(
        (0, 5, 10, 20, 50, 100, 200, 500), min_length=2,
        description="transitions of SteinIS from a fitted mixture, from 0",
    )  # fmt: skip
    tuning_repeats: int = Field(3, ge=2, description="pilot runs for each of the 12 candidates")
    kde_samples: tuple[Annotated[int, Field(ge=10)], ...] = Field(
        (1000, 5000, 20_000), min_length=1, description="exact draws of p given to the KDE"
    )
    kde_factors: tuple[Positive, ...] = Field(
        (0.25, 0.5, 1.0, 2.0), min_length=1, description="multiples of Scott's bandwidth"
    )
    panel_points: int = Field(64, ge=10, description="points along each side of a contour plot")

    @model_validator(mode="after")
    def _check(self) -> AdaptiveComparison:
        from_zero = ("checkpoints", "adaptive_checkpoints", "refine_checkpoints")
        rising = ("leaders", "component_scales", "pmc_components", "pmc_checkpoints")
        for name in (*from_zero, *rising, "kde_samples", "kde_factors"):
            values = getattr(self, name)
            if list(values) != sorted(set(values)) or (name in from_zero and values[0] != 0):
                start = " from 0" if name in from_zero else ""
                raise ValueError(f"{name}: must rise strictly{start}, got {values}")
        if self.a1 == 0 or self.a3 == 0:
            raise ValueError("a1, a3: must not be 0, or T has no inverse")
        if abs(sum(self.weights) - 1) > 1e-6:
            raise ValueError(f"weights: must sum to 1, got {self.weights}")
        return self

    @property
    def targets(self) -> dict[str, float]:
        """Name → a2 of each target; the first is the one that everything is tried on."""
        return {"main": self.a2, "easy": self.a2_easy, "hard": self.a2_hard}


def candidates(method: str) -> list[Any]:
    """Return twelve candidates: of a family of SteinIS, or for adaptive IS."""
    if method in FAMILIES:
        return list(families(method))
    return [
        (objective, update, rate)
        for objective in ("variance", "cross-entropy")
        for update in ("mirror", "projected")
        for rate in ((0.03, 0.1, 0.3) if update == "mirror" else (3e-4, 1e-3, 3e-3))
    ]


def chosen(record: xr.Dataset, method: str) -> Any:
    """Return the candidate with the smallest mean KL at the end of its pilots."""
    return candidates(method)[best_candidate(record)]


def best_candidate(record: xr.Dataset) -> int:
    """Return its index.

    Raises
    ------
    ValueError
        If all candidates are out.
    """
    last = merits(record)[:, -1]
    if bool((last == math.inf).all()):
        raise ValueError("no candidate came through its pilots: try smaller steps")
    return int(last.argmin())


def merits(record: xr.Dataset) -> Tensor:
    """Return the mean KL(q‖p) of each candidate's pilots, ``(12, checkpoints)``; inf if it is out.

    Pilots with folds do not count, for their densities are not valid; a candidate with a majority
    of them is out.
    """
    kl = torch.from_numpy(record.kl.values).unflatten(0, (12, -1))
    folded = torch.from_numpy(record.folds.values).unflatten(0, (12, -1)) > 0
    out = folded.double().mean(-1) > 0.5
    valid = torch.where(folded.unsqueeze(-1), torch.zeros_like(kl), kl).sum(1)
    mean = valid / (~folded).sum(-1, keepdim=True).clamp(min=1)
    return torch.where(out.unsqueeze(-1), torch.full_like(mean, math.inf), mean)


def warped(p: AdaptiveComparison, name: str) -> WarpedMixture:
    """Return the target of this name."""
    means = torch.tensor(p.means, dtype=torch.float64)
    scales = torch.tensor(p.variances, dtype=torch.float64).sqrt().expand(3, 2)
    log_weights = torch.tensor(p.weights, dtype=torch.float64).log()
    mixture = GaussianMixture(log_weights, means, scales)
    return WarpedMixture(mixture, p.a1, p.targets[name], p.a3, p.b1, p.b2)


@cache
def box(p: AdaptiveComparison, name: str) -> tuple[Corner, Corner]:
    """Return low and high corners that hold 99.9 % of each coordinate of a target."""
    x = warped(p, name).sample((100_000,), stream(p.seed, NAME, "box", 0))
    low, high = torch.quantile(x, torch.tensor([5e-4, 1 - 5e-4], dtype=x.dtype), dim=0)
    return (float(low[0]), float(low[1])), (float(high[0]), float(high[1]))


def exact_draws(p: AdaptiveComparison, name: str, chunk: int) -> Tensor:
    """Return exact draws of a target, the same for all methods in the same repeat."""
    return warped(p, name).sample((p.n_exact,), stream(p.seed, NAME, f"{name}-exact", chunk))


def placement(p: AdaptiveComparison, name: str, scale: float, chunk: int) -> FullCovarianceMixture:
    """Return the fixed components of a repeat of adaptive IS."""
    generator = stream(p.seed, NAME, f"{name}-placement", chunk)
    return place(p.n_components, scale, *box(p, name), generator)


def together(mixtures: list[FullCovarianceMixture]) -> FullCovarianceMixture:
    """Return a batch of mixtures."""
    parts = zip(*((q.log_weights, q.means, q.scale_trils) for q in mixtures), strict=True)
    return FullCovarianceMixture(*map(torch.stack, parts))


@cache
def fitted(p: AdaptiveComparison, which: str) -> Proposal:
    """A fitted mixture to be refined: adaptive IS at its optimum ("poor"), or M-PMC ("good")."""
    target = warped(p, "main")
    if which == "good":
        generator = stream(p.seed, NAME, "good", 0)
        n = p.pmc_components[:3][-1]
        return population(target, n, p.pmc_samples, p.pmc_checkpoints, generator)[1]
    scale = p.component_scales[-1]
    plane = around(*box(p, "main"), scale)
    return best(target, placement(p, "main", scale, 0), plane, "variance")[0]


def start() -> Gaussian:
    """Return q_0 = N(0, I)."""
    return Gaussian.isotropic(torch.zeros(2, dtype=torch.float64))
