"""Second routes to log Z for the targets of benchmarks/evidence: integrals of the joint density.

`EXACT` takes less than a second each, `SLOW` more.
"""

import math
from dataclasses import replace
from functools import partial

import torch
from evidence.truths import line, on_grid
from torch.func import grad, hessian, vmap

D = torch.float64
LOG_2PI = math.log(2 * math.pi)


def gaussian(f, x):
    """log ∫ exp(f) for a quadratic f, from its gradient and Hessian at x."""
    matrix = -hessian(f)(x)
    chol = torch.linalg.cholesky(0.5 * (matrix + matrix.mT))
    z = torch.linalg.solve_triangular(chol, grad(f)(x)[:, None], upper=False)
    log_det = chol.diagonal().log().sum()
    return f(x) + 0.5 * z.square().sum() + 0.5 * len(x) * LOG_2PI - log_det


def quadratic(case):
    return float(gaussian(lambda x: case.log_prob(x[None])[0], case.start.mean.double().clone()))


def conditional(given, bounds, intervals, case):
    """Quadrature over some coordinates, given which the others are Gaussian."""
    rest = [i for i in range(case.dim) if i not in given]
    order = torch.tensor([*given, *rest]).argsort()
    middle = case.start.mean[rest]

    def inner(t):
        def of_rest(z):
            return case.log_prob(torch.cat([t, z])[order][None])[0]

        return gaussian(of_rest, middle)

    return on_grid(lambda t: vmap(inner, chunk_size=500)(t), bounds, intervals).log_z


def separable(case, reach=35.0):
    """A product over coordinates, of integrals along lines through the middle of q0."""
    middle, scale = case.start.mean, case.start.scale_tril.diagonal()
    base = float(case.log_prob(middle[None]))
    total = base
    for i in range(case.dim):

        def along(u, i=i):
            x = middle.repeat(len(u), 1)
            x[:, i] = middle[i] + scale[i] * u.sinh()
            return case.log_prob(x) - base + (scale[i] * u.cosh()).log()

        total += line(along, -reach, reach, 6000)
    return total


def radial(high, case):
    """By the distance from the origin, for densities that are the same in all directions."""
    d = case.dim

    def along(u):
        x = torch.zeros(len(u), d, dtype=D)
        x[:, 0] = u.exp()
        return case.log_prob(x) + d * u

    surface = math.log(2) + 0.5 * d * math.log(math.pi) - math.lgamma(d / 2)
    return surface + line(along, -12.0, math.log(high), 40_000)


def grid(bounds, intervals, case):
    return on_grid(case.log_prob, bounds, intervals).log_z


def pairs(case):
    """Independent pairs of coordinates, of which all but one are at the maximum."""

    def one(x):
        others = torch.ones(len(x), case.dim - 2, dtype=D)
        return case.log_prob(torch.cat([x, others], -1))

    pair = replace(case, dim=2, log_prob=one)
    return case.dim // 2 * conditional([0], [(-4, 6)], 300, pair)


QUADRATIC = (
    "gaussian-1 gaussian-ar-100 gaussian-equal-10 gaussian-shifted-50 scales-3 scales-11 "
    "scales-unknown-7 scales-offset-3 rotated-5 far-5 far-default-5 tight-10 calendar-2 offset-5 "
    "float32-gaussian-10 float32-offset-5 float32-cancelled-1"
)
SEPARABLE = (
    "log-gamma-8 gumbel-20 quartic-6 inverse-gaussian-4 t4-independent-20 cauchy-1 "
    "cauchy-independent-2 logistic-8 skewed-scales-4 wells-8 uniform-logits-10 plateau-5 box-3 "
    "beta-binomial-1"
)
RADIAL = {"t5-10": 1e6, "t3-2": 1e6, "t2-5": 1e7, "contaminated-10": 200.0, "ring-2": 20.0}
RADIAL |= {"sphere-5": 20.0}

EXACT = {
    **dict.fromkeys(QUADRATIC.split(), quadratic),
    **dict.fromkeys(SEPARABLE.split(), separable),
    **{key: partial(radial, high) for key, high in RADIAL.items()},
    "float32-t5-5": partial(radial, 1e6),
    "laplace-5": partial(separable, reach=12.0),
    "stretched-1": partial(separable, reach=20.0),
    "rastrigin-2": partial(separable, reach=3.0),
    "lopsided-2": partial(grid, [(-5, 5), (-5, 12)], [200, 300]),
    "banana-2": partial(conditional, [0], [(-90, 90)], 400),
    "banana-10": partial(conditional, [0], [(-90, 90)], 400),
    "rosenbrock-2": partial(conditional, [0], [(-4, 6)], 300),
    "rosenbrock-pairs-10": pairs,
    "rosenbrock-pairs-20": pairs,
    "wave-2": partial(conditional, [0], [(-25, 25)], 400),
    "product-2": partial(conditional, [0], [(-18, 18)], 1200),
    "eight-schools-centred-10": partial(conditional, [9], [(-14, 9)], 200),
    "eight-schools-non-centred-10": partial(conditional, [9], [(-14, 9)], 200),
    "funnel-2": partial(conditional, [0], [(-20, 20)], 200),
    "funnel-10": partial(conditional, [0], [(-20, 20)], 200),
    "radiata-density-3": partial(conditional, [2], [(-14, -9.5)], 200),
    "radiata-adjusted-3": partial(conditional, [2], [(-14, -9.5)], 200),
    "kidscore-simulated-5": partial(conditional, [4], [(2.6, 3.2)], 60),
    "ark-simulated-7": partial(conditional, [6], [(-2.3, -1.4)], 60),
    "location-scale-2": partial(conditional, [1], [(-0.43, -0.29)], 40),
}


SLOW = {
    "dyes-9": partial(conditional, [7, 8], [(-8, 6.4), (2.7, 5.8)], [120, 40]),
    "planet-4": partial(conditional, [3], [(-10, 10)], 5000),
    "radon-centred-89": partial(conditional, [87, 88], [(-2.6, 0), (-0.42, -0.14)], [20, 14]),
    "radon-non-centred-89": partial(conditional, [87, 88], [(-2.6, 0), (-0.42, -0.14)], [20, 14]),
}
