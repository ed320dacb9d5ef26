import math

import pytest
import torch

from steinis_lib import Gaussian, LogProb
from steinis_lib.estimate.pool import Pool, Round, ess_of, weighed
from steinis_lib.estimate.space import Space
from steinis_lib.estimate.student import StudentMixture

D = torch.float64


def normal(mean, scale, dim=1):
    return StudentMixture(
        torch.zeros(1, dtype=D),
        torch.full((1, dim), float(mean), dtype=D),
        scale * torch.eye(dim, dtype=D)[None],
        torch.full((1,), math.inf, dtype=D),
    )


@pytest.fixture
def space():
    q0 = Gaussian.isotropic(torch.zeros(1, dtype=D))
    return Space(LogProb(lambda x: -0.5 * x.square().sum(-1), 1), q0)


def test_two_halves_that_miss_one_another_are_right_together(space, generator):
    """Narrow proposals at ±1: weights of either alone are useless, those of both are bounded."""
    pool = Pool.empty(torch.zeros(1, dtype=D), 1)
    for mean in (-1.0, 1.0):
        pool, last = pool.drawn(space, normal(mean, 0.8), 4000, generator)
    together = Round(pool.u, pool.log_w)
    assert abs(together.log_z - 0.5 * math.log(2 * math.pi)) < 4 * together.log_z_se
    assert together.share > 0.8
    assert last.share < 0.5
    assert pool.sizes == (4000, 4000)


def test_statistics_of_a_round(generator):
    log_w = torch.randn(1000, generator=generator, dtype=D)
    drawn = Round(log_w.unsqueeze(-1), log_w)
    w = log_w.exp()
    assert abs(drawn.share - float(w.sum() ** 2 / w.square().sum()) / 1000) < 1e-12
    assert abs(drawn.log_z - math.log(float(w.mean()))) < 1e-12
    assert abs(drawn.log_z_se / float(w.std() / w.mean() / 1000**0.5) - 1) < 1e-3
    nothing = Round(log_w.unsqueeze(-1), torch.full_like(log_w, -torch.inf))
    assert (nothing.share, nothing.pareto_k, nothing.log_z_se) == (0.0, math.inf, math.inf)
    assert ess_of(torch.zeros(5)) == pytest.approx(5)


def test_a_draw_beyond_the_floats_has_no_weight(space, generator):
    class Wild:
        dim = 1

        def sample(self, shape, generator):
            return torch.tensor([[0.5], [torch.inf], [torch.nan]], dtype=D)

        def log_prob(self, u):
            return torch.zeros(len(u), dtype=D)

    u, log_p, log_q = weighed(space, Wild(), 3, generator)
    assert torch.isfinite(u).all()
    assert torch.isfinite(log_p).tolist() == [True, False, False]
    assert torch.isfinite(log_q).all()
