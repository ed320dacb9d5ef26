"""Curved targets: bananas, ridges, rings and moons."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from evidence.case import Case, LogDensity, Truth, closed, start
from evidence.cube import box
from evidence.densities import LOG_2PI
from evidence.truths import line, on_grid

BEND, LONG = 0.03, 10.0
RADIUS, WIDTH = 10.0, 0.3


def banana(x: Tensor) -> Tensor:
    """Haario's twisted Gaussian, of standard deviation 10 along x₁."""
    bent = x[:, 1] + BEND * (x[:, 0].square() - LONG**2)
    rest = x[:, 2:].square().sum(-1)
    return -0.5 * ((x[:, 0] / LONG).square() + bent.square() + rest)


def rosenbrock_pairs(x: Tensor) -> Tensor:
    """exp(-Σ (1 - a)² + 100 (b - a²)²) over pairs (a, b) of coordinates."""
    a, b = x[:, 0::2], x[:, 1::2]
    return -((1 - a).square() + 100 * (b - a.square()).square()).sum(-1)


def rosenbrock_chain(x: Tensor) -> Tensor:
    """The same over neighbours in a chain, of which each depends on the one before."""
    a, b = x[:, :-1], x[:, 1:]
    return -((1 - a).square() + 100 * (b - a.square()).square()).sum(-1)


def _chain_truth(d: int, intervals: int) -> float:
    """Integrate one coordinate after the other, the last one in closed form."""
    grid = torch.linspace(-3.5, 5.0, intervals + 1, dtype=torch.float64)
    own = -(1 - grid).square()
    step = -100 * (grid[None, :] - grid[:, None].square()).square()
    value = own + 0.5 * math.log(math.pi / 100)
    for _ in range(d - 2):
        value = own + torch.logsumexp(step + value, 1) + math.log(float(grid[1] - grid[0]))
    return float(value.logsumexp(0)) + math.log(float(grid[1] - grid[0]))


def chain_truth(d: int) -> Truth:
    """log Z of the chain, with the difference from half as many points as its error."""
    fine, coarse = _chain_truth(d, 1200), _chain_truth(d, 600)
    return Truth(fine, max(abs(fine - coarse), 1e-9), "quadrature")


def two_moons(x: Tensor) -> Tensor:
    """Two facing crescents on a circle of radius 2."""
    ring = -0.5 * ((x.norm(dim=-1) - 2) / 0.2).square()
    first, second = (-0.5 * ((x[:, 0] + side) / 0.6).square() for side in (-2, 2))
    return ring + torch.logaddexp(first, second)


def sphere(x: Tensor) -> Tensor:
    """A shell around the surface of a sphere of radius 10."""
    return -0.5 * ((x.norm(dim=-1) - RADIUS) / WIDTH).square()


def sphere_truth(d: int) -> Truth:
    """log Z of `sphere`, by its radius."""

    def radial(r: Tensor) -> Tensor:
        return (d - 1) * r.log() - 0.5 * ((r - RADIUS) / WIDTH).square()

    surface = math.log(2) + 0.5 * d * math.log(math.pi) - math.lgamma(d / 2)
    return Truth(surface + line(radial, 4.0, 16.0), 1e-9, "quadrature")


def wave(x: Tensor) -> Tensor:
    """A ridge along a sine, five standard deviations of its waves long."""
    ridge = (x[:, 1] - 2 * (1.5 * x[:, 0]).sin()) / 0.2
    return -0.5 * ((x[:, 0] / 3).square() + ridge.square())


def product_of_two(x: Tensor) -> Tensor:
    """A parameter that only the product of two, here of scales, is known of: y = 1 ± .1."""
    seen = (x[:, 0] * x[:, 1] - 1) / 0.1
    return -0.5 * (seen.square() + (x / 2).square().sum(-1))


def _product_truth() -> Truth:
    def marginal(a: Tensor) -> Tensor:
        precision = (a / 0.1).square() + 0.25
        mean = a / 0.01 / precision
        value = 0.5 * (mean.square() * precision - 100.0) - 0.125 * a.square()
        return value - 0.5 * precision.log() + 0.5 * LOG_2PI

    return Truth(line(marginal, -24, 24, 40_000), 1e-9, "quadrature")


def _moons_truth() -> Truth:
    return on_grid(two_moons, [(-5, 5), (-5, 5)], 400)


def _rosenbrock(name: str, f: LogDensity, d: int, truth: Callable[[], Truth]) -> Case:
    return Case(
        name,
        "curved",
        d,
        f,
        truth,
        "Rosenbrock 1960",
        start(1.0, 2.0, d),
        notes="a long narrow ridge",
    )


_banana = closed(math.log(LONG) + LOG_2PI)
_pair = math.log(math.pi / 10)

CASES = (
    Case("banana-2", "curved", 2, banana, _banana, "Haario et al. 1999", start(0.0, [LONG, 10.0])),
    Case(
        "banana-10",
        "curved",
        10,
        banana,
        closed(math.log(LONG) + 5 * LOG_2PI),
        "Haario et al. 1999",
        start(0.0, [LONG, 10.0] + 8 * [2.0]),
    ),
    _rosenbrock("rosenbrock-2", rosenbrock_pairs, 2, closed(_pair)),
    _rosenbrock("rosenbrock-pairs-10", rosenbrock_pairs, 10, closed(5 * _pair)),
    _rosenbrock("rosenbrock-pairs-20", rosenbrock_pairs, 20, closed(10 * _pair)),
    _rosenbrock("rosenbrock-chain-10", rosenbrock_chain, 10, lambda: chain_truth(10)),
    _rosenbrock("rosenbrock-chain-20", rosenbrock_chain, 20, lambda: chain_truth(20)),
    Case(
        "two-moons-2",
        "curved",
        2,
        two_moons,
        _moons_truth,
        "after Rezende & Mohamed 2015",
        start(0.0, 2.0, 2),
    ),
    Case(
        "ring-2",
        "curved",
        2,
        sphere,
        lambda: sphere_truth(2),
        "textbook density",
        start(0.0, 10.0, 2),
        box(-15.0, 15.0),
    ),
    Case(
        "sphere-5",
        "curved",
        5,
        sphere,
        lambda: sphere_truth(5),
        "textbook density",
        start(0.0, 6.0, 5),
        box(-15.0, 15.0),
    ),
    Case(
        "wave-2",
        "curved",
        2,
        wave,
        closed(math.log(3 * 0.2) + LOG_2PI),
        "after Rezende & Mohamed 2015",
        start(0.0, 4.0, 2),
    ),
    Case(
        "product-2",
        "curved",
        2,
        product_of_two,
        _product_truth,
        "an unidentified product, as in factor models",
        start(0.0, 2.0, 2),
        notes="two hyperbolas with long arms",
    ),
)
