"""The method without one of its parts, and the target of the floor law in many dimensions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steinis_lib.extensions.affine_part import WithAffinePart
from steinis_lib.extensions.pooled import PooledSteinIS
from steinis_lib.extensions.whitened_kernel import Whitened
from steinis_lib.stein.kernels import RBF, median_bandwidth


class NotWhitened(PooledSteinIS):
    """Coordinates that are moved and scaled as a whole, not whitened.

    The affine part is that of whitened coordinates, so that this takes ``affine=False``.
    """

    def _coordinates(self, leaders: Tensor) -> Whitened:
        variance = leaders.var(-2).mean(-1)[..., None, None]
        eye = torch.eye(self.target.dim, dtype=leaders.dtype, device=leaders.device)
        return Whitened(
            RBF(bandwidth=1.0),
            mean=leaders.mean(-2, keepdim=True),
            scale_tril=variance.sqrt() * eye,
        )


class PrintedBandwidth(PooledSteinIS):
    """The paper's bandwidth, med² / (2 log(m + 1)) of the m leaders of a map."""

    def _kernel(self, pool: Tensor, u: Tensor, s: Tensor) -> tuple[WithAffinePart, Tensor]:
        kernel, share = super()._kernel(pool, u, s)
        return replace(kernel, kernel=RBF(bandwidth=median_bandwidth(u))), share


@dataclass(frozen=True)
class SkewedProduct:
    """Independent log-gamma coordinates, log p(x) = Σ (a x - eˣ - log Γ(a)): skewed, Z = 1."""

    dim: int
    shape: float = 3.0

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log p, ``(*batch, n)``."""
        each: Tensor = self.shape * x - x.exp() - math.lgamma(self.shape)
        return each.sum(-1)

    def score(self, x: Tensor) -> Tensor:
        """Return ∇log p, ``(*batch, n, d)``."""
        return self.shape - x.exp()

    def log_prob_and_score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return both."""
        return self.log_prob(x), self.score(x)
