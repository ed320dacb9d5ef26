import pytest
import torch
from annealing_checks import z_ratio

from steinis_lib import Gaussian, GaussianMixture, Target
from steinis_lib.baselines.geometric_path import linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.targets.whitened import WhitenedTarget

MEAN = torch.tensor([[0.3, 0.5], [0.0, 1.2]])
TILTED = torch.tensor([[[1.4, 0.0], [0.5, 1.1]], [[1.7, 0.0], [-0.4, 1.6]]])


@pytest.fixture
def two():
    """Two Gaussians, tilted differently, neither at the target's mean."""
    return Gaussian(MEAN, TILTED)


def test_z_is_unchanged_by_quadrature(skewed, two):
    u = torch.cartesian_prod(torch.linspace(-8, 8, 501), torch.linspace(-9, 9, 501))
    cell = (16 / 500) * (18 / 500)
    mass = WhitenedTarget(skewed, two).log_prob(u.expand(2, *u.shape)).exp().sum(-1) * cell
    torch.testing.assert_close(mass, skewed.log_z.exp().expand(2), atol=1e-6, rtol=0)


@pytest.mark.parametrize("diagonal", [False, True])
def test_the_score_is_the_gradient(skewed, two, diagonal, generator):
    q = Gaussian(MEAN, torch.diag_embed(TILTED.diagonal(dim1=-2, dim2=-1))) if diagonal else two
    target = WhitenedTarget(skewed, q)
    u = torch.randn(2, 7, 2, generator=generator).requires_grad_(True)
    (gradient,) = torch.autograd.grad(target.log_prob(u).sum(), u)
    log_p, score = target.log_prob_and_score(u.detach())
    torch.testing.assert_close(score, gradient)
    torch.testing.assert_close(target.score(u.detach()), gradient)
    torch.testing.assert_close(log_p, target.log_prob(u.detach()))
    assert isinstance(target, Target)
    assert target.dim == 2


def test_weights_are_those_of_the_gaussian(skewed, two, generator):
    target = WhitenedTarget(skewed, two)
    x = two.sample((2, 50), generator)
    u = torch.linalg.solve(TILTED, (x - MEAN.unsqueeze(-2)).mT).mT
    torch.testing.assert_close(target.to_x(u), x)
    expected = skewed.log_prob(x) - two.log_prob(x)
    torch.testing.assert_close(target.log_prob(u) - target.base().log_prob(u), expected)


def test_batch_axes_broadcast(two, generator):
    """A batch of Gaussians, of targets, of particles, or of any two of these."""
    means = torch.tensor([[[0.4, -1.0], [1.5, 0.3]], [[-0.2, 0.7], [0.9, -0.9]]])
    log_weights = torch.tensor([0.3, 0.7]).log().expand(2, 2)
    mixtures = GaussianMixture(log_weights, means, 0.5 + means.abs())
    one = GaussianMixture(log_weights[0], means[0], 0.5 + means[0].abs())
    single = Gaussian(MEAN[1], TILTED[1])
    u = torch.randn(2, 6, 2, generator=generator)
    for target, q, points in ((mixtures, single, u), (one, two, u), (mixtures, two, u[0])):
        log_p, score = WhitenedTarget(target, q).log_prob_and_score(points)
        assert score.shape == (2, 6, 2)
        at = points.expand(2, 6, 2)[1]
        alone_target = (
            GaussianMixture(log_weights[1], means[1], 0.5 + means[1].abs())
            if target is mixtures
            else one
        )
        alone = WhitenedTarget(alone_target, single).log_prob_and_score(at)
        torch.testing.assert_close(log_p[1], alone[0])
        torch.testing.assert_close(score[1], alone[1])


def test_z_is_unbiased_by_hais_with_two_gaussians(skewed, two, generator):
    target = WhitenedTarget(skewed, two)
    settings = {"schedule": linear_schedule(8), "step_size": 0.25, "n_leapfrog": 2}
    sampler = HAIS(target, target.base(), n_particles=200, **settings)
    state = sampler.run(sampler.init(generator, batch_shape=(150, 2)))
    ratio = (sampler.importance_sample(state).log_z - skewed.log_z).exp()
    error = ratio.std(0) / 150**0.5
    assert (error < 0.015).all()
    assert ((ratio.mean(0) - 1).abs() < 4 * error).all()


def test_one_step_size_suits_a_stretched_problem(generator):
    """Scales of 0.01 and 3: in u they are about 1. The same ε in x is rejected at once."""
    means = torch.tensor([[0.0, 1.0], [0.01, -2.0]])
    target = GaussianMixture(
        torch.tensor([0.4, 0.6]).log(), means, torch.tensor([[0.01, 3.0], [0.02, 2.0]])
    )
    q = Gaussian(torch.tensor([0.005, 0.0]), torch.diag(torch.tensor([0.025, 4.0])))
    inside = WhitenedTarget(target, q)
    settings = {"schedule": linear_schedule(8), "step_size": 0.4, "n_leapfrog": 2}
    sampler = HAIS(inside, inside.base(), n_particles=200, **settings)
    mean, error = z_ratio(sampler, target, generator)
    assert error < 0.01
    assert abs(mean - 1) < 4 * error
    accepted = []
    for p, q0 in ((inside, inside.base()), (target, q)):
        sampler, rates = HAIS(p, q0, n_particles=500, **settings), []
        sampler.run(sampler.init(generator), on_step=lambda _, i, r=rates: r.append(i))
        accepted.append(torch.stack([info.acceptance for info in rates]).mean())
    assert accepted[0] > 0.8
    assert accepted[1] < 0.1


def test_dtype_follows_the_gaussian(skewed):
    q = Gaussian.isotropic(torch.zeros(2, dtype=torch.float32), 2.0)
    base = WhitenedTarget(skewed, q).base()
    assert base.mean.dtype == base.scale_tril.dtype == torch.float32


def test_a_wrong_dimension_is_refused(skewed):
    with pytest.raises(ValueError, match="the Gaussian has d=3, but the target has d=2"):
        WhitenedTarget(skewed, Gaussian.isotropic(torch.zeros(3)))
