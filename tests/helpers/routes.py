"""Second routes to log Z for the targets of benchmarks/evidence, from the joint density alone.

`EXACT` and `SLOW` integrate; `DRAWN` weighs draws and returns a standard error too; `NORMALISED`
has the components of mixtures.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from evidence import datasets, hierarchical
from evidence.cases import CASES
from evidence.long_runs import importance_run
from evidence.truths import line, on_grid
from scipy import stats
from torch.func import grad, hessian, vmap

D = torch.float64
LOG_2PI = math.log(2 * math.pi)


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


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

    def inner(t):
        def of_rest(z):
            return case.log_prob(torch.cat([t, z])[order][None])[0]

        return gaussian(of_rest, torch.zeros(len(rest), dtype=D))

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
    "dyes-9": partial(conditional, [7, 8], [(-13, 6.4), (2.7, 5.8)], [160, 40]),
    "planet-4": partial(conditional, [3], [(-10, 10)], 5000),
    "radon-centred-89": partial(conditional, [87, 88], [(-2.6, 0), (-0.42, -0.14)], [20, 14]),
    "radon-non-centred-89": partial(conditional, [87, 88], [(-2.6, 0), (-0.42, -0.14)], [20, 14]),
}


def run(case, draws=4000, symmetries=1):
    """An importance run from a t at the mode, and copies of it."""
    found = importance_run(case, draws, seed=7, enough=0.04)
    return found["log_z"] + math.log(symmetries), found["se"]


def from_q0(case, n=400_000):
    """Draws from q0, where that is wide and the dimension low."""
    x = case.start.sample((n,), generator())
    log_w = torch.cat([case.log_prob(piece) for piece in x.split(5000)])
    return weighed(log_w - case.start.log_prob(x))


def weighed(log_w):
    w = (log_w - log_w.max()).exp()
    mean = float(w.mean())
    return math.log(mean) + float(log_w.max()), float(w.std()) / mean / math.sqrt(len(w))


def in_a_box(low, high, case, n=400_000):
    """Plain Monte Carlo."""
    u = torch.rand(n, case.dim, generator=generator(), dtype=D)
    volume = case.dim * math.log(high - low)
    return weighed(case.log_prob(low + (high - low) * u) + volume)


def from_cauchy_priors(case, n=200_000):
    """The mean likelihood under the priors."""
    scales = torch.tensor([10.0, 2.5], dtype=D)
    u = torch.rand(n, 2, generator=generator(), dtype=D)
    x = scales * (math.pi * (u - 0.5)).tan()
    log_q = -(math.pi * scales).log() - (x / scales).square().log1p()
    return weighed(case.log_prob(x) - log_q.sum(-1))


def under_the_horseshoe(centred, case, n=300_000):
    """Scales from a wide sech, means from their posterior given the scales."""
    u = torch.rand(n, 6, generator=generator(), dtype=D)
    log_scales = 1.5 * (0.5 * math.pi * u).tan().log()
    z = log_scales / 1.5
    log_q = (math.log(2 / math.pi) + z - (2 * z).exp().log1p() - math.log(1.5)).sum(-1)
    scale = (log_scales[:, :5] + log_scales[:, 5:]).exp()
    shrunk = scale.square() / (1 + scale.square())
    noise = torch.randn(n, 5, generator=generator(6), dtype=D)
    beta = shrunk * hierarchical.SPARSE + shrunk.sqrt() * noise
    log_q = log_q - (0.5 * (noise.square() + LOG_2PI) + 0.5 * shrunk.log()).sum(-1)
    inner = beta if centred else beta / scale
    if not centred:
        log_q = log_q + scale.log().sum(-1)
    x = torch.cat([inner, log_scales[:, :5], log_scales[:, 5:]], -1)
    keep = torch.isfinite(x).all(-1) & (scale.log().abs() < 30).all(-1)  # what is out has no mass
    log_w = torch.full_like(log_q, -torch.inf)
    log_w[keep] = case.log_prob(x[keep]) - log_q[keep]
    return weighed(log_w)


def by_their_gammas(case, n=40_000):
    """Hyperparameters from a wide normal, the rates of pumps from their gamma posterior."""
    z = torch.randn(n, 2, generator=generator(), dtype=D)
    middle, width = torch.tensor([-0.4, -0.2], dtype=D), torch.tensor([0.6, 1.0], dtype=D)
    hyper = middle + width * z
    a, b = hyper.exp().split(1, -1)
    shape, rate = a + datasets.PUMP_FAILURES, b + datasets.PUMP_HOURS
    g = np.random.default_rng(5).gamma(shape.numpy())
    log_theta = torch.as_tensor(np.log(g)) - rate.log()
    log_q = -(0.5 * (z.square() + LOG_2PI) + width.log()).sum(-1)
    log_gamma = shape * rate.log() - torch.lgamma(shape) + shape * log_theta
    log_q = log_q + (log_gamma - rate * log_theta.exp()).sum(-1)
    return weighed(case.log_prob(torch.cat([log_theta, hyper], -1)) - log_q)


RUNS = (
    "dirichlet-9 skew-normal-10 sleep-t-test-2 o-rings-2 bioassay-2 coal-2 pima-8 wells-4 "
    "faithful-5 garch-simulated-4 logistic-regression-6 poisson-regression-4 "
    "float32-logistic-regression-6 float32-binomial-1 baseball-20"
)
DRAWN = {
    **dict.fromkeys(RUNS.split(), run),
    "galaxies-3": from_q0,
    "labels-3": partial(run, symmetries=6),
    "two-moons-2": partial(in_a_box, -4.0, 4.0),
    "himmelblau-2": partial(in_a_box, -7.0, 7.0),
    "separable-cauchy-2": from_cauchy_priors,
    "horseshoe-centred-11": partial(under_the_horseshoe, True),
    "horseshoe-non-centred-11": partial(under_the_horseshoe, False),
    "pumps-12": by_their_gammas,
}


def normals(key, *parts):
    """Isotropic normal components: weight, centre (a number for all coordinates), scale."""
    d = CASES[key].dim
    return [
        (weight, stats.multivariate_normal(np.broadcast_to(centre, d), sd**2 * np.eye(d)))
        for weight, centre, sd in parts
    ]


def first(centre, d):
    return np.concatenate([[centre], np.zeros(d - 1)])


def total(parts):
    return math.log(sum(weight for weight, _ in parts))


ANGLES = np.arange(8) * math.pi / 4
NORMALISED = {
    "two-equal-2": normals("two-equal-2", (0.5, -5, 1), (0.5, 5, 1)),
    "two-apart-5": normals("two-apart-5", (0.5, first(-50, 5), 1), (0.5, first(50, 5), 1)),
    "two-unequal-weight-10": normals("two-unequal-weight-10", (0.95, -2, 1), (0.05, 2, 1)),
    "two-unequal-width-5": normals("two-unequal-width-5", (0.5, -2, 0.3), (0.5, 2, 1)),
    "two-unequal-width-10": normals(
        "two-unequal-width-10", (0.5, first(-3, 10), 0.1), (0.5, first(3, 10), 1)
    ),
    "beyond-q0-1": normals("beyond-q0-1", (0.5, 0, 1), (0.5, 8, 1)),
    "beyond-q0-symmetric-1": normals("beyond-q0-symmetric-1", (0.5, -8, 1), (0.5, 8, 1)),
    "spike-0.1-10": normals("spike-0.1-10", (0.1, 0, 1), (0.9, 0, 0.1)),
    "spike-0.5-10": normals("spike-0.5-10", (0.5, 0, 1), (0.5, 0, 0.1)),
    "spike-0.9-10": normals("spike-0.9-10", (0.9, 0, 1), (0.1, 0, 0.1)),
    "skilling-20": normals("skilling-20", (1, 0, 0.1), (100, 0.031, 0.01)),
    "circle-2": normals(
        "circle-2",
        *(
            ((i + 1) / 36, 10 * np.array([math.cos(angle), math.sin(angle)]), 1)
            for i, angle in enumerate(ANGLES)
        ),
    ),
    "two-heavy-5": [
        (0.7, stats.multivariate_t(np.full(5, -4.0), np.eye(5), 3)),
        (0.3, stats.multivariate_t(np.full(5, 4.0), 0.09 * np.eye(5), 3)),
    ],
}
