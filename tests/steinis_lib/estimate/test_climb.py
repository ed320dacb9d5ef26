import math

import pytest
import torch

from steinis_lib import Gaussian, LogProb
from steinis_lib.estimate.climb import climb, laplace, modes
from steinis_lib.estimate.space import Space

D = torch.float64


def space(function, dim, **options):
    q0 = Gaussian.isotropic(torch.zeros(dim, dtype=D))
    return Space(LogProb(function, dim), q0, **options)


def starts(n, dim, generator, scale=1.0):
    return scale * torch.randn(n, dim, generator=generator, dtype=D)


def test_scales_from_1e_6_to_1e4_do_not_matter(generator):
    scales = 10 ** torch.linspace(-6, 4, 5, dtype=D)
    counts = []

    def function(x):
        counts.append(len(x))
        return -0.5 * ((x - 1) / scales).square().sum(-1)

    inside = space(function, 5)
    found = modes(inside, climb(inside, starts(8, 5, generator)), 10, 10.0)
    assert len(found.means) == 1
    assert (((found.means[0] - 1) / scales).abs() < 0.1).all()
    torch.testing.assert_close(found.scale_trils[0], torch.diag(scales), rtol=1e-3, atol=1e-6)
    expected = 2.5 * math.log(2 * math.pi) + float(scales.log().sum())
    assert abs(float(found.log_mass[0]) - expected) < 0.02
    assert sum(counts) < 5000


def test_correlated_directions_are_found(generator):
    tril = torch.tensor([[1.0, 0.0], [0.999, 0.02]], dtype=D)
    precision = torch.linalg.inv(tril @ tril.T)
    inside = space(lambda x: -0.5 * torch.einsum("ni,ij,nj->n", x, precision, x), 2)
    factor = laplace(inside, torch.zeros(2, dtype=D), torch.eye(2, dtype=D), 6)
    torch.testing.assert_close(factor, tril, rtol=1e-4, atol=1e-5)


def test_each_mode_is_found_once_with_its_visits(generator):
    def function(x):
        return torch.logsumexp(torch.stack([-4 * (x - m).square().sum(-1) for m in (-2, 2)]), 0)

    inside = space(function, 2)
    found = modes(inside, climb(inside, starts(20, 2, generator, 2.0)), 10, 10.0)
    assert len(found.means) == 2
    assert int(found.visits.sum()) == 20
    assert (found.visits > 2).all()
    torch.testing.assert_close(
        found.means.abs(), torch.full_like(found.means, 2.0), rtol=0.02, atol=0.0
    )


def test_modes_of_little_mass_are_dropped(generator):
    def function(x):
        low = -4 * (x + 2).square().sum(-1) - 12
        return torch.logaddexp(-4 * (x - 2).square().sum(-1), low)

    inside = space(function, 1)
    ends = climb(inside, torch.tensor([[-2.0], [2.0]], dtype=D))
    assert len(modes(inside, ends, 10, 10.0).means) == 1
    both = modes(inside, ends, 10, 15.0)
    assert (len(both.means), both.n_heavy(10.0)) == (2, 1)
    assert len(modes(inside, ends, 1, 15.0).means) == 1


def test_points_without_density_stay_where_they_are(generator):
    inside = space(lambda x: torch.where(x[:, 0] < 0, -torch.inf, -x.square().sum(-1)), 1)
    ends = climb(inside, torch.tensor([[-1.0], [1.0]], dtype=D))
    assert ends.x[0] == -1
    assert torch.isfinite(ends.log_p).tolist() == [False, True]
    assert len(modes(inside, ends, 5, 10.0).means) == 1
    nothing = climb(inside, torch.tensor([[-1.0]], dtype=D))
    assert len(modes(inside, nothing, 5, 10.0).means) == 0


@pytest.mark.parametrize("function", [lambda x: 0 * x.sum(-1), lambda x: x.sum(-1)])
def test_a_density_without_a_mode_ends_all_the_same(function, generator):
    inside = space(function, 2)
    ends = climb(inside, starts(4, 2, generator))
    assert torch.isfinite(ends.log_p).all()
