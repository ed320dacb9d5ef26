import math

import pytest
import torch

from steinis_lib import GaussianMixture, Target
from steinis_lib.companion.problems.warped import WarpedMixture
from steinis_lib.companion.sections.s2_mixtures.direct import direct_sampling

ODD = {"a1": -1.3, "a2": 0.4, "a3": 0.7, "b1": 0.2, "b2": -0.6}


def warped(batch=(), **numbers):
    """A mixture without symmetry, warped; along a batch axis the means shift."""
    log_weights = torch.tensor([0.5, 0.3, 0.2]).log()
    means = torch.tensor([[-1.4, 0.3], [1.1, 0.9], [0.4, -1.2]])
    scales = torch.tensor([[0.7, 0.5], [0.4, 0.9], [0.8, 0.6]])
    shift = 0.3 * torch.arange(math.prod(batch)).reshape(*batch, 1, 1)
    mixture = GaussianMixture(
        log_weights.expand(*batch, 3), means + shift, scales.expand(*batch, 3, 2)
    )
    return WarpedMixture(mixture, **numbers)


def quadrature():
    """Points of a grid that holds all the mass, and the area of a cell."""
    first, second = torch.linspace(-8, 8, 801), torch.linspace(-8, 20, 1401)
    return torch.cartesian_prod(first, second), 0.02**2


@pytest.mark.parametrize("numbers", [{}, ODD])
def test_density_is_normalised_and_its_mean_is_exact(numbers):
    target = warped(**numbers)
    x, cell = quadrature()
    p = target.log_prob(x).exp() * cell
    assert abs(p.sum() - 1) < 1e-9
    torch.testing.assert_close(p @ x, target.mean, atol=1e-8, rtol=0)
    assert target.log_z == 0


@pytest.mark.parametrize("batch", [(), (2, 3)])
@pytest.mark.parametrize("numbers", [{}, ODD])
def test_score_is_the_gradient(batch, numbers, generator):
    target = warped(batch, **numbers)
    x = 2 * torch.randn(*batch, 6, 2, generator=generator)
    x.requires_grad_(True)
    log_p = target.log_prob(x)
    (expected,) = torch.autograd.grad(log_p.sum(), x)
    torch.testing.assert_close(target.score(x), expected)
    both = target.log_prob_and_score(x)
    torch.testing.assert_close(both[0], log_p)
    torch.testing.assert_close(both[1], expected)
    assert isinstance(target, Target)


def test_density_is_that_of_the_mixture_by_change_of_variables(generator):
    """The Jacobian of `forward` by autograd, at z; the paper's formula is in `forward` itself."""
    target = warped(**ODD)
    z = torch.randn(5, 2, generator=generator)
    x = target.forward(z)
    expected = [-1.3 * z[:, 0] + 0.2, 0.4 * z[:, 0] ** 2 + 0.7 * z[:, 1] - 0.6]
    torch.testing.assert_close(x, torch.stack(expected, -1))
    torch.testing.assert_close(target.inverse(x), z)
    jacobian = torch.func.vmap(torch.func.jacrev(target.forward))(z)
    log_det = torch.linalg.slogdet(jacobian).logabsdet
    torch.testing.assert_close(target.log_prob(x), target.mixture.log_prob(z) - log_det)


def test_defaults_are_the_stated_ones():
    z = torch.tensor([[2.0, 0.5]])
    torch.testing.assert_close(warped().forward(z), torch.tensor([[2.0, 0.35 * 4 + 0.5 - 1.5]]))


def test_samples_have_the_moments_of_the_density(generator):
    target, n = warped(**ODD), 40_000
    draws = target.sample((n,), generator)
    x, cell = quadrature()
    p = target.log_prob(x).exp() * cell
    for f in (lambda x: x, torch.square, lambda x: x[..., :1] ** 2 * x[..., 1:]):
        values = f(draws)
        error = values.std(0) / n**0.5
        assert ((values.mean(0) - p @ f(x)).abs() < 4 * error).all()


def test_batches_are_targets_of_their_own(generator):
    target = warped((2, 3), **ODD)
    x = torch.randn(2, 3, 5, 2, generator=generator)
    means = target.mixture.means[1, 2]
    alone = WarpedMixture(
        GaussianMixture(target.mixture.log_weights[1, 2], means, target.mixture.scales[1, 2]), **ODD
    )
    torch.testing.assert_close(target.log_prob(x)[1, 2], alone.log_prob(x[1, 2]))
    torch.testing.assert_close(target.mean[1, 2], alone.mean)
    n = 10_000
    draws = target.sample((2, 3, n), generator)
    error = draws.std(-2) / n**0.5
    assert ((draws.mean(-2) - target.mean).abs() < 4 * error).all()
    assert target.log_z.shape == (2, 3)


def test_direct_sampling_draws_from_it(generator):
    target = warped()
    sample = direct_sampling(target, (1000,), generator)
    mean, error = sample.expectation(lambda x: x)
    assert ((mean - target.mean).abs() < 4 * error).all()
    assert sample.log_z == 0


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"a1": 0.0}, "a1 and a3 must not be zero.*a1=0.0"),
        ({"a3": 0.0}, "a1 and a3 must not be zero.*a3=0.0"),
        ({"b2": math.nan}, "must be finite"),
        ({"a2": math.inf}, "must be finite"),
    ],
)
def test_maps_without_an_inverse_are_refused(numbers, message):
    with pytest.raises(ValueError, match=message):
        warped(**numbers)


def test_other_dimensions_are_refused(lopsided):
    with pytest.raises(ValueError, match="must have d=2, got d=1"):
        WarpedMixture(lopsided)
