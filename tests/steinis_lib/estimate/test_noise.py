import pytest
import torch

from steinis_lib import Gaussian, LogProb
from steinis_lib.estimate.noise import rounding_noise
from steinis_lib.estimate.space import Space

D = torch.float64


def noise_of(function, generator, dtype=D, scale=1.0):
    u = scale * torch.randn(500, 2, generator=generator, dtype=D)
    q0 = Gaussian.isotropic(torch.zeros(2, dtype=dtype))
    weights = torch.full((500,), 1 / 500, dtype=D)
    return rounding_noise(Space(LogProb(function, 2), q0), u, weights, generator)


def smooth(x):
    return -0.5 * x.square().sum(-1) - x[:, 0].exp()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_smooth_densities_have_none(scale, generator):
    assert noise_of(lambda x: smooth(x / scale), generator, scale=scale) < 1e-5


def test_a_constant_in_single_precision_is_measured(generator):
    """Around 10⁶ floats are 1/16 apart: uniform errors with a standard deviation of .018."""
    found = noise_of(lambda x: smooth(x) + 1e6, generator, torch.float32)
    assert 0.01 < found < 0.03


def test_noise_that_is_constant_over_many_floats_is_seen(generator):
    """Jumps of half a nat every thousandth of a standard deviation."""
    found = noise_of(lambda x: smooth(x) + (x[:, 0] * 1000).floor().remainder(2) / 2, generator)
    assert 0.15 < found < 0.4


def test_a_kink_is_no_noise(generator):
    assert noise_of(lambda x: -x.abs().sum(-1), generator) < 1e-3
