import pytest
import torch
from torch import distributions as D

from steinis_lib import Gaussian, GaussianMixture, LogProb, Target
from steinis_lib.targets.mixtures import random_mixture


def autograd_score(target, x):
    x = x.clone().requires_grad_(True)
    return torch.autograd.grad(target.log_prob(x).sum(), x)[0]


def make_gaussian(g, *batch):
    d = 3
    tril = torch.randn(*batch, d, d, generator=g).tril(-1) + torch.diag_embed(
        0.5 + torch.rand(*batch, d, generator=g)
    )
    return Gaussian(torch.randn(*batch, d, generator=g), tril)


def make_mixture(g, *batch):
    log_weights = torch.randn(*batch, 4, generator=g).log_softmax(-1)
    scales = 0.3 + torch.rand(*batch, 4, 2, generator=g)
    return GaussianMixture(log_weights, 2 * torch.randn(*batch, 4, 2, generator=g), scales)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_gaussian_agrees_with_torch_distributions(generator, batch):
    target = make_gaussian(generator, *batch)
    x = torch.randn(*batch, 5, 3, generator=generator)
    reference = D.MultivariateNormal(
        target.mean.unsqueeze(-2), scale_tril=target.scale_tril.unsqueeze(-3)
    )
    torch.testing.assert_close(target.log_prob(x), reference.log_prob(x))
    torch.testing.assert_close(target.score(x), autograd_score(target, x))
    assert isinstance(target, Target)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_mixture_agrees_with_torch_distributions(generator, batch):
    target = make_mixture(generator, *batch)
    x = 3 * torch.randn(*batch, 6, 2, generator=generator)
    components = D.Independent(D.Normal(target.means.unsqueeze(-3), target.scales.unsqueeze(-3)), 1)
    reference = D.MixtureSameFamily(
        D.Categorical(logits=target.log_weights.unsqueeze(-2).expand(*batch, 6, 4)), components
    )
    torch.testing.assert_close(target.log_prob(x), reference.log_prob(x))
    torch.testing.assert_close(target.score(x), autograd_score(target, x))


def test_mixture_log_prob_is_accurate_far_from_the_origin(generator):
    near = make_mixture(generator)
    shift = 1e5
    far = GaussianMixture(near.log_weights, near.means + shift, near.scales)
    x = torch.randn(10, 2, generator=generator)
    torch.testing.assert_close(far.log_prob(x + shift), near.log_prob(x), atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("diagonal", [True, False])
def test_a_gaussian_may_be_differentiated_and_moved_more_than_once(generator, diagonal):
    """Constants that it keeps are not those of a graph that is gone, or of an older scale."""
    mean, tril = make_gaussian(generator).mean, make_gaussian(generator).scale_tril
    tril = (torch.diag_embed(tril.diagonal()) if diagonal else tril).requires_grad_(True)
    target = Gaussian(mean, tril)
    x = torch.randn(5, 3, generator=generator)
    for _ in range(2):
        log_p, score = target.log_prob_and_score(x)
        reference = D.MultivariateNormal(mean, scale_tril=tril)
        torch.testing.assert_close(log_p, reference.log_prob(x))
        (found,) = torch.autograd.grad(log_p.sum() + 0 * score.sum(), tril)
        (expected,) = torch.autograd.grad(reference.log_prob(x).sum(), tril)
        torch.testing.assert_close(found.diagonal(), expected.diagonal())
        with torch.no_grad():
            tril *= 1.1


def test_joint_evaluation_agrees_with_the_two_alone(generator, skewed):
    for target, d in (
        (make_gaussian(generator, 2), 3),
        (make_mixture(generator, 2), 2),
        (skewed, 2),
    ):
        x = torch.randn(2, 5, d, generator=generator)
        log_p, score = target.log_prob_and_score(x)
        torch.testing.assert_close(log_p, target.log_prob(x))
        torch.testing.assert_close(score, target.score(x))
        assert not log_p.requires_grad


@pytest.mark.parametrize("make", [make_gaussian, make_mixture])
def test_samples_have_the_stated_moments(generator, make):
    target = make(generator, 2)
    n = 40_000
    x = target.sample((2, n), generator)
    error = x.std(-2) / n**0.5
    assert ((x.mean(-2) - target.mean).abs() < 4 * error).all()
    if isinstance(target, GaussianMixture):
        square = x.square()
        error = square.std(-2) / n**0.5
        assert ((square.mean(-2) - target.second_moment).abs() < 4 * error).all()


@pytest.mark.parametrize("make", [make_gaussian, make_mixture])
def test_samples_satisfy_steins_identity(generator, make):
    """E_p[s(x) f(x) + ∇f(x)] = 0 ties sampler and score together; f = x² + x hides no sign."""
    target = make(generator)
    x = target.sample((40_000,), generator)
    identity = target.score(x) * (x**2 + x) + 2 * x + 1
    error = identity.std(0) / len(x) ** 0.5
    assert (identity.mean(0).abs() < 4 * error).all()


def test_random_mixtures_are_reproducible_and_within_bounds():
    a, b = (random_mixture(10, 2, torch.Generator().manual_seed(5), batch_shape=(4,)) for _ in "ab")
    assert torch.equal(a.means, b.means)
    assert a.means.shape == (4, 10, 2)
    assert a.means.abs().max() <= 3
    assert not torch.equal(a.means[0], a.means[1])


def test_log_prob_wrapper_batches_and_differentiates(skewed, generator):
    x = torch.randn(3, 4, 2, generator=generator)
    assert skewed.log_prob(x).shape == (3, 4)
    torch.testing.assert_close(skewed.score(x), autograd_score(skewed, x))
    with torch.no_grad():
        torch.testing.assert_close(skewed.score(x), autograd_score_enabled(skewed, x))


def autograd_score_enabled(target, x):
    with torch.enable_grad():
        return autograd_score(target, x)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.sum(), r"must map \(n, d\) to \(n,\)"),
        (lambda x: x.sum(-1).numpy(), "must map"),
        (lambda x: x.detach().sum(-1), "does not depend on its input"),
    ],
)
def test_log_prob_wrapper_explains_a_wrong_function(function, message):
    target = LogProb(function, 2)
    with pytest.raises((ValueError, RuntimeError), match=message):
        target.score(torch.zeros(3, 2)) if "depend" in message else target.log_prob(
            torch.zeros(3, 2)
        )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Gaussian(torch.zeros(2), -torch.eye(2)), "positive diagonal"),
        (lambda: Gaussian(torch.zeros(2), torch.eye(3)), "must end in"),
        (
            lambda: GaussianMixture(torch.zeros(2), torch.zeros(2, 1), torch.ones(2, 1)),
            "normalised",
        ),
        (
            lambda: GaussianMixture(torch.zeros(1), torch.zeros(1, 1), -torch.ones(1, 1)),
            "positive standard deviations",
        ),
        (
            lambda: GaussianMixture(torch.zeros(3), torch.zeros(2, 1), torch.ones(2, 1)),
            "expected log_weights",
        ),
    ],
)
def test_wrong_parameters_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
