"""Targets with a few modes: equal, unequal in weight and width, and outside of q0."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from evidence.case import Case, Expected, LogDensity, Truth, closed, start
from evidence.densities import LOG_2PI
from evidence.truths import on_grid
from steinis_lib import Gaussian

Part = tuple[float, float, float]


def mixture(parts: Sequence[Part], shape: str = "diagonal") -> LogDensity:
    """Return a mixture of isotropic Gaussians, normalised.

    Parameters
    ----------
    parts
        Weight, centre and standard deviation of each component.
    shape
        Where the centre is: "diagonal" for the same number in each coordinate, "first" for zeros in
        all but the first.
    """

    def log_prob(x: Tensor) -> Tensor:
        d = x.shape[-1]
        terms = []
        for weight, centre, sd in parts:
            mean = torch.full_like(x[0], centre)
            if shape == "first":
                mean[1:] = 0.0
            distance = ((x - mean) / sd).square().sum(-1)
            constant = math.log(weight) - d * math.log(sd) - 0.5 * d * LOG_2PI
            terms.append(constant - 0.5 * distance)
        return torch.logsumexp(torch.stack(terms), 0)

    return log_prob


def _case(
    name: str,
    dim: int,
    parts: Sequence[Part],
    q0: Gaussian | None = None,
    shape: str = "diagonal",
    notes: str = "",
    expected: Expected = "right",
    source: str = "textbook density",
) -> Case:
    f = mixture(parts, shape)
    return Case(name, "modes", dim, f, closed(0.0), source, q0, None, expected, notes)


def spike(share: float) -> Sequence[Part]:
    """A broad Gaussian that holds `share` of the mass, and a spike in it that holds the rest."""
    return [(share, 0.0, 1.0), (1 - share, 0.0, 0.1)]


def skilling(x: Tensor) -> Tensor:
    """Skilling's spike: 100 times the mass of the plateau, off the centre and a tenth as wide."""
    d = x.shape[-1]
    wide, narrow, shift = 0.1, 0.01, 0.031
    plateau = -0.5 * (x / wide).square().sum(-1) - d * math.log(wide)
    top = -0.5 * ((x - shift) / narrow).square().sum(-1) - d * math.log(narrow)
    return torch.logaddexp(plateau, top + math.log(100)) - 0.5 * d * LOG_2PI


def circle(x: Tensor) -> Tensor:
    """Eight Gaussians of different weights on a circle of radius 10."""
    angles = torch.arange(8).to(x) * (math.pi / 4)
    centres = 10 * torch.stack([angles.cos(), angles.sin()], -1)
    weights = torch.arange(1, 9).to(x)
    half = 0.5 * (x[:, None] - centres).square().sum(-1)
    return torch.logsumexp((weights / weights.sum()).log() - half, -1) - LOG_2PI


def himmelblau(x: Tensor) -> Tensor:
    """exp(-f / 10) for Himmelblau's function, four modes of different widths."""
    a, b = x[:, 0], x[:, 1]
    return -0.1 * ((a.square() + b - 11).square() + (a + b.square() - 7).square())


def heavy_pair(x: Tensor) -> Tensor:
    """Two t densities with 3 degrees of freedom, of scales 1 and .3, in five dimensions."""
    df, d = 3.0, x.shape[-1]
    constant = math.lgamma((df + d) / 2) - math.lgamma(df / 2) - 0.5 * d * math.log(df * math.pi)
    terms = []
    for weight, centre, scale in ((0.7, -4.0, 1.0), (0.3, 4.0, 0.3)):
        distance = ((x - centre) / scale).square().sum(-1)
        kernel = -0.5 * (df + d) * (distance / df).log1p()
        terms.append(math.log(weight) - d * math.log(scale) + constant + kernel)
    return torch.logsumexp(torch.stack(terms), 0)


def _himmelblau_truth() -> Truth:
    return on_grid(himmelblau, [(-8, 8), (-8, 8)], 400)


_equal = [(0.5, -5.0, 1.0), (0.5, 5.0, 1.0)]
_review = "a user's report"

CASES = (
    _case("two-equal-2", 2, _equal, start(0.0, 6.0, 2)),
    _case(
        "two-apart-5",
        5,
        [(0.5, -50.0, 1.0), (0.5, 50.0, 1.0)],
        start(0.0, 50.0, 5),
        "first",
        "a hundred standard deviations apart",
    ),
    _case("two-unequal-weight-10", 10, [(0.95, -2.0, 1.0), (0.05, 2.0, 1.0)], start(0.0, 3.0, 10)),
    _case(
        "two-unequal-width-5",
        5,
        [(0.5, -2.0, 0.3), (0.5, 2.0, 1.0)],
        start(0.0, 3.0, 5),
        notes="the narrow one has half of the mass",
    ),
    _case(
        "two-unequal-width-10",
        10,
        [(0.5, -3.0, 0.1), (0.5, 3.0, 1.0)],
        start(0.0, 3.0, 10),
        "first",
        "a narrow mode of a volume 10⁻¹⁰ of the wide one's",
    ),
    _case(
        "beyond-q0-1",
        1,
        [(0.5, 0.0, 1.0), (0.5, 8.0, 1.0)],
        notes="a mode eight standard deviations of q0 away",
    ),
    _case("beyond-q0-symmetric-1", 1, [(0.5, -8.0, 1.0), (0.5, 8.0, 1.0)]),
    _case("spike-0.1-10", 10, spike(0.1), start(0.0, 2.0, 10), source=_review),
    _case("spike-0.5-10", 10, spike(0.5), start(0.0, 2.0, 10), source=_review),
    _case("spike-0.9-10", 10, spike(0.9), start(0.0, 2.0, 10), source=_review),
    Case(
        "skilling-20",
        "modes",
        20,
        skilling,
        closed(math.log(101)),
        "Skilling 2006",
        start(0.0, 0.2, 20),
        expected="unseen",
        notes="a spike that the plateau does not lead to",
    ),
    Case("circle-2", "modes", 2, circle, closed(0.0), "textbook density", start(0.0, 10.0, 2)),
    Case(
        "himmelblau-2",
        "modes",
        2,
        himmelblau,
        _himmelblau_truth,
        "Himmelblau 1972",
        start(0.0, 4.0, 2),
    ),
    Case(
        "two-heavy-5", "modes", 5, heavy_pair, closed(0.0), "textbook density", start(0.0, 6.0, 5)
    ),
)
