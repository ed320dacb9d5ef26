from types import SimpleNamespace

import pytest
import torch
from torch.distributions import Bernoulli, Independent, Normal

from steinis_lib.companion.problems import decoder as module
from steinis_lib.companion.problems.decoder import DecoderPosterior


def weights(dim=3, hidden=5, pixels=7, dtype=torch.float64, scale=1.0):
    g = torch.Generator().manual_seed(11)
    shapes = ((dim, hidden), (hidden,), (hidden, pixels), (pixels,))
    names = ("hidden_weight", "hidden_bias", "output_weight", "output_bias")
    drawn = (scale * torch.randn(s, generator=g, dtype=dtype) for s in shapes)
    return SimpleNamespace(**dict(zip(names, drawn, strict=True)))


def pictures(*shape, dtype=torch.float64):
    return (torch.rand(shape, generator=torch.Generator().manual_seed(5)) > 0.4).to(dtype)


def latents(*shape, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(6), dtype=dtype)


def by_definition(net, images, z):
    """log p(x, z) from torch's own distributions."""
    hidden = torch.tanh(z @ net.hidden_weight + net.hidden_bias)
    pixels = Independent(Bernoulli(logits=hidden @ net.output_weight + net.output_bias), 1)
    prior = Independent(Normal(torch.zeros_like(z), torch.ones_like(z)), 1)
    return pixels.log_prob(images.unsqueeze(-2)) + prior.log_prob(z)


@pytest.mark.parametrize("batch", [(), (4,), (2, 3)])
def test_log_prob_and_score_against_the_definition(batch):
    net, images = weights(), pictures(*batch, 7)
    z = latents(*batch, 6, 3).requires_grad_()
    expected = by_definition(net, images, z)
    (gradient,) = torch.autograd.grad(expected.sum(), z)
    target, z = DecoderPosterior(net, images), z.detach()
    assert target.dim == 3
    log_p, score = target.log_prob_and_score(z)
    for value in (log_p, target.log_prob(z)):
        torch.testing.assert_close(value, expected.detach())
    for value in (score, target.score(z)):
        torch.testing.assert_close(value, gradient)


def test_score_against_finite_differences():
    target, z = DecoderPosterior(weights(), pictures(7)), latents(4, 3)
    step = 1e-6
    for axis in range(3):
        shift = step * torch.eye(3)[axis]
        slope = (target.log_prob(z + shift) - target.log_prob(z - shift)) / (2 * step)
        torch.testing.assert_close(target.score(z)[:, axis], slope, rtol=1e-6, atol=1e-7)


def test_pieces_do_not_matter(monkeypatch):
    target, z = DecoderPosterior(weights(), pictures(5, 7)), latents(5, 9, 3)
    whole = (*target.log_prob_and_score(z), target.log_prob(z), target.score(z))
    monkeypatch.setattr(module, "ROWS", 7)
    pieces = (*target.log_prob_and_score(z), target.log_prob(z), target.score(z))
    for a, b in zip(whole, pieces, strict=True):
        torch.testing.assert_close(a, b)


def test_an_image_does_not_depend_on_its_neighbours():
    images, z = pictures(6, 7), latents(6, 9, 3)
    together = DecoderPosterior(weights(), images).log_prob_and_score(z)
    alone = DecoderPosterior(weights(), images[3]).log_prob_and_score(z[3])
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a[3], b)


def test_huge_logits_are_safe():
    net = weights(scale=1.0)
    net.output_bias = torch.tensor([200.0, -200.0, 800.0, -800.0, 1e4, -1e4, 0.0])
    target = DecoderPosterior(net, pictures(2, 7))
    z = latents(2, 5, 3)
    log_p, score = target.log_prob_and_score(z)
    torch.testing.assert_close(log_p, by_definition(net, pictures(2, 7), z))
    assert torch.isfinite(score).all()


def test_saturated_pixels_are_exact_to_rounding():
    """A pixel of l = ±25 that agrees with x still adds -log(1 + e^-25), about -1.4e-11."""
    net, x = weights(), torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    net.output_weight = torch.zeros(5, 7)
    for size in (19.0, 21.0, 25.0, 200.0):
        net.output_bias = size * (2 * x - 1)
        z = torch.zeros(1, 3)
        target = DecoderPosterior(net, x)
        likelihood = target.log_prob(z) - target.prior().log_prob(z)
        expected = -7 * torch.log1p(torch.tensor(-size).exp())
        torch.testing.assert_close(likelihood, expected.expand(1), atol=2e-14, rtol=0)


def test_axes_of_images_and_latents_broadcast():
    net, images, z = weights(), pictures(4, 7), latents(3, 1, 6, 3)
    for a, b in ((images, z), (images[0], z), (images, z[0, 0])):
        target = DecoderPosterior(net, a)
        log_p, score = target.log_prob_and_score(b)
        expected = by_definition(net, a, b)
        torch.testing.assert_close(log_p, expected)
        assert score.shape == (*expected.shape, 3)
        torch.testing.assert_close(score, target.score(b.expand(score.shape)))


def test_evidence_from_weights_is_that_of_quadrature():
    """At d = 1, log p(x) by the trapezoidal rule, and by importance sampling from the prior."""
    target = DecoderPosterior(weights(dim=1), pictures(3, 7))
    grid = torch.linspace(-12, 12, 4001).unsqueeze(-1)
    z = torch.trapezoid(target.log_prob(grid.expand(3, -1, 1)).exp(), grid.squeeze(-1))
    prior, g = target.prior(), torch.Generator().manual_seed(3)
    draws = prior.sample((3, 20000), g)
    ratio = (target.log_prob(draws) - prior.log_prob(draws)).exp() / z.unsqueeze(-1)
    error = ratio.std(-1) / 20000**0.5
    assert ((ratio.mean(-1) - 1).abs() < 4 * error).all()
    assert (error < 0.05).all()


def test_single_precision_is_near_double():
    images, z = pictures(4, 60), latents(4, 8, 10)
    exact = DecoderPosterior(weights(10, 50, 60), images).log_prob_and_score(z)
    single = DecoderPosterior(
        SimpleNamespace(**{k: v.float() for k, v in vars(weights(10, 50, 60)).items()}),
        images.float(),
    ).log_prob_and_score(z.float())
    for a, b in zip(exact, single, strict=True):
        assert b.dtype == torch.float32
        assert ((a - b).abs() <= 1e-4 + 1e-5 * a.abs()).all()


def test_inputs_are_left_alone():
    target, z = DecoderPosterior(weights(), pictures(2, 7)), latents(2, 5, 3)
    before = (
        z.clone(),
        target.images.clone(),
        {k: v.clone() for k, v in vars(target.decoder).items()},
    )
    target.log_prob_and_score(z), target.score(z), target.log_prob(z)
    assert torch.equal(z, before[0]) and torch.equal(target.images, before[1])
    assert all(torch.equal(getattr(target.decoder, k), v) for k, v in before[2].items())


def test_particles_that_are_not_contiguous():
    target, z = DecoderPosterior(weights(), pictures(2, 7)), latents(2, 3, 5).mT
    torch.testing.assert_close(target.score(z), target.score(z.contiguous()))
    shared = latents(1, 5, 3).expand(2, 5, 3)
    torch.testing.assert_close(target.log_prob(shared), target.log_prob(shared.contiguous()))


def test_the_prior_is_standard_normal():
    prior = DecoderPosterior(weights(dtype=torch.float32), pictures(7, dtype=torch.float32)).prior()
    assert prior.mean.dtype == torch.float32
    assert torch.equal(prior.mean, torch.zeros(3, dtype=torch.float32))
    assert torch.equal(prior.scale_tril, torch.eye(3, dtype=torch.float32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_bias": torch.zeros(4)}, "expected hidden_weight"),
        ({"output_weight": torch.zeros(6, 7)}, "expected hidden_weight"),
        ({"output_bias": torch.zeros(6)}, "D = 7"),
        ({"output_bias": torch.full((7,), torch.nan)}, "must be finite"),
        ({"output_bias": torch.zeros(7, dtype=torch.float32)}, "one floating-point dtype"),
    ],
)
def test_bad_weights_are_refused(change, message):
    net = SimpleNamespace(**vars(weights()) | change)
    with pytest.raises(ValueError, match=message):
        DecoderPosterior(net, pictures(7))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.full((7,), 0.5), "0 or 1: binarise"),
        (torch.full((7,), torch.nan), "0 or 1"),
        (torch.zeros(2, 6), "D = 7"),
        (torch.zeros(7, dtype=torch.uint8), "one floating-point dtype"),
    ],
)
def test_bad_images_are_refused(images, message):
    with pytest.raises(ValueError, match=message):
        DecoderPosterior(weights(), images)
