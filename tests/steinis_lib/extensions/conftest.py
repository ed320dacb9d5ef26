import pytest
import torch

from steinis_lib import GaussianMixture


@pytest.fixture
def separated():
    """Four unequal components in five dimensions."""
    return GaussianMixture(
        torch.tensor([0.4, 0.3, 0.2, 0.1]).log(),
        torch.tensor([[-4.0, 0, 2, 1, 0], [4, 3, -3, 0, 1], [0, -5, 0, 3, -3], [1, 4, 3, -3, 2]]),
        torch.tensor(
            [
                [0.5, 1, 1, 1, 0.5],
                [1, 0.5, 0.7, 0.8, 1],
                [1, 0.6, 0.8, 1, 0.6],
                [0.7, 0.7, 1, 0.6, 1],
            ]
        ),
    )
