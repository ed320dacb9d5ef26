import math
from dataclasses import replace

import torch

from steinis_lib import Gaussian, LogProb
from steinis_lib.estimate.flows import flown
from steinis_lib.estimate.space import Space

D = torch.float64


def space(function, dim):
    return Space(LogProb(function, dim), Gaussian.isotropic(torch.zeros(dim, dtype=D)))


def test_a_flow_ends_near_a_normal_density(generator):
    scales = torch.linspace(0.1, 3, 8, dtype=D)
    found = flown(space(lambda x: -0.5 * ((x - 2) / scales).square().sum(-1), 8), generator)
    torch.testing.assert_close(found.means[0], torch.full((8,), 2.0, dtype=D), rtol=0, atol=0.3)
    torch.testing.assert_close(found.scale_trils[0].diagonal(), scales, rtol=0.1, atol=0.0)
    assert found.freedom[0] == math.inf
    assert (found.scale_trils[1] == 1.3 * found.scale_trils[0]).all()


def test_a_flow_that_leaves_the_floats_is_none(generator, monkeypatch):
    def leave(_, state):
        return replace(state, mean=state.mean * torch.nan), None

    monkeypatch.setattr("steinis_lib.estimate.flows.GaussianFlow.step", leave)
    assert flown(space(lambda x: -x.square().sum(-1), 8), generator) is None
