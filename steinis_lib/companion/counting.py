"""A target that counts what is asked of it."""

from __future__ import annotations

import math

from torch import Tensor

from steinis_lib.targets.base import Target


class Counted:
    """A target that counts the particles of all problems it is evaluated at, in `n`.

    A gradient costs as much as a density, and both together as much as one.
    """

    def __init__(self, target: Target) -> None:
        self.target, self.dim, self.n = target, target.dim, 0

    def log_prob(self, x: Tensor) -> Tensor:
        """Count, and return log p̄."""
        self.n += math.prod(x.shape[:-1])
        return self.target.log_prob(x)

    def score(self, x: Tensor) -> Tensor:
        """Count, and return the score."""
        self.n += math.prod(x.shape[:-1])
        return self.target.score(x)

    def log_prob_and_score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Count once, and return both."""
        self.n += math.prod(x.shape[:-1])
        return self.target.log_prob_and_score(x)
