"""The target of section 5.2: a Gaussian mixture pushed through a quadratic map."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from steinis_lib.targets.mixtures import GaussianMixture


@dataclass(frozen=True)
class WarpedMixture:
    """The law of T(z) = (a1 z1 + b1, a2 z1² + a3 z2 + b2), z from a mixture in 2-D, normalised.

    T is one-to-one with the constant Jacobian determinant a1 a3. The paper does not give its
    mixture, nor a1, …, b2: the defaults are our choice.

    Parameters
    ----------
    mixture
        The law of z; its parameters may have batch axes.
    a1, a2, a3, b1, b2
        Finite numbers, a1 and a3 not zero.
    """

    mixture: GaussianMixture
    a1: float = 1.0
    a2: float = 0.35
    a3: float = 1.0
    b1: float = 0.0
    b2: float = -1.5

    def __post_init__(self) -> None:
        if self.mixture.dim != 2:
            raise ValueError(f"the mixture must have d=2, got d={self.mixture.dim}")
        numbers = (self.a1, self.a2, self.a3, self.b1, self.b2)
        if not all(map(math.isfinite, numbers)):
            raise ValueError(f"a1, a2, a3, b1 and b2 must be finite, got {numbers}")
        if self.a1 == 0 or self.a3 == 0:
            raise ValueError(
                f"a1 and a3 must not be zero, or T has no inverse; got a1={self.a1}, a3={self.a3}"
            )

    @property
    def dim(self) -> int:
        """The dimension d = 2."""
        return 2

    @property
    def log_z(self) -> Tensor:
        """log Z = 0, ``(*batch,)``: the density is normalised."""
        return self.mixture.log_z

    @property
    def mean(self) -> Tensor:
        """E[x], ``(*batch, 2)``, from the first two moments of z."""
        z1, z2 = self.mixture.mean.unbind(-1)
        square = self.mixture.second_moment[..., 0]
        x2 = self.a2 * square + self.a3 * z2 + self.b2
        return torch.stack([self.a1 * z1 + self.b1, x2], -1)

    def forward(self, z: Tensor) -> Tensor:
        """Return T(z) for points ``(*batch, n, 2)``."""
        z1, z2 = z.unbind(-1)
        return torch.stack(
            [self.a1 * z1 + self.b1, self.a2 * z1.square() + self.a3 * z2 + self.b2], -1
        )

    def inverse(self, x: Tensor) -> Tensor:
        """Return the z with T(z) = x for points ``(*batch, n, 2)``."""
        z1 = (x[..., 0] - self.b1) / self.a1
        z2 = (x[..., 1] - self.b2 - self.a2 * z1.square()) / self.a3
        return torch.stack([z1, z2], -1)

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log p(x) = log p_z(z) - log|a1 a3|, ``(*batch, n)``."""
        return self.mixture.log_prob(self.inverse(x)) - self._log_det

    def score(self, x: Tensor) -> Tensor:
        """Return ∇ log p(x), ``(*batch, n, 2)``."""
        z = self.inverse(x)
        return self._score(z, self.mixture.score(z))

    def log_prob_and_score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p(x) and its gradient."""
        z = self.inverse(x)
        log_p, score = self.mixture.log_prob_and_score(z)
        return log_p - self._log_det, self._score(z, score)

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw ``(*batch, n, 2)`` independent particles for ``shape = (*batch, n)``."""
        return self.forward(self.mixture.sample(shape, generator))

    @property
    def _log_det(self) -> float:
        return math.log(abs(self.a1)) + math.log(abs(self.a3))

    def _score(self, z: Tensor, score: Tensor) -> Tensor:
        """Solve ∇T(z)ᵀ s_x = s_z, which is triangular."""
        second = score[..., 1] / self.a3
        first = (score[..., 0] - 2 * self.a2 * z[..., 0] * second) / self.a1
        return torch.stack([first, second], -1)
