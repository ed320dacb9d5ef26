import math

import pytest
import torch

from steinis_lib.estimate import refine
from steinis_lib.estimate.pool import ess_of
from steinis_lib.estimate.student import StudentMixture

D = torch.float64


def one(dim, scale=1.0, freedom=math.inf):
    return StudentMixture(
        torch.zeros(1, dtype=D),
        torch.zeros(1, dim, dtype=D),
        scale * torch.eye(dim, dtype=D)[None],
        torch.full((1,), freedom, dtype=D),
    )


def equal(n):
    return torch.full((n,), 1 / n, dtype=D)


def test_weights_are_flattened_no_more_than_asked(generator):
    log_w = 3 * torch.randn(500, generator=generator, dtype=D)
    log_w[0] = -torch.inf
    assert torch.equal(refine.usable(log_w, 1.0), log_w.softmax(0))
    flat = refine.usable(log_w, 100.0)
    assert 100 <= float(1 / flat.square().sum()) < 103
    assert ess_of(log_w) < 50
    assert flat[0] == 0
    torch.testing.assert_close(flat.argsort()[-5:], log_w.argsort()[-5:])


def test_many_draws_give_their_moments_and_tails(generator):
    tril = torch.tensor([[2.0, 0.0], [1.0, 0.3]], dtype=D)
    draws = StudentMixture(
        torch.zeros(1, dtype=D),
        torch.ones(1, 2, dtype=D),
        tril[None],
        torch.full((1,), 4.0, dtype=D),
    ).sample((20_000,), generator)
    q = one(2)
    for _ in range(6):
        q = refine.refit(q, draws, equal(len(draws)), generator)
    torch.testing.assert_close(q.means[0], torch.ones(2, dtype=D), rtol=0, atol=0.1)
    torch.testing.assert_close(q.scale_trils[0], tril, rtol=0.1, atol=0.06)
    assert float(q.freedom) == 4.0


def test_a_good_fit_is_not_spoilt_by_few_draws(generator):
    """Twenty draws in 10 dimensions: their own covariance would be useless."""
    q = one(10)
    draws = q.sample((40,), generator)
    new = refine.refit(q, draws, equal(40), generator)
    fresh = q.sample((4000,), generator)
    log_w = q.log_prob(fresh) - new.log_prob(fresh)
    assert float(log_w.exp().var()) < 1.5
    own = torch.linalg.cholesky(draws.T.cov())
    bad = StudentMixture(q.log_weights, draws.mean(0)[None], own[None], q.freedom)
    assert float(log_w.mean()) < 0.5 * float((q.log_prob(fresh) - bad.log_prob(fresh)).mean())


def test_growth_is_where_the_mixture_is_too_small(generator):
    q = one(2, 3.0)
    u = q.sample((1000,), generator)
    peak = torch.tensor([4.0, 4.0], dtype=D)
    log_p = torch.logaddexp(q.log_prob(u), 3 - 20 * (u - peak).square().sum(-1))
    new = refine.grown(q, u, log_p, 1)
    assert len(new.means) == 2
    assert float((new.means[1] - peak).norm()) < 0.5
    assert len(refine.grown(q, u, q.log_prob(u), 3).means) == 1


def test_growth_survives_a_single_draw_with_weight():
    u = torch.arange(30, dtype=D).unsqueeze(-1)
    log_p = torch.full((30,), -torch.inf, dtype=D)
    assert torch.equal(refine.grown(one(1), u, log_p, 2).means, one(1).means)
    log_p[3] = 0.0
    assert torch.isfinite(refine.grown(one(1), u, log_p, 2).scale_trils).all()


def test_pruning_keeps_the_heavy_ones():
    q = StudentMixture(
        torch.tensor([0.0, -12.0, -1.0, -2.0], dtype=D),
        torch.arange(4, dtype=D).unsqueeze(-1),
        torch.ones(4, 1, 1, dtype=D),
        torch.ones(4, dtype=D),
    )
    assert refine.pruned(q, 10).means.flatten().tolist() == [0.0, 2.0, 3.0]
    assert refine.pruned(q, 2).means.flatten().tolist() == [0.0, 2.0]


@pytest.mark.parametrize(("components", "tried"), [(3, 3), (80, 1)])
def test_many_components_are_tried_with_one_strength(components, tried):
    q = StudentMixture(
        torch.zeros(components, dtype=D),
        torch.zeros(components, 1, dtype=D),
        torch.ones(components, 1, 1, dtype=D),
        torch.ones(components, dtype=D),
    )
    assert len(refine._strengths(q)) == tried
