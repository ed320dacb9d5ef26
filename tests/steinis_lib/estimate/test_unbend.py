import math

import pytest
import torch

from steinis_lib import Gaussian, LogProb
from steinis_lib.estimate.explore import explore
from steinis_lib.estimate.space import Space
from steinis_lib.estimate.unbend import unbent

D = torch.float64


def nothing(_round):
    pass


def banana(x):
    """log Z = 2 log 2π + log .1, with d = 4."""
    bent = (x[:, 1] - x[:, 0].square()) / 0.1
    return -0.5 * (x[:, 0].square() + bent.square() + x[:, 2:].square().sum(-1))


@pytest.mark.slow
def test_a_map_makes_a_banana_easy(generator, monkeypatch):
    monkeypatch.setattr("steinis_lib.estimate.explore.ROUNDS", 3)
    space = Space(LogProb(banana, 4), Gaussian.isotropic(torch.zeros(4, dtype=D), 3.0))
    first = explore(space, generator, nothing)
    found = unbent(space, first, generator, nothing)
    assert found.q.warp is not None
    assert found.last.share > max(0.4, first.last.share)
    truth = 2 * math.log(2 * math.pi) + math.log(0.1)
    assert abs(found.last.log_z - truth) < 4 * found.last.log_z_se


@pytest.mark.slow
def test_what_was_good_already_is_kept_where_maps_are_no_better(generator, monkeypatch):
    monkeypatch.setattr("steinis_lib.estimate.unbend.TRIES", 1)

    def two(x):
        return torch.logsumexp(torch.stack([-40 * (x - m).square().sum(-1) for m in (-2, 2)]), 0)

    space = Space(LogProb(two, 2), Gaussian.isotropic(torch.zeros(2, dtype=D), 3.0))
    first = explore(space, generator, nothing)
    found = unbent(space, first, generator, nothing)
    assert found.q is first.q
    assert len(found.pool.u) > len(first.pool.u)
