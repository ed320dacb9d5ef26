"""The problem of section 5.2: parameters, warped targets, labels, and how pilots choose."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar

import torch
import xarray as xr
from pydantic import AfterValidator, Field, model_validator
from torch import Tensor

from steinis_lib.companion.methods import Setting
from steinis_lib.companion.parameters import Parameters, Rising
from steinis_lib.companion.problems.warped import WarpedMixture
from steinis_lib.companion.runner.experiment import stream
from steinis_lib.companion.sections.s3_adaptive_is.methods import (
    AdaptiveSetting,
    Corner,
    around,
    best,
    place,
    population,
)
from steinis_lib.targets.base import Gaussian, Proposal
from steinis_lib.targets.mixtures import FullCovarianceMixture, GaussianMixture

NAME = "adaptive-comparison"
MAIN = "main"
FAMILIES = ("steinis", "steinis-wide")
REFINED = ("poor", "good")
ADAPTIVE = tuple(
    AdaptiveSetting(objective, update, rate)
    for objective in ("variance", "cross-entropy")
    for update in ("mirror", "projected")
    for rate in ((0.03, 0.1, 0.3) if update == "mirror" else (3e-4, 1e-3, 3e-3))
)
"""The twelve candidates of adaptive IS, as many as each family of SteinIS has in section 2."""

C = TypeVar("C")


def candidates(family: str) -> list[Setting]:
    """Return twelve candidates for a family of SteinIS."""
    if family == "steinis":  # the paper's own family: α and β, its bandwidth rule
        return [Setting(a, b, 1.0) for a in (0.1, 0.3, 1.0, 3.0) for b in (0.0, 0.3, 0.6)]
    return [Setting(a, 0.0, m) for a in (0.1, 0.3, 0.6) for m in (2.0, 5.0, 10.0, 20.0)]


def _rises_from_zero(values: tuple[int, ...]) -> tuple[int, ...]:
    if values[:1] != (0,) or list(values) != sorted(set(values)):
        raise ValueError("must rise strictly from 0")
    return values


Positive = Annotated[float, Field(gt=0)]
Counts = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Rising]
Checkpoints = Annotated[tuple[Annotated[int, Field(ge=0)], ...], AfterValidator(_rises_from_zero)]


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
    a1: float = Field(1.0, description="T maps z to (a1 z1 + b1, a2 z1² + a3 z2 + b2); not 0")
    a2: float = Field(0.35, description="the bend of the target named main")
    a2_easy: float = Field(0.1, description="the bend of the easy target")
    a2_hard: float = Field(0.8, description="the bend of the hard target")
    a3: float = Field(1.0, description="not 0")
    b1: float = Field(0.0, description="shift of x1")
    b2: float = Field(-1.5, description="shift of x2")
    leaders: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Rising] = Field(
        (100, 200), min_length=1, description="|A|: the paper's text and its caption differ"
    )
    checkpoints: Checkpoints = Field(
        (0, 10, 20, 50, 100, 200, 500, 1000, 2000), min_length=2,
        description="transitions of SteinIS at which it is measured, from 0 to the last",
    )  # fmt: skip
    n_followers: int = Field(300, ge=10, description="|B| of SteinIS")
    n_exact: int = Field(200, ge=10, description="exact draws of p for KL(p‖q)")
    n_components: int = Field(200, ge=2, description="fixed components of adaptive IS")
    component_scales: Annotated[tuple[Positive, ...], Rising] = Field(
        (0.3, 0.6, 1.0), min_length=1, description="their σ; the last is refined as poor"
    )
    adaptive_checkpoints: Checkpoints = Field(
        (0, 100, 1000, 10_000), min_length=2, description="iterations of adaptive IS, from 0"
    )
    adaptive_samples: int = Field(10, ge=1, description="draws in each iteration of adaptive IS")
    n_placements: int = Field(5, ge=2, description="placements of components, for the optimum")
    pmc_components: Counts = Field(
        (5, 10, 20, 50, 100, 200), min_length=1, description="components of M-PMC"
    )
    pmc_samples: int = Field(2000, ge=10, description="draws in each iteration of M-PMC")
    pmc_checkpoints: Counts = Field(
        (1, 2, 5, 10, 20, 50), min_length=1, description="iterations of M-PMC"
    )
    refine_checkpoints: Checkpoints = Field(
        (0, 5, 10, 20, 50, 100, 200, 500), min_length=2,
        description="transitions of SteinIS from a fitted mixture, from 0",
    )  # fmt: skip
    tuning_repeats: int = Field(3, ge=2, description="pilot runs for each of the 12 candidates")
    kde_samples: Annotated[tuple[Annotated[int, Field(ge=10)], ...], Rising] = Field(
        (1000, 5000, 20_000), min_length=1, description="exact draws of p given to the KDE"
    )
    kde_factors: Annotated[tuple[Positive, ...], Rising] = Field(
        (0.25, 0.5, 1.0, 2.0), min_length=1, description="multiples of Scott's bandwidth"
    )
    panel_points: int = Field(64, ge=10, description="points along each side of a contour plot")

    @model_validator(mode="after")
    def _check(self) -> AdaptiveComparison:
        if self.a1 == 0 or self.a3 == 0:
            raise ValueError("a1, a3: must not be 0, or T has no inverse")
        if abs(sum(self.weights) - 1) > 1e-6:
            raise ValueError(f"weights: must sum to 1, got {self.weights}")
        return self

    @property
    def targets(self) -> dict[str, float]:
        """Name → a2 of each target. Tuning and most sizes are for the first one only."""
        return {MAIN: self.a2, "easy": self.a2_easy, "hard": self.a2_hard}

    @property
    def usual_scale(self) -> float:
        """The σ for targets that have only one: the second of `component_scales`, or the first."""
        return self.component_scales[:2][-1]

    @property
    def usual_components(self) -> int:
        """K for targets that have only one: the third of `pmc_components`, or the last of fewer."""
        return self.pmc_components[:3][-1]

    def leaders_on(self, target: str) -> tuple[int, ...]:
        """Return the numbers of leaders that are tried on a target."""
        return self.leaders if target == MAIN else self.leaders[:1]

    def scales_on(self, target: str) -> tuple[float, ...]:
        """Return the σ of components that are tried on a target."""
        return self.component_scales if target == MAIN else (self.usual_scale,)

    def components_on(self, target: str) -> tuple[int, ...]:
        """Return the numbers of M-PMC's components that are tried on a target."""
        return self.pmc_components if target == MAIN else (self.usual_components,)


def label(target: str, kind: str, size: float | None = None) -> str:
    """Return a cell's label, such as "easy-pmc-20" or "main-optimum-0.3"."""
    if size is None:
        return f"{target}-{kind}"
    return f"{target}-{kind}-{size}" if isinstance(size, int) else f"{target}-{kind}-{size:g}"


def pilot_label(kind: str, scale: float | None = None) -> str:
    """Return the label of a cell of pilots, such as "main-pilot-adaptive-0.3"."""
    return label(MAIN, f"pilot-{kind}", scale)


def chosen(record: xr.Dataset, candidates: Sequence[C]) -> C:
    """Return the candidate with the smallest mean KL at the end of its pilots."""
    return candidates[best_candidate(record)]


def best_candidate(record: xr.Dataset) -> int:
    """Return the index of the candidate that `chosen` takes.

    Raises
    ------
    ValueError
        If all candidates are out.
    """
    last = pilot_kl(record)[:, -1]
    if bool((last == math.inf).all()):
        raise ValueError("no candidate came through its pilots: try smaller steps")
    return int(last.argmin())


def pilot_kl(record: xr.Dataset) -> Tensor:
    """Return the mean KL(q‖p) of each candidate's pilots, ``(12, checkpoints)``; inf if it is out.

    Pilots with folds do not count, because their densities are not valid. If most pilots of a
    candidate have folds, it is out.
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


def exact_draws(p: AdaptiveComparison, name: str, repeat: int) -> Tensor:
    """Return exact draws of a target, the same for all methods in the same repeat."""
    return warped(p, name).sample((p.n_exact,), stream(p.seed, NAME, f"{name}-exact", repeat))


def placement(p: AdaptiveComparison, name: str, scale: float, repeat: int) -> FullCovarianceMixture:
    """Return the fixed components of a repeat of adaptive IS."""
    generator = stream(p.seed, NAME, f"{name}-placement", repeat)
    return place(p.n_components, scale, *box(p, name), generator)


def together(mixtures: list[FullCovarianceMixture]) -> FullCovarianceMixture:
    """Return a batch of mixtures."""
    parts = zip(*((q.log_weights, q.means, q.scale_trils) for q in mixtures), strict=True)
    return FullCovarianceMixture(*map(torch.stack, parts))


@cache
def fitted(p: AdaptiveComparison, which: str) -> Proposal:
    """Return a fitted mixture to be refined: the optimum of adaptive IS ("poor"), or M-PMC's."""
    target = warped(p, MAIN)
    if which == "good":
        generator = stream(p.seed, NAME, "good", 0)
        return population(
            target, p.usual_components, p.pmc_samples, p.pmc_checkpoints, generator
        )[1]  # fmt: skip
    scale = p.component_scales[-1]
    plane = around(*box(p, MAIN), scale)
    return best(target, placement(p, MAIN, scale, 0), plane, "variance")[0]


def start() -> Gaussian:
    """Return q_0 = N(0, I)."""
    return Gaussian.isotropic(torch.zeros(2, dtype=torch.float64))
