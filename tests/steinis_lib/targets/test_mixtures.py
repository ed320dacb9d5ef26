import pytest
import torch
from torch import distributions as D

from steinis_lib import Proposal, Target
from steinis_lib.targets.mixtures import FullCovarianceMixture


def make(g, *batch, k=4, d=3, shared=False):
    own = () if shared else batch
    tril = torch.randn(*own, k, d, d, generator=g).tril(-1) + torch.diag_embed(
        0.4 + torch.rand(*own, k, d, generator=g)
    )
    log_weights = torch.randn(*batch, k, generator=g).log_softmax(-1)
    return FullCovarianceMixture(log_weights, 2 * torch.randn(*own, k, d, generator=g), tril)


def reference(q, *batch):
    """The same by torch.distributions, ready for points ``(n, *batch, d)``."""
    *_, k, d = q.means.shape
    components = D.MultivariateNormal(
        q.means.expand(*batch, k, d), scale_tril=q.scale_trils.expand(*batch, k, d, d)
    )
    return D.MixtureSameFamily(D.Categorical(logits=q.log_weights), components)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_densities_agree_with_torch_distributions(generator, batch, shared):
    q = make(generator, *batch, shared=shared)
    x = 3 * torch.randn(*batch, 7, 3, generator=generator)
    expected = reference(q, *batch)
    points = x.movedim(-2, 0)
    torch.testing.assert_close(q.log_prob(x), expected.log_prob(points).movedim(0, -1))
    apart = expected.component_distribution.log_prob(points.unsqueeze(-2))
    torch.testing.assert_close(q.log_components(x), apart.movedim(0, -2))
    assert q.log_components(x).shape == (*batch, 7, 4)
    assert isinstance(q, Target)
    assert isinstance(q, Proposal)
    assert q.dim == 3
    assert torch.equal(q.log_z, torch.zeros(batch))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_the_score_is_the_gradient(generator, batch, shared):
    q = make(generator, *batch, shared=shared)
    x = (2 * torch.randn(*batch, 7, 3, generator=generator)).requires_grad_(True)
    (gradient,) = torch.autograd.grad(reference(q, *batch).log_prob(x.movedim(-2, 0)).sum(), x)
    log_q, score = q.log_prob_and_score(x.detach())
    torch.testing.assert_close(score, gradient)
    torch.testing.assert_close(q.score(x.detach()), gradient)
    torch.testing.assert_close(log_q, q.log_prob(x.detach()))
    torch.testing.assert_close(torch.autograd.grad(q.log_prob(x).sum(), x)[0], gradient)


def test_the_density_is_normalised(generator):
    q = make(generator, d=2)
    grid = torch.linspace(-15, 15, 601)
    x = torch.cartesian_prod(grid, grid)
    mass = q.log_prob(x).exp().sum() * 0.05**2
    torch.testing.assert_close(mass, torch.tensor(1.0), atol=1e-8, rtol=0)


def test_densities_are_accurate_far_from_the_origin_and_for_thin_components(generator):
    near = make(generator)
    x = torch.randn(10, 3, generator=generator)
    expected = near.log_prob(x) - 3 * torch.tensor(1e-2).log()
    far = FullCovarianceMixture(near.log_weights, 1e-2 * near.means + 1e5, 1e-2 * near.scale_trils)
    log_q, score = far.log_prob_and_score(1e-2 * x + 1e5)
    torch.testing.assert_close(log_q, expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(1e-2 * score, near.score(x), atol=1e-6, rtol=1e-6)


def test_a_component_without_weight_is_as_good_as_absent(generator):
    q = make(generator, 2)
    for drop in range(4):
        keep = [k for k in range(4) if k != drop]
        mask = torch.zeros(4).index_fill(0, torch.tensor([drop]), -torch.inf)
        dropped = FullCovarianceMixture(
            (q.log_weights + mask).log_softmax(-1), q.means, q.scale_trils
        )
        kept = FullCovarianceMixture(
            q.log_weights[:, keep].log_softmax(-1), q.means[:, keep], q.scale_trils[:, keep]
        )
        x = torch.randn(2, 5, 3, generator=generator)
        torch.testing.assert_close(dropped.log_prob(x), kept.log_prob(x))
        torch.testing.assert_close(dropped.score(x), kept.score(x))
        seeds = [torch.Generator().manual_seed(drop) for _ in "ab"]
        a, b = (m.sample((2, 5000), seed) for m, seed in zip((dropped, kept), seeds, strict=True))
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("shared", [False, True])
def test_samples_have_the_stated_moments(generator, shared):
    q = make(generator, 2, shared=shared)
    n = 40_000
    x = q.sample((2, n), generator)
    assert x.shape == (2, n, 3)
    w = q.log_weights.exp()
    outer = q.means.unsqueeze(-1) * q.means.unsqueeze(-2) + q.scale_trils @ q.scale_trils.mT
    products = (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)
    exact = ((w.unsqueeze(-1) * q.means).sum(-2), (w[..., None, None] * outer).sum(-3).flatten(-2))
    for values, moment in zip((x, products), exact, strict=True):
        error = values.std(-2) / n**0.5
        assert ((values.mean(-2) - moment).abs() < 4 * error).all()


def test_samples_satisfy_steins_identity(generator):
    """E_q[s(x) f(x) + ∇f(x)] = 0 ties sampler and score together; f = x² + x hides no sign."""
    q = make(generator)
    x = q.sample((40_000,), generator)
    identity = q.score(x) * (x**2 + x) + 2 * x + 1
    error = identity.std(0) / len(x) ** 0.5
    assert (identity.mean(0).abs() < 4 * error).all()


def test_samples_of_separate_components_come_in_the_stated_proportions(generator):
    weights = torch.tensor([0.0, 0.5, 0.15, 0.35])
    far = FullCovarianceMixture(
        weights.log(), 100 * torch.arange(4.0).unsqueeze(-1), torch.ones(4, 1, 1)
    )
    counts = torch.bincount((far.sample((20_000,), generator) / 100).round().long().flatten())
    assert counts[0] == 0
    expected = 20_000 * weights[1:]
    assert ((counts[1:] - expected).abs() < 4 * (expected * (1 - weights[1:])).sqrt()).all()


def test_no_draw_comes_from_a_component_without_weight(generator, monkeypatch):
    """Neither when the weights add up to a little less than 1, nor when u is exactly 0."""
    weights = torch.tensor([0.0, 0.3, 0.7 - 9e-5, 0.0])
    far = FullCovarianceMixture(
        weights.log(), 100 * torch.arange(4.0).unsqueeze(-1), torch.ones(4, 1, 1)
    )
    k = (far.sample((200_000,), generator) / 100).round()
    assert set(k.unique().tolist()) == {1, 2}
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.zeros(shape))
    assert ((far.sample((10,), generator) / 100).round() == 1).all()


def test_dtype_follows_the_input(generator):
    q = FullCovarianceMixture(torch.zeros(1), torch.zeros(1, 2), torch.eye(2)[None]).sample(
        (3,), generator
    )
    assert q.dtype == torch.float64
    half = FullCovarianceMixture(
        *(t.float() for t in (torch.zeros(1), torch.zeros(1, 2), torch.eye(2)[None]))
    )
    x = half.sample((3,), generator)
    assert x.dtype == half.log_prob(x).dtype == half.score(x).dtype == torch.float32


def test_nonsense_is_refused(generator):
    q = make(generator)
    w, m, t = q.log_weights, q.means, q.scale_trils
    for wrong in [(w[:3], m, t), (w, m[:, :2], t), (w, m, t[:3]), (w, m[0], t), (w[0], m, t)]:
        with pytest.raises(ValueError, match=r"expected log_weights \(\*batch, K\)"):
            FullCovarianceMixture(*wrong)
    with pytest.raises(ValueError, match="expected log_weights"):
        FullCovarianceMixture(w.expand(2, 4), m.expand(3, 4, 3), t)
    with pytest.raises(ValueError, match="must be normalised"):
        FullCovarianceMixture(w + 0.1, m, t)
    with pytest.raises(ValueError, match="must be normalised"):
        FullCovarianceMixture(w * torch.nan, m, t)
    for wrong in (t.mT, -t, t * torch.nan):
        with pytest.raises(ValueError, match="lower triangular with a positive diagonal"):
            FullCovarianceMixture(w, m, wrong)
