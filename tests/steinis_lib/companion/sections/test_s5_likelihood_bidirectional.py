"""Bounds on a bent, skewed density of two dimensions, whose log Z and samples come from a grid."""

import math

import pytest
import torch

from steinis_lib import Gaussian, LogProb
from steinis_lib.baselines.geometric_path import linear_schedule
from steinis_lib.companion.sections.s5_likelihood.bidirectional import bidirectional
from steinis_lib.extensions.gaussian_flow import GaussianFlow
from steinis_lib.targets.whitened import WhitenedTarget


def log_prob(x):
    a, b = x[:, 0], x[:, 1]
    return -0.5 * (a - 0.5) ** 2 - 2 * (b - 0.6 * a**2) ** 2 - torch.nn.functional.softplus(2 * b)


TARGET = LogProb(log_prob, dim=2)
Q0 = Gaussian.isotropic(torch.tensor([0.4, 0.0]), 1.0)
GRID = torch.linspace(-6, 8, 1401)
PLANE = torch.cartesian_prod(GRID, GRID)
LOG_P = log_prob(PLANE)
LOG_Z = float(LOG_P.logsumexp(0) + 2 * math.log(0.01))


def exact(n, seed=1):
    """Draws from p, up to a cell of the grid."""
    g = torch.Generator().manual_seed(seed)
    near = LOG_P.max() - LOG_P < 40
    index = torch.multinomial((LOG_P[near] - LOG_P.max()).exp(), n, True, generator=g)
    return PLANE[near][index] + 0.01 * (torch.rand(n, 2, generator=g) - 0.5)


def run(samples, n_transitions, seed=2, n_chains=6, step_size=0.4):
    return bidirectional(
        TARGET,
        Q0,
        samples,
        torch.Generator().manual_seed(seed),
        n_chains=n_chains,
        schedule=linear_schedule(n_transitions),
        step_size=step_size,
        n_leapfrog=2,
    )


def sigmas(values, expected):
    return float((values.mean() - expected) / (values.std() / math.sqrt(len(values))))


@pytest.fixture(scope="module")
def bounds():
    return run(exact(3000), 12)


def test_both_ways_are_unbiased(bounds):
    """E Ẑ = Z upwards and E 1/Ẑ = 1/Z downwards, although all chains down start at one point."""
    assert abs(sigmas((bounds.lower - LOG_Z).exp(), 1.0)) < 4
    assert abs(sigmas((LOG_Z - bounds.upper).exp(), 1.0)) < 4
    assert (bounds.lower - LOG_Z).exp().std() < 1.5  # so that the test has power
    assert (LOG_Z - bounds.upper).exp().std() < 1.5


@pytest.mark.slow
def test_bounds_enclose_log_z_and_close(bounds):
    assert sigmas(bounds.lower, LOG_Z) < -4
    assert sigmas(bounds.upper, LOG_Z) > 4
    longer = run(exact(3000, seed=3), 60)
    assert longer.gap.mean() < 0.4 * bounds.gap.mean()
    assert torch.equal(longer.gap, longer.upper - longer.lower)


def test_a_bound_rarely_misses_by_much(bounds):
    """P(lower > log Z + a) ≤ e^-a, and the same for the upper bound."""
    for a in (0.5, 1.0, 2.0):
        for excess in (bounds.lower - LOG_Z, LOG_Z - bounds.upper):
            assert (excess > a).double().mean() <= math.exp(-a)


def test_a_start_that_is_no_draw_from_p_gives_no_bound():
    """From any one point 1/Ẑ is biased: exactness is what makes a bound."""
    for point in ([0.0, 0.2], [2.0, 2.4]):
        wrong = run(torch.tensor(point).expand(3000, 2), 2)
        assert abs(sigmas((LOG_Z - wrong.upper).exp(), 1.0)) > 5


def test_a_fitted_gaussian_is_a_base_and_closes_the_gap():
    """From where the affine flow ends, in its coordinates, and from where it began: equal cost."""
    far = Gaussian.isotropic(torch.tensor([2.5, -2.0]), 1.0)
    flow = GaussianFlow(TARGET, far, n_leaders=100)
    generator = torch.Generator().manual_seed(4)
    q = flow.proposal(flow.run(flow.init(generator), 40))
    samples, gaps = exact(2000, seed=5), []
    for base in (q, far):
        inside = WhitenedTarget(TARGET, base)
        u = torch.linalg.solve_triangular(base.scale_tril, (samples - base.mean).mT, upper=False).mT
        settings = {"schedule": linear_schedule(8), "step_size": 0.4, "n_leapfrog": 2}
        found = bidirectional(inside, inside.base(), u, generator, n_chains=6, **settings)
        gaps.append(found.gap)
        if base is q:
            assert abs(sigmas((found.lower - LOG_Z).exp(), 1.0)) < 4
            assert abs(sigmas((LOG_Z - found.upper).exp(), 1.0)) < 4
    assert sigmas(gaps[1] - 2 * gaps[0], 0.0) > 4


def test_same_seed_same_bounds():
    a, b, other = (run(exact(5), 4, seed=s) for s in (1, 1, 2))
    assert torch.equal(a.lower, b.lower) and torch.equal(a.upper, b.upper)
    assert not torch.equal(a.upper, other.upper)


@pytest.mark.parametrize("samples", [torch.zeros(3, 5), torch.full((3, 2), torch.nan)])
def test_bad_samples_are_refused(samples):
    with pytest.raises((ValueError, FloatingPointError), match="the exact sample"):
        run(samples, 4)
