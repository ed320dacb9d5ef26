"""The problem of section 5.2: parameters, warped targets, labels, and what pilots chose."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, ClassVar

import torch
import xarray as xr
from pydantic import AfterValidator, Field, model_validator
from torch import Tensor

from steinis_lib.baselines.adaptive_is import Objective, Update
from steinis_lib.companion.parameters import Parameters, Rising
from steinis_lib.companion.problems.warped import WarpedMixture
from steinis_lib.companion.runner.experiment import stream
from steinis_lib.companion.search import best as best_trial
from steinis_lib.companion.sections.s3_adaptive_is.methods import (
    AdaptiveSetting,
    Corner,
    around,
    best,
    place,
    population,
)
from steinis_lib.companion.sections.s3_adaptive_is.mixture_weights import ExactObjective
from steinis_lib.companion.settings import FAMILIES, Axis
from steinis_lib.companion.tuning_records import trials_of
from steinis_lib.targets.base import Gaussian, Proposal
from steinis_lib.targets.mixtures import FullCovarianceMixture, GaussianMixture

NAME = "adaptive-comparison"
MAIN = "main"
ELSEWHERE = ("steinis", "steinis-wide")
"""The families of SteinIS that are run on the easy and the hard target."""
REFINED = {
    "poor": FAMILIES,
    "fair": ("steinis-wide",),
    "close": ("steinis-wide",),
    "good": ("steinis-wide",),
}
"""The mixtures that SteinIS refines (see `fitted`), and its families there."""
KINDS: tuple[tuple[Objective, Update], ...] = (
    ("variance", "mirror"),
    ("variance", "projected"),
    ("cross-entropy", "mirror"),
    ("cross-entropy", "projected"),
)
"""The kinds of adaptive IS. They share its candidates; a search over the rate is made for each."""
RATES = {
    "mirror": Axis("alpha", (0.01, 0.0316228, 0.1, 0.316228), 10**0.5),
    "projected": Axis("alpha", (3.16228e-4, 1e-3, 3.16228e-3, 0.01), 10**0.5),
}
"""The rate of adaptive IS is searched along these."""


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
        "n_runs": 3,
        "leaders": (30, 60),
        "checkpoints": (0, 5, 10, 20, 50, 80),
        "n_followers": 100,
        "n_exact": 50,
        "component_scales": (0.5, 1.0),
        "n_components": 50,
        "adaptive_checkpoints": (0, 50, 300),
        "optimum_scales": (0.5, 1.0),
        "n_placements": 2,
        "pmc_components": (5, 10, 20),
        "pmc_samples": 500,
        "pmc_checkpoints": (1, 5, 15),
        "refine_checkpoints": (0, 10, 40),
        "n_candidates": 16,
        "tuning_repeats": 2,
        "kde_samples": (200, 1000),
        "kde_runs": 2,
        "kde_followers": 200,
        "panel_points": 40,
    }

    n_repeats: int = Field(20, ge=2, description="runs of adaptive IS, M-PMC and refinement")
    n_runs: int = Field(10, ge=2, description="runs of each family of SteinIS from q0")
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
        (0.3, 0.6, 1.0), min_length=1, description="their σ; the last is refined as poor and fair"
    )
    adaptive_checkpoints: Checkpoints = Field(
        (0, 100, 1000, 10_000), min_length=2, description="iterations of adaptive IS, from 0"
    )
    adaptive_samples: int = Field(10, ge=1, description="draws in each iteration of adaptive IS")
    optimum_scales: Annotated[tuple[Positive, ...], Rising] = Field(
        (0.2, 0.3, 0.6, 1.0, 1.5), min_length=1, description="σ whose best mixtures are computed"
    )
    n_placements: int = Field(10, ge=2, description="placements of components, for the optimum")
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
    n_candidates: int = Field(24, ge=16, description="settings tried for each tuned method")
    tuning_repeats: int = Field(3, ge=2, description="pilot runs of each candidate")
    kde_samples: Annotated[tuple[Annotated[int, Field(ge=10)], ...], Rising] = Field(
        (1000, 5000, 20_000), min_length=1, description="exact draws of p given to the KDE"
    )
    kde_factors: Annotated[tuple[Positive, ...], Rising] = Field(
        (0.25, 0.5, 1.0, 2.0), min_length=1, description="multiples of Scott's bandwidth"
    )
    kde_runs: int = Field(5, ge=2, description="runs of each family whose followers the KDE gets")
    kde_followers: int = Field(2000, ge=10, description="|B| of these, with the last |A|")
    panel_points: int = Field(64, ge=10, description="points along each side of a contour plot")

    @model_validator(mode="after")
    def _check(self) -> AdaptiveComparison:
        if self.a1 == 0 or self.a3 == 0:
            raise ValueError("a1, a3: must not be 0, or T has no inverse")
        if abs(sum(self.weights) - 1) > 1e-6:
            raise ValueError(f"weights: must sum to 1, got {self.weights}")
        if not {*self.component_scales} <= {*self.optimum_scales}:
            raise ValueError(
                f"optimum_scales: must have all component_scales, {self.component_scales}, "
                f"got {self.optimum_scales}"
            )
        return self

    @property
    def targets(self) -> dict[str, float]:
        """Name → a2 of each target. Most methods and sizes are for the first one only."""
        return {MAIN: self.a2, "easy": self.a2_easy, "hard": self.a2_hard}

    @property
    def usual_components(self) -> int:
        """K for targets that have only one: the third of `pmc_components`, or the last of fewer."""
        return self.pmc_components[:3][-1]

    def leaders_on(self, target: str) -> tuple[int, ...]:
        """Return the numbers of leaders that are tried on a target."""
        return self.leaders if target == MAIN else self.leaders[:1]

    @property
    def panel_stages(self) -> tuple[int, ...]:
        """The checkpoints of SteinIS that are nearest to the paper's panels."""
        wanted = (0, 50, 200, self.checkpoints[-1])
        found = {min(self.checkpoints, key=lambda c: abs(c - w)) for w in wanted}
        return tuple(sorted(found))

    def components_on(self, target: str) -> tuple[int, ...]:
        """Return the numbers of M-PMC's components that are tried on a target."""
        return self.pmc_components if target == MAIN else (self.usual_components,)


def label(target: str, kind: str, size: float | None = None) -> str:
    """Return a cell's label, such as "easy-pmc-20" or "main-optimum-0.3"."""
    if size is None:
        return f"{target}-{kind}"
    return f"{target}-{kind}-{size}" if isinstance(size, int) else f"{target}-{kind}-{size:g}"


def families_on(target: str) -> tuple[str, ...]:
    """Return the families of SteinIS that are run on a target."""
    return FAMILIES if target == MAIN else ELSEWHERE


def pilot_label(kind: str, scale: float | None = None, target: str = MAIN) -> str:
    """Return the label of a cell of pilots, such as "main-pilot-adaptive-0.3"."""
    return label(target, f"pilot-{kind}", scale)


def refinement(which: str, family: str) -> str:
    """Return the kind of a refinement, for labels: "refine-poor-steinis-wide"."""
    return f"refine-{which}-{family}"


def best_kind(record: xr.Dataset) -> int:
    """Return the index in `KINDS` of the kind of adaptive IS whose best candidate did best."""
    return int(record.score.max("candidate").values.argmax())


def chosen_adaptive(record: xr.Dataset) -> AdaptiveSetting:
    """Return the candidate of adaptive IS with the smallest mean KL at the end of its pilots."""
    kind = best_kind(record)
    rate = best_trial(trials_of(record.isel(trial=[kind]))).candidate.alpha
    return AdaptiveSetting(*KINDS[kind], rate)


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
    """Return a fitted mixture to be refined.

    Parameters
    ----------
    which
        "poor": the mixture of fixed components with the least variance, at the last of
        `component_scales`; "fair": that with the smallest KL(q‖p) there; "close": that with the
        smallest KL(q‖p) at the first of them; "good": the mixture that M-PMC fits.
    """
    target = warped(p, MAIN)
    if which == "good":
        generator = stream(p.seed, NAME, "good", 0)
        return population(
            target, p.usual_components, p.pmc_samples, p.pmc_checkpoints, generator
        )[1]  # fmt: skip
    scale = p.component_scales[0 if which == "close" else -1]
    objective: ExactObjective = "variance" if which == "poor" else "reverse-kl"
    plane = around(*box(p, MAIN), scale)
    return best(target, placement(p, MAIN, scale, 0), plane, objective)[0]


def start() -> Gaussian:
    """Return q_0 = N(0, I)."""
    return Gaussian.isotropic(torch.zeros(2, dtype=torch.float64))
