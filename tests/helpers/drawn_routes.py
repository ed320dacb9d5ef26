"""Second routes to log Z for the targets of benchmarks/evidence that need draws.

`DRAWN` weighs draws and returns a standard error too; `NORMALISED` has the components of mixtures.
"""

import math
from functools import partial

import numpy as np
import torch
from evidence import datasets, hierarchical
from evidence.cases import CASES
from evidence.long_runs import importance_run
from scipy import stats
from torch.nn.functional import logsigmoid

D = torch.float64
LOG_2PI = math.log(2 * math.pi)


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


def run(case, draws=4000, symmetries=1):
    """An importance run from a t at the mode, and copies of it."""
    found = importance_run(case, draws, seed=7, enough=0.04)
    return found["log_z"] + math.log(symmetries), found["se"]


def from_q0(case, n=200_000):
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


def by_their_betas(case, n=40_000):
    """Hyperparameters from a wide normal, averages of players from their beta posterior."""
    z = torch.randn(n, 2, generator=generator(), dtype=D)
    middle, width = torch.tensor([-1.02, 4.7], dtype=D), torch.tensor([0.15, 1.2], dtype=D)
    hyper = middle + width * z
    size = hyper[:, 1:].exp()
    a = hyper[:, :1].sigmoid() * size
    a, b = a + datasets.HITS, size - a + datasets.AT_BATS - datasets.HITS
    rng = np.random.default_rng(5)
    logits = torch.as_tensor(np.log(rng.gamma(a.numpy())) - np.log(rng.gamma(b.numpy())))
    log_q = -(0.5 * (z.square() + LOG_2PI) + width.log()).sum(-1)
    log_beta = torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)
    log_q = log_q + (a * logsigmoid(logits) + b * logsigmoid(-logits) - log_beta).sum(-1)
    return weighed(case.log_prob(torch.cat([logits, hyper], -1)) - log_q)


RUNS = (
    "dirichlet-9 skew-normal-10 sleep-t-test-2 o-rings-2 bioassay-2 coal-2 pima-8 wells-4 "
    "faithful-5 garch-simulated-4 logistic-regression-6 poisson-regression-4 "
    "float32-logistic-regression-6 float32-binomial-1"
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
    "baseball-20": by_their_betas,
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
