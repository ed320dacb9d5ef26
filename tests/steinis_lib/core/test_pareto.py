import math
import warnings

import numpy as np
import pytest
import torch

from steinis_lib.core.pareto import pareto_k, pareto_shape

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # ArviZ announces its next version on import
    from arviz import psislw


def by_arviz(log_w):
    return torch.as_tensor(psislw(log_w.double().numpy())[1])


WEIGHTS = {
    "light": lambda g: torch.rand(4, 3, 1000, generator=g).log(),
    "log-normal": lambda g: 2 * torch.randn(5, 200, generator=g),
    "heavy": lambda g: -3 * torch.rand(5, 300, generator=g).log(),
    "few": lambda g: torch.randn(6, 30, generator=g),
    "too few": lambda g: torch.randn(6, 12, generator=g),
    "ties": lambda g: torch.randn(4, 400, generator=g).round(decimals=1),
    "huge differences": lambda g: 500 * torch.randn(4, 400, generator=g),
    "zeros": lambda g: torch.randn(4, 200, generator=g).where(torch.rand(200) < 0.5, -torch.inf),
    "shifted": lambda g: 1e4 + torch.randn(4, 500, generator=g),
}


@pytest.mark.parametrize("make", WEIGHTS.values(), ids=WEIGHTS.keys())
def test_it_agrees_with_arviz(make, generator):
    log_w = make(generator)
    expected = by_arviz(log_w)
    assert pareto_k(log_w).shape == log_w.shape[:-1]
    torch.testing.assert_close(pareto_k(log_w), expected, rtol=1e-9, atol=1e-9)


def test_equal_weights_have_no_tail_and_short_tails_no_fit():
    assert pareto_k(torch.zeros(2, 50)).tolist() == [-math.inf] * 2
    assert pareto_k(torch.tensor([0.0, 1.0, 2.0])) == math.inf


@pytest.mark.parametrize("shape", [-0.3, 0.2, 0.5, 1.0])
def test_the_shape_of_a_large_sample_is_found(shape):
    u = (np.arange(20_000) + 0.5) / 20_000  # quantiles, so that there is no noise
    x = torch.as_tensor(((1 - u) ** -shape - 1) / shape)
    assert pareto_shape(x) == pytest.approx(shape, abs=0.02)


def test_dtype_follows_the_input(generator):
    log_w = torch.randn(2, 100, generator=generator, dtype=torch.float32)
    found = pareto_k(log_w)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, by_arviz(log_w).float())
