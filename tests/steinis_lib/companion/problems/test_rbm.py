import itertools
import math

import pytest
import torch
from scipy import stats

from steinis_lib import GaussianMixture, Target
from steinis_lib.companion.problems.rbm import GaussBernoulliRBM, random_rbm
from steinis_lib.companion.sections.s2_mixtures.direct import direct_sampling


def make_rbm(g, d=3, n_hidden=4, batch=(), scale=0.8):
    """A model without symmetries: B is not ±0.5 but any matrix."""
    coupling = scale * torch.randn(*batch, d, n_hidden, generator=g)
    bias_h = 0.7 * torch.randn(*batch, n_hidden, generator=g) + 0.2
    return GaussBernoulliRBM(coupling, torch.randn(*batch, d, generator=g) - 0.3, bias_h)


def hidden_states(n_hidden):
    """All h in the stated order of states, by other means than bits."""
    return torch.tensor(list(itertools.product([-1.0, 1.0], repeat=n_hidden)))


def joint(rbm, x, h):
    """log p̄(x, h) of one x and one h, term by term as in the paper."""
    return float(
        x @ rbm.coupling @ h + rbm.bias_x @ x + rbm.bias_h @ h - 0.5 * sum(v * v for v in x)
    )


def as_mixture(rbm):
    """The model as 2^d' Gaussians N(Bh + b, I), and its log Z; terms are not multiplied out."""
    h = hidden_states(rbm.n_hidden)
    means = h @ rbm.coupling.mT + rbm.bias_x.unsqueeze(-2)
    terms = (h * rbm.bias_h.unsqueeze(-2)).sum(-1) + 0.5 * means.square().sum(-1)
    log_z = terms.logsumexp(-1) + 0.5 * rbm.dim * math.log(2 * math.pi)
    return GaussianMixture(terms.log_softmax(-1), means, torch.ones_like(means)), log_z


def item(rbm, i):
    return GaussBernoulliRBM(rbm.coupling[i], rbm.bias_x[i], rbm.bias_h[i])


def plane(rbm, n=601, reach=14.0):
    """Points (n², 2) of a grid, log p̄ there, and the log of a cell's area."""
    axis = torch.linspace(-reach, reach, n)
    x = torch.cartesian_prod(axis, axis)
    log_p = rbm.log_prob(x)
    assert log_p.reshape(n, n)[[0, -1]].max() < log_p.max() - 40  # the grid holds all the mass
    assert log_p.reshape(n, n)[:, [0, -1]].max() < log_p.max() - 40
    return x, log_p, 2 * math.log(float(axis[1] - axis[0]))


def test_log_prob_is_the_sum_over_hidden_states(generator):
    rbm = make_rbm(generator)
    x = 2 * torch.randn(5, 3, generator=generator)
    for point, value in zip(x, rbm.log_prob(x), strict=True):
        terms = [math.exp(joint(rbm, point, h)) for h in hidden_states(4)]
        assert float(value) == pytest.approx(math.log(sum(terms)), abs=1e-12)
    assert isinstance(rbm, Target)


@pytest.mark.parametrize("scale", [0.4, 1.5])  # one mode, and several
def test_log_z_and_moments_agree_with_quadrature(generator, scale):
    rbm = make_rbm(generator, d=2, n_hidden=3, scale=scale)
    x, log_p, log_cell = plane(rbm)
    p = log_p.softmax(0)
    centred = x - p @ x
    torch.testing.assert_close(rbm.log_z, log_p.logsumexp(0) + log_cell, atol=1e-10, rtol=0)
    torch.testing.assert_close(rbm.mean, p @ x, atol=1e-10, rtol=0)
    covariance = (p.unsqueeze(-1) * centred).T @ centred
    torch.testing.assert_close(rbm.covariance, covariance, atol=1e-9, rtol=0)
    assert covariance[0, 1].abs() > 0.05  # the off-diagonal is not tested against nothing


def test_score_agrees_with_autograd_and_finite_differences(generator):
    rbm = make_rbm(generator, batch=(2,))
    x = torch.randn(2, 5, 3, generator=generator).requires_grad_(True)
    (gradient,) = torch.autograd.grad(rbm.log_prob(x).sum(), x)
    x = x.detach()
    torch.testing.assert_close(rbm.score(x), gradient)
    for j, step in enumerate(1e-5 * torch.eye(3)):
        difference = (rbm.log_prob(x + step) - rbm.log_prob(x - step)) / 2e-5
        torch.testing.assert_close(rbm.score(x)[..., j], difference, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_joint_evaluation_agrees_with_the_two_alone(generator, batch):
    rbm = make_rbm(generator, batch=batch)
    x = torch.randn(*batch, 5, 3, generator=generator)
    kept = x.clone()
    log_p, score = rbm.log_prob_and_score(x)
    torch.testing.assert_close(log_p, rbm.log_prob(x))
    torch.testing.assert_close(score, rbm.score(x))
    assert torch.equal(x, kept)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("size", [1e4, -1e4])
def test_large_fields_neither_overflow_nor_lose_the_answer(size, dtype):
    """At |φ| = 1e4, log(2 cosh φ) = |φ| to all digits, and the score is b - x ± B."""
    rbm = GaussBernoulliRBM(
        torch.tensor([[size], [1.0]], dtype=dtype),
        torch.tensor([0.25, -0.5], dtype=dtype),
        torch.tensor([0.0], dtype=dtype),
    )
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=dtype)
    log_p, score = rbm.log_prob_and_score(x)
    assert log_p.tolist() == [1e4 + 0.25 - 0.5, 1e4 - 0.25 - 0.5]
    sign = math.copysign(1, size)
    assert score.tolist() == [
        [0.25 - 1 + abs(size), -0.5 + sign],
        [0.25 + 1 - abs(size), -0.5 - sign],
    ]
    for value in (rbm.log_z, rbm.mean, rbm.covariance):
        assert torch.isfinite(value).all()
    # Two far Gaussians N(±B + b, I); the farther one, by 2 bᵀB in log p(h), takes it all.
    far = 0.25 * size - 0.5
    centre = torch.tensor([size, 1.0]).double() * math.copysign(1, far)
    expected = 0.5 * float((centre + rbm.bias_x.double()).square().sum()) + math.log(2 * math.pi)
    assert float(rbm.log_z) == pytest.approx(expected, rel=1e-14)
    torch.testing.assert_close(rbm.mean, centre + rbm.bias_x.double(), atol=1e-10, rtol=0)
    torch.testing.assert_close(rbm.covariance, torch.eye(2), atol=1e-6, rtol=0)


def test_it_is_a_mixture_of_gaussians(generator):
    """Another route to everything: components one by one, at the sizes of the paper."""
    rbm = random_rbm(100, 10, generator, batch_shape=(3,))
    mixture, log_z = as_mixture(rbm)
    x = mixture.sample((3, 7), generator)
    torch.testing.assert_close(rbm.log_z, log_z, atol=1e-9, rtol=0)
    expected = mixture.log_prob(x) + log_z.unsqueeze(-1)
    torch.testing.assert_close(rbm.log_prob(x), expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(rbm.score(x), mixture.score(x), atol=1e-9, rtol=0)
    log_p = mixture.log_weights
    torch.testing.assert_close(rbm.state_log_probs, log_p, atol=1e-9, rtol=0)
    torch.testing.assert_close(rbm.mean, mixture.mean, atol=1e-10, rtol=0)
    variance = mixture.second_moment - mixture.mean.square()
    torch.testing.assert_close(
        rbm.covariance.diagonal(dim1=-2, dim2=-1), variance, atol=1e-9, rtol=0
    )


def test_batches_are_loops_over_their_items(generator):
    rbm = make_rbm(generator, n_hidden=5, batch=(2, 3))
    x = torch.randn(2, 3, 6, 3, generator=generator)
    for i in itertools.product(range(2), range(3)):
        alone = item(rbm, i)
        torch.testing.assert_close(rbm.log_prob(x)[i], alone.log_prob(x[i]))
        torch.testing.assert_close(rbm.score(x)[i], alone.score(x[i]))
        for name in ("log_z", "mean", "covariance", "state_log_probs"):
            torch.testing.assert_close(getattr(rbm, name)[i], getattr(alone, name))


def test_batch_axes_of_model_and_particles_broadcast(generator):
    one, three = make_rbm(generator), make_rbm(generator, batch=(3,))
    x = torch.randn(3, 6, 3, generator=generator)
    for i in range(3):
        torch.testing.assert_close(one.log_prob(x)[i], one.log_prob(x[i]))
        torch.testing.assert_close(one.score(x)[i], one.score(x[i]))
        torch.testing.assert_close(three.log_prob(x[0])[i], item(three, i).log_prob(x[0]))
        torch.testing.assert_close(three.score(x[0])[i], item(three, i).score(x[0]))
        torch.testing.assert_close(three.log_prob(x[:1])[i], item(three, i).log_prob(x[0]))
        torch.testing.assert_close(three.score(x[:1])[i], item(three, i).score(x[0]))
    assert one.sample((2, 4), generator).shape == (2, 4, 3)
    assert three.sample((2, 3, 4), generator).shape == (2, 3, 4, 3)


def test_samples_have_the_exact_moments(generator):
    rbm = make_rbm(generator, batch=(2,))
    n = 300_000
    x = rbm.sample((2, n), generator)
    assert ((x.mean(-2) - rbm.mean).abs() < 4 * x.std(-2) / n**0.5).all()
    centred = x - rbm.mean.unsqueeze(-2)
    products = centred.unsqueeze(-1) * centred.unsqueeze(-2)
    error = products.std(-3) / n**0.5
    assert ((products.mean(-3) - rbm.covariance).abs() < 4 * error).all()


@pytest.mark.slow
def test_samples_follow_the_density(generator):
    """χ² of counts along a slant direction against the density, by quadrature in the plane."""
    rbm = make_rbm(generator, d=2, n_hidden=3, scale=1.5)
    x, log_p, _ = plane(rbm, n=2001)
    direction = torch.tensor([0.8, -0.6])
    edges = torch.linspace(-4, 4, 25)
    bins = torch.bucketize(x @ direction, edges)
    expected = torch.zeros(26).index_add_(0, bins, log_p.softmax(0))
    n = 20_000
    drawn = torch.bucketize(rbm.sample((n,), generator) @ direction, edges)
    observed = torch.bincount(drawn, minlength=26)
    few = expected * n < 10
    observed = torch.cat([observed[~few], observed[few].sum()[None]]).double()
    expected = torch.cat([expected[~few], expected[few].sum()[None]]) * n
    statistic = float(((observed - expected).square() / expected).sum())
    assert len(expected) > 15
    assert stats.chi2.sf(statistic, len(expected) - 1) > 1e-3


def test_samples_satisfy_steins_identity(generator):
    """E_p[s(x) f(x) + ∇f(x)] = 0 ties sampler and score together; f = x² + x hides no sign."""
    rbm = make_rbm(generator)
    x = rbm.sample((40_000,), generator)
    identity = rbm.score(x) * (x**2 + x) + 2 * x + 1
    error = identity.std(0) / len(x) ** 0.5
    assert (identity.mean(0).abs() < 4 * error).all()


def test_direct_sampling_knows_log_z(generator):
    rbm = make_rbm(generator, batch=(2,))
    sample = direct_sampling(rbm, (2, 50), generator)
    torch.testing.assert_close(sample.log_z, rbm.log_z)


def test_exact_sums_are_float64_for_float32_parameters(generator):
    """At d = 100 log Z is above 256, where float32 resolves no better than 3e-5."""
    single = random_rbm(100, 10, generator, batch_shape=(4,), dtype=torch.float32)
    double = GaussBernoulliRBM(
        *(p.double() for p in (single.coupling, single.bias_x, single.bias_h))
    )
    assert double.log_z.min() > 256
    _, log_z = as_mixture(double)
    for rbm in (single, double):
        torch.testing.assert_close(rbm.log_z, log_z, atol=1e-9, rtol=0)
    torch.testing.assert_close(single.mean, double.mean, atol=1e-12, rtol=0)
    torch.testing.assert_close(single.covariance, double.covariance, atol=1e-12, rtol=0)
    x = single.sample((4, 5), generator)
    assert x.dtype == single.score(x).dtype == torch.float32
    torch.testing.assert_close(
        single.log_prob(x).double(), double.log_prob(x.double()), atol=0, rtol=1e-5
    )
    torch.testing.assert_close(
        single.score(x).double(), double.score(x.double()), atol=2e-5, rtol=0
    )


def test_sums_over_states_are_done_once(generator, monkeypatch):
    rbm = make_rbm(generator)
    first = rbm.log_z, rbm.mean, rbm.covariance, rbm.state_log_probs
    monkeypatch.setattr(GaussBernoulliRBM, "_states", lambda self: pytest.fail("summed again"))
    again = rbm.log_z, rbm.mean, rbm.covariance, rbm.state_log_probs
    assert all(a is b for a, b in zip(first, again, strict=True))
    rbm.sample((4,), generator)


def test_random_models_are_those_of_the_paper():
    a, b = (random_rbm(30, 10, torch.Generator().manual_seed(5), batch_shape=(1000,)) for _ in "ab")
    for name in ("coupling", "bias_x", "bias_h"):
        assert torch.equal(getattr(a, name), getattr(b, name))
        assert not torch.equal(getattr(a, name)[0], getattr(a, name)[1])
    assert (a.coupling.shape, a.bias_x.shape) == ((1000, 30, 10), (1000, 30))
    assert set(a.coupling.unique().tolist()) == {-0.5, 0.5}
    n = a.coupling.numel()
    assert abs(float((a.coupling > 0).sum()) - n / 2) < 4 * (n / 4) ** 0.5
    neighbours = a.coupling[..., 1:] * a.coupling[..., :-1] > 0  # are independent
    assert abs(float(neighbours.sum()) - neighbours.numel() / 2) < 2 * neighbours.numel() ** 0.5
    for bias in (a.bias_x, a.bias_h):
        assert stats.kstest(bias.flatten().numpy(), "norm").pvalue > 1e-3
    mixed = a.bias_x[:, :10] * a.bias_h
    assert abs(float(mixed.mean())) < 4 / mixed.numel() ** 0.5


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((3, 4), (4,), (3,)), r"got \(3, 4\), \(4,\), \(3,\)"),
        (((3, 4), (3,), (3,)), "expected coupling"),
        (((2, 3, 4), (3,), (4,)), "expected coupling"),
        (((2, 3, 4), (2, 3), (4,)), "expected coupling"),
        (((2, 3, 4), (3,), (2, 4)), "expected coupling"),
        (((3, 4), (4,), (4,)), "expected coupling"),
        (((3,), (), (3,)), "expected coupling"),
    ],
)
def test_wrong_shapes_are_refused(shapes, message):
    with pytest.raises(ValueError, match=message):
        GaussBernoulliRBM(*(torch.zeros(shape) for shape in shapes))


def test_wrong_parameters_are_refused():
    good = [torch.zeros(3, 4), torch.zeros(3), torch.zeros(4)]
    GaussBernoulliRBM(*good)
    for i in range(3):
        for value in (math.nan, math.inf):
            bad = [p + value if i == j else p for j, p in enumerate(good)]
            with pytest.raises(ValueError, match="must be finite"):
                GaussBernoulliRBM(*bad)
        mixed = [p.float() if i == j else p for j, p in enumerate(good)]
        with pytest.raises(ValueError, match="one floating-point dtype"):
            GaussBernoulliRBM(*mixed)
    with pytest.raises(ValueError, match="one floating-point dtype"):
        GaussBernoulliRBM(*(p.long() for p in good))


def test_too_many_states_are_refused_but_not_the_density(generator):
    rbm = random_rbm(3, 21, generator)
    for ask in (
        lambda: rbm.log_z,
        lambda: rbm.mean,
        lambda: rbm.covariance,
        lambda: rbm.state_log_probs,
        lambda: rbm.sample((2,), generator),
    ):
        with pytest.raises(ValueError, match=r"limited to d' ≤ 20, got d' = 21"):
            ask()
    x = torch.randn(4, 3, generator=generator)
    # A hidden unit with neither coupling nor bias doubles p̄, and no more: compare with d' = 20.
    rest = GaussBernoulliRBM(rbm.coupling[:, :20], rbm.bias_x, rbm.bias_h[:20])
    idle = GaussBernoulliRBM(
        torch.cat([rest.coupling, torch.zeros(3, 1)], -1),
        rest.bias_x,
        torch.cat([rest.bias_h, torch.zeros(1)]),
    )
    torch.testing.assert_close(idle.log_prob(x), rest.log_prob(x) + math.log(2))
    torch.testing.assert_close(idle.score(x), rest.score(x))
