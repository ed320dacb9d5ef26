import math

import pytest
import torch
from torch.distributions import MultivariateNormal, StudentT

from steinis_lib.estimate import student as module
from steinis_lib.estimate.student import StudentMixture

D = torch.float64


@pytest.fixture
def mixture():
    trils = torch.tensor([[[1.0, 0.0], [0.5, 0.7]], [[0.3, 0.0], [0.0, 2.0]]], dtype=D)
    means = torch.tensor([[0.0, 1.0], [3.0, -1.0]], dtype=D)
    weights = torch.tensor([0.25, 0.75], dtype=D)
    return StudentMixture(weights.log() + 5, means, trils, torch.tensor([5.0, math.inf], dtype=D))


def test_densities_are_those_of_torch(generator):
    x = 3 * torch.randn(20, 1, generator=generator, dtype=D)
    t = StudentMixture(
        torch.zeros(1).double(),
        torch.ones(1, 1).double(),
        2 * torch.ones(1, 1, 1).double(),
        torch.tensor([3.0]).double(),
    )
    torch.testing.assert_close(t.log_prob(x), StudentT(3.0, 1.0, 2.0).log_prob(x[:, 0]).to(D))


def test_a_component_without_freedom_is_gaussian(mixture, generator):
    x = torch.randn(10, 2, generator=generator, dtype=D)
    normal = MultivariateNormal(mixture.means[1], scale_tril=mixture.scale_trils[1])
    torch.testing.assert_close(mixture.log_components(x)[:, 1], normal.log_prob(x))


def test_the_density_integrates_to_one(mixture):
    grid = torch.linspace(-60, 60, 1201, dtype=D)
    log_q = mixture.log_prob(torch.cartesian_prod(grid, grid))
    assert abs(float(log_q.logsumexp(0)) + 2 * math.log(0.1)) < 2e-4


def test_scores_are_gradients(mixture, generator):
    x = torch.randn(10, 2, generator=generator, dtype=D).requires_grad_(True)
    (gradient,) = torch.autograd.grad(mixture.log_prob(x).sum(), x)
    log_q, score = mixture.log_prob_and_score(x.detach())
    torch.testing.assert_close(score, gradient)
    torch.testing.assert_close(log_q, mixture.log_prob(x.detach()))


def test_draws_have_the_density(mixture, generator):
    """Shares of draws near either component, and quantiles of the t, within 4.5 sigma."""
    x = mixture.sample((40_000,), generator)
    tilted = (mixture.log_components(x)[:, 0] - mixture.log_prob(x)).exp()
    assert abs(float(tilted.mean()) - 1) < 4.5 * float(tilted.std()) / 200
    t = StudentMixture(
        torch.zeros(1).double(),
        torch.zeros(1, 1).double(),
        torch.ones(1, 1, 1).double(),
        torch.tensor([1.0]).double(),
    )
    share = float((t.sample((40_000,), generator).abs() > 1).double().mean())  # quartiles of Cauchy
    assert abs(share - 0.5) < 4.5 * 0.5 / 200


def test_distances_do_not_depend_on_how_many_fit_in_memory(mixture, generator, monkeypatch):
    x = torch.randn(7, 2, generator=generator, dtype=D)
    expected = mixture.distances(x)
    monkeypatch.setattr(module, "MOST_NUMBERS", 1)
    torch.testing.assert_close(mixture.distances(x), expected)


def test_mixtures_join_by_share(mixture, generator):
    x = torch.randn(5, 2, generator=generator, dtype=D)
    other = mixture.chosen(torch.tensor([1]))
    joined = mixture.joined(other, 0.2).log_prob(x).exp()
    torch.testing.assert_close(
        joined, 0.8 * mixture.log_prob(x).exp() + 0.2 * other.log_prob(x).exp()
    )


def test_shapes_that_do_not_fit_are_refused(mixture):
    with pytest.raises(ValueError, match=r"expected log_weights \(K,\)"):
        StudentMixture(mixture.log_weights, mixture.means, mixture.scale_trils, mixture.freedom[:1])
