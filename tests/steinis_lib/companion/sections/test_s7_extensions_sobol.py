import math

import pytest
import torch
from scipy import stats

from steinis_lib import RBF, Gaussian, SteinIS
from steinis_lib.companion.sections.s7_extensions.sobol import CELL, normal_scores, sobol_sample

MEAN = torch.tensor([0.5, -1.0, 2.0])
TILT = torch.tensor([[1.3, 0.0, 0.0], [0.8, 0.5, 0.0], [-0.4, 0.3, 2.0]])


@pytest.fixture
def q0():
    return Gaussian(MEAN, TILT)


def curved(x):
    """Functions without symmetry, their expectations under q_0 exact by hand."""
    return torch.stack([x[..., 0] + 0.5 * x[..., 1] ** 2, (0.3 * x).sum(-1).exp()], -1)


def exact():
    covariance, w = TILT @ TILT.mT, torch.full((3,), 0.3)
    second = 0.5 * (MEAN[1] ** 2 + covariance[1, 1])
    return torch.stack([MEAN[0] + second, (w @ MEAN + 0.5 * w @ covariance @ w).exp()])


def test_averages_are_unbiased_and_vary_less_than_independent_ones(q0, generator):
    """64 points: standard deviations of averages over 400 scramblings, beside those of draws."""
    averages = curved(sobol_sample(q0, (400, 64), generator)).mean(-2)
    error = averages.std(0) / 20
    assert ((averages.mean(0) - exact()).abs() < 4 * error).all()
    independent = curved(q0.sample((400, 64), generator)).mean(-2)
    assert (averages.std(0) < 0.4 * independent.std(0)).all()


def test_each_point_has_the_law_of_the_gaussian(q0, generator):
    """One point of each scrambling: these are independent, so that a KS test is exact."""
    x = sobol_sample(q0, (3000, 8), generator)
    z = torch.linalg.solve_triangular(TILT, (x - MEAN).mT, upper=False).mT
    for point in (0, 5):  # the first is made differently from the rest
        for k in range(3):
            assert stats.kstest(z[:, point, k].numpy(), "norm").pvalue > 1e-3
        correlation = torch.corrcoef(z[:, point].mT) - torch.eye(3)
        assert correlation.abs().max() < 4 / math.sqrt(3000)


def test_every_coordinate_is_stratified(q0, generator):
    """Of 2^k points, one lies in each of 2^k intervals of equal mass."""
    z = torch.linalg.solve_triangular(
        TILT, (sobol_sample(q0, (5, 32), generator) - MEAN).mT, upper=False
    ).mT
    cells = (32 * torch.special.ndtr(z)).floor().sort(-2).values
    assert torch.equal(cells, torch.arange(32.0)[:, None].expand(5, 32, 3))


def test_points_follow_from_the_generator_and_differ_over_the_batch(q0):
    a, b, c = (
        sobol_sample(q0, (2, 3, 16), torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(a, b)
    flat = torch.cat([a, c]).flatten(0, 1)
    for i in range(len(flat)):
        for j in range(i):
            assert (flat[i] - flat[j]).abs().min() > 0
    generator = torch.Generator().manual_seed(1)
    assert torch.equal(sobol_sample(q0, (2, 3, 16), generator), a)
    assert (sobol_sample(q0, (2, 3, 16), generator) - a).abs().min() > 0  # it has moved on
    torch.rand(3)  # draws elsewhere do not matter
    assert torch.equal(sobol_sample(q0, (2, 3, 16), torch.Generator().manual_seed(1)), a)


def test_batches_of_gaussians_broadcast(q0):
    """The same scramblings, each shifted and scaled by its own Gaussian."""
    q = Gaussian(torch.stack([MEAN, MEAN + 1]), torch.stack([TILT, 2 * TILT]))
    both = sobol_sample(q, (2, 8), torch.Generator().manual_seed(4))
    plain = sobol_sample(q0, (2, 8), torch.Generator().manual_seed(4))
    torch.testing.assert_close(both[0], plain[0])
    torch.testing.assert_close(both[1], 2 * (plain[1] - MEAN) + MEAN + 1)
    alone = sobol_sample(q0, (8,), torch.Generator().manual_seed(4))
    assert torch.equal(alone, plain[0])
    assert sobol_sample(q0, (0, 8), torch.Generator()).shape == (0, 8, 3)


def test_no_point_is_infinite():
    """Both ends of what the engine can return, and 1, to which its first point can be rounded."""
    ends = torch.tensor([0.0, 1 - CELL, 1.0])
    z = normal_scores(ends)
    assert torch.isfinite(z).all()
    torch.testing.assert_close(z[1], -z[0])
    torch.testing.assert_close(z[2], -z[0])
    torch.testing.assert_close(torch.special.ndtr(z[0]), torch.tensor(CELL / 2))
    assert torch.isfinite(z.float()).all()


def test_dtype_follows_the_gaussian_even_where_the_default_is_single():
    torch.set_default_dtype(torch.float32)
    try:
        x = sobol_sample(Gaussian.isotropic(torch.zeros(2)), (2000, 2), torch.Generator())
    finally:
        torch.set_default_dtype(torch.float64)
    assert x.dtype == torch.float32
    assert torch.isfinite(x).all()


def test_z_is_unbiased_with_leaders_from_it(skewed, wide, generator):
    sampler = SteinIS(skewed, wide, kernel=RBF(multiplier=2.0))
    leaders = sobol_sample(wide, (300, 32), generator)
    followers = wide.sample((300, 40), generator)
    state = sampler.run(sampler.start(leaders, followers, wide.log_prob(followers)), 25)
    ratio = (sampler.importance_sample(state).log_z - skewed.log_z).exp()
    error = ratio.std() / 300**0.5
    assert int(state.n_folds.sum()) == 0
    assert error < 0.015
    assert abs(ratio.mean() - 1) < 4 * error


@pytest.mark.parametrize("shape", [(), (3, 0)])
def test_no_points_are_refused(q0, shape, generator):
    with pytest.raises(ValueError, match="n at least 1, got"):
        sobol_sample(q0, shape, generator)
