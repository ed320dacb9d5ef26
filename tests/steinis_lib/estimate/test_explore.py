import math

import pytest
import torch

from steinis_lib import Gaussian, LogProb
from steinis_lib.estimate import explore as module
from steinis_lib.estimate.climb import climb
from steinis_lib.estimate.explore import defended, explore, good, most_components, unexplained
from steinis_lib.estimate.pool import Pool, Round
from steinis_lib.estimate.space import Space
from steinis_lib.estimate.student import StudentMixture

D = torch.float64


def space(function, dim, scale=1.0):
    return Space(LogProb(function, dim), Gaussian.isotropic(torch.zeros(dim, dtype=D), scale))


def two(x):
    """Equal modes at ±2, and two units wide all told."""
    return torch.logsumexp(torch.stack([-4 * (x - m).square().sum(-1) for m in (-2, 2)]), 0)


def nothing(_round):
    pass


def test_pilots_of_what_was_found_are_good_and_say_how_good(generator):
    seen = []
    found = explore(space(two, 2), generator, seen.append)
    assert good(found.last)
    assert len(found.last.u) == module.VERIFYING
    assert seen[-1] is found.last
    truth = math.log(2) + math.log(math.pi / 4)
    assert abs(found.last.log_z - truth) < 4 * found.last.log_z_se
    assert found.missed == 0
    assert sum(found.pool.sizes) == sum(len(drawn.u) for drawn in seen)


def test_a_mode_that_is_missing_is_unexplained(generator):
    inside = space(two, 2)
    alone = StudentMixture(
        torch.zeros(1, dtype=D),
        torch.full((1, 2), 2.0, dtype=D),
        0.4 * torch.eye(2, dtype=D)[None],
        torch.full((1,), 16.0, dtype=D),
    )
    ends = climb(inside, torch.tensor([[-1.0, -1.5], [1.0, 2.0]], dtype=D))
    pool, _ = Pool.empty(torch.zeros(1, dtype=D), 2).drawn(inside, alone, 500, generator)
    new = unexplained(inside, ends, alone, pool)
    torch.testing.assert_close(new.means, torch.full((1, 2), -2.0, dtype=D), rtol=0.01, atol=0)
    both = explore(inside, generator, nothing)
    assert len(unexplained(inside, ends, both.q.q, both.pool).means) == 0


@pytest.mark.slow
def test_climbs_go_on_until_all_of_many_modes_are_found(generator):
    """Forty narrow modes at random, more than the first climbs can find."""
    places = 8 * torch.rand(40, 2, generator=generator, dtype=D) - 4

    def many(x):
        return (-200 * (x.unsqueeze(-2) - places).square().sum(-1)).logsumexp(-1)

    found = explore(space(many, 2, 3.0), generator, nothing)
    truth = math.log(40 * math.pi / 200)
    assert abs(found.last.log_z - truth) < 4 * found.last.log_z_se + 0.02


def test_a_defence_covers_what_the_mixture_has(generator):
    q = StudentMixture(
        torch.zeros(2, dtype=D),
        torch.tensor([[-3.0], [3.0]], dtype=D),
        torch.full((2, 1, 1), 0.1, dtype=D),
        torch.full((2,), math.inf, dtype=D),
    )
    covered = defended(q)
    assert covered.freedom[-1] == module.DEFENCE_FREEDOM
    torch.testing.assert_close(covered.log_weights[-1].exp(), torch.tensor(0.05, dtype=D))
    assert abs(float(covered.scale_trils[-1]) - 1.5 * math.sqrt(9.01)) < 1e-6


def test_good_needs_both_a_share_and_a_light_tail(generator):
    light = 0.3 * torch.randn(2000, generator=generator, dtype=D)
    heavy = -torch.rand(2000, generator=generator, dtype=D).log()
    assert good(Round(light[:, None], light))
    assert not good(Round(heavy[:, None], heavy), 0.0)
    assert not good(Round(light[:, None], light), 0.99)


@pytest.mark.parametrize(
    ("dim", "modes", "most"), [(2, 1, 40), (2, 100, 200), (89, 1, 4), (20, 1, 40)]
)
def test_how_many_components_a_mixture_may_have(dim, modes, most):
    assert most_components(dim, modes) == most
