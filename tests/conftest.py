"""Targets that hide no sign error: skewed, non-Gaussian, with Z ≠ 1 known from quadrature."""

import math
import os

import pytest
import torch

from steinis_lib import Gaussian, GaussianMixture, LogProb

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)

# The processes of pytest-xdist inherit these, and rich would keep them for the terminal's size.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)


class Skewed(LogProb):
    """p̄(x) = exp(-x₁⁴/4 + x₁²/2 + 0.6 x₁) · exp(-(x₂ - 0.4 x₁²)²/(2·0.6²)), in 2-D.

    Bimodal and tilted along x₁, bent along x₂, with tails lighter than a Gaussian's.
    """

    def __init__(self):
        def first(x):
            return -(x**4) / 4 + x**2 / 2 + 0.6 * x

        def function(x):
            bend = x[:, 1] - 0.4 * x[:, 0] ** 2
            return first(x[:, 0]) - bend**2 / (2 * 0.36)

        super().__init__(function, 2)
        grid = torch.linspace(-8, 8, 20001)
        z1 = torch.trapezoid(first(grid).exp(), grid)
        object.__setattr__(self, "log_z", z1.log() + 0.5 * math.log(2 * math.pi * 0.36))


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(20170811)


@pytest.fixture
def skewed():
    return Skewed()


@pytest.fixture
def wide():
    """A q0 for `skewed` under which the weights have finite variance."""
    return Gaussian.isotropic(torch.tensor([0.3, 0.5]), 1.5)


@pytest.fixture
def lopsided():
    """A 1-D mixture without any symmetry, as a normalised target."""
    return GaussianMixture(
        torch.tensor([0.55, 0.3, 0.15]).log(),
        torch.tensor([[-1.2], [0.9], [2.4]]),
        torch.tensor([[0.8], [0.5], [0.9]]),
    )
