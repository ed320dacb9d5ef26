"""Targets with many modes: eggboxes, shells, label switching, powers of two, periods."""

from __future__ import annotations

import math
from itertools import permutations

import torch
from torch import Tensor

from evidence.case import Case, Truth, start
from evidence.cube import box
from evidence.densities import LOG_2PI, logit_uniform, normal
from evidence.truths import line, on_grid

D = torch.float64
SHELLS, RADIUS, WIDTH = 3.5, 2.0, 0.1


def eggbox(x: Tensor) -> Tensor:
    """(2 + cos(a/2) cos(b/2))⁵ for (a, b) uniform on [0, 10π]², which are 10π logistic(x)."""
    angles = 5 * math.pi * x.sigmoid()
    return (2 + angles.cos().prod(-1)).pow(5) + logit_uniform(x).sum(-1)


def eggbox_truth() -> Truth:
    """The integral over the square, where the factor of the change of variables is gone."""

    def inside(u: Tensor) -> Tensor:
        return (2 + (5 * math.pi * u).cos().prod(-1)).pow(5)

    return on_grid(inside, [(0, 1), (0, 1)], 1000)


def shells(x: Tensor) -> Tensor:
    """Two Gaussian shells of radius 2 and thickness .1 around (±3.5, 0, …)."""
    terms = []
    for side in (-SHELLS, SHELLS):
        centred = torch.cat([x[:, :1] - side, x[:, 1:]], -1)
        terms.append(normal(centred.norm(dim=-1), RADIUS, WIDTH))
    return torch.logaddexp(*terms)


def shells_truth(d: int) -> Truth:
    """By the radius of one shell, twice."""

    def radial(r: Tensor) -> Tensor:
        return (d - 1) * r.log() + normal(r, RADIUS, WIDTH)

    surface = math.log(2) + 0.5 * d * math.log(math.pi) - math.lgamma(d / 2)
    return Truth(math.log(2) + surface + line(radial, 0.5, 3.5), 1e-9, "quadrature")


def _labelled(n: int) -> Tensor:
    g = torch.Generator().manual_seed(3)
    centres = torch.tensor([-3.0, 0.0, 4.0], dtype=D)[torch.arange(n) % 3]
    return centres + 0.8 * torch.randn(n, generator=g, dtype=D)


LABELLED = _labelled(60)


def label_switching(means: Tensor) -> Tensor:
    """Three equal components of standard deviation .8 with unordered means, prior N(0, 5²)."""
    terms = normal(LABELLED.to(means)[:, None], means[:, None, :], 0.8) - math.log(3)
    return torch.logsumexp(terms, -1).sum(-1) + normal(means, 0.0, 5.0).sum(-1)


def label_switching_truth() -> Truth:
    """Six times the integral over a neighbourhood of one order of the means."""
    one = on_grid(label_switching, [(-4.6, -1.6), (-1.5, 1.5), (2.6, 5.4)], 40)
    return Truth(one.log_z + math.log(len(list(permutations("abc")))), one.error, "quadrature")


def wells(x: Tensor) -> Tensor:
    """Independent double wells, tilted: 2^d modes of unequal weights."""
    return (-(x.pow(4)) + 6 * x.square() + 0.3 * x).sum(-1)


def wells_truth(d: int) -> Truth:
    """By one coordinate."""
    one = line(lambda t: -(t.pow(4)) + 6 * t.square() + 0.3 * t, -4, 4)
    return Truth(d * one, 1e-9, "quadrature")


def rastrigin(x: Tensor) -> Tensor:
    """exp(-f / 5) for Rastrigin's function: about a hundred modes."""
    return -0.2 * (x.square() + 10 * (1 - (2 * math.pi * x).cos())).sum(-1)


def rastrigin_truth(d: int) -> Truth:
    """By one coordinate."""
    one = line(lambda t: -0.2 * (t.square() + 10 * (1 - (2 * math.pi * t).cos())), -14, 14, 20_000)
    return Truth(d * one, 1e-9, "quadrature")


NIGHTS, PERIOD_NOISE = 25, 0.6
FREQUENCIES = (0.05, 0.5)


def _velocities() -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(4)
    times = 60 * torch.rand(NIGHTS, generator=g, dtype=D)
    phase = 2 * math.pi * 0.21 * times
    noise = PERIOD_NOISE * torch.randn(NIGHTS, generator=g, dtype=D)
    return times, 0.4 + phase.cos() - 0.6 * phase.sin() + noise


TIMES, VELOCITIES = _velocities()


def planet(x: Tensor) -> Tensor:
    """Offset, two amplitudes and a frequency, uniform on [.05, .5], of a sine in 25 velocities."""
    low, high = FREQUENCIES
    frequency = low + (high - low) * x[:, 3:].sigmoid()
    phase = 2 * math.pi * frequency * TIMES.to(x)
    fit = x[:, :1] + x[:, 1:2] * phase.cos() + x[:, 2:3] * phase.sin()
    likelihood = normal(VELOCITIES.to(x), fit, PERIOD_NOISE).sum(-1)
    return likelihood + normal(x[:, :3], 0.0, 2.0).sum(-1) + logit_uniform(x[:, 3])


def planet_truth() -> Truth:
    """The linear parameters in closed form, the frequency by quadrature."""
    low, high = FREQUENCIES

    def marginal(frequency: Tensor) -> Tensor:
        phase = 2 * math.pi * frequency[:, None] * TIMES
        design = torch.stack([torch.ones_like(phase), phase.cos(), phase.sin()], -1)
        covariance = 4 * design @ design.mT + PERIOD_NOISE**2 * torch.eye(NIGHTS, dtype=D)
        chol = torch.linalg.cholesky(covariance)
        z = torch.linalg.solve_triangular(chol, VELOCITIES[:, None], upper=False)[..., 0]
        log_det = chol.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return -0.5 * z.square().sum(-1) - log_det - 0.5 * NIGHTS * LOG_2PI

    return Truth(line(marginal, low, high, 8000) - math.log(high - low), 1e-6, "quadrature")


CASES = (
    Case(
        "eggbox-2",
        "modes",
        2,
        eggbox,
        eggbox_truth,
        "Feroz et al. 2009",
        start(0.0, 2.0, 2),
        notes="18 modes, published log Z 235.856 on a grid",
    ),
    Case(
        "shells-2",
        "modes",
        2,
        shells,
        lambda: shells_truth(2),
        "Feroz et al. 2009",
        start(0.0, 3.0, 2),
        box(-6.0, 6.0),
    ),
    Case(
        "shells-10",
        "modes",
        10,
        shells,
        lambda: shells_truth(10),
        "Feroz et al. 2009",
        start(0.0, 3.0, 10),
        box(-6.0, 6.0),
    ),
    Case(
        "labels-3",
        "modes",
        3,
        label_switching,
        label_switching_truth,
        "mixture with exchangeable components, simulated data",
        start(0.0, 5.0, 3),
        notes="six copies of one mode; q0 is the prior",
    ),
    Case(
        "wells-8",
        "modes",
        8,
        wells,
        lambda: wells_truth(8),
        "textbook density",
        start(0.0, 2.0, 8),
        notes="256 modes",
    ),
    Case(
        "rastrigin-2",
        "modes",
        2,
        rastrigin,
        lambda: rastrigin_truth(2),
        "Rastrigin 1974",
        start(0.0, 3.0, 2),
    ),
    Case(
        "planet-4",
        "modes",
        4,
        planet,
        planet_truth,
        "period search in radial velocities, simulated data",
        start(0.0, 2.0, 4),
        notes="a period and its aliases",
    ),
)
