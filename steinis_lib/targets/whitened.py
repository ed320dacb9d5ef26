"""A target in the coordinates of a Gaussian: a change of variables that leaves Z as it is.

With q = N(m, L Lᵀ) and x = m + L u, the law of u under q is N(0, I), and p̄ becomes
p̄_u(u) = p̄(m + L u) |det L|. Log-weights are the same numbers: log p̄ - log q at x is
log p̄_u - log N(0, I) at u. So HAIS from q, with velocities of covariance L Lᵀ, is
``HAIS(t, t.base(), …)`` with ``t = WhitenedTarget(p̄, q)``. One step size then suits all problems
of a batch, where q has their scales (preconditioning; Neal 2011, section 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steinis_lib.targets.base import Gaussian, Target


@dataclass(frozen=True)
class WhitenedTarget:
    """p̄ of u = L⁻¹(x - m), as a target with the same Z.

    Parameters
    ----------
    target
        p̄ of x.
    gaussian
        N(m, L Lᵀ), with m ``(*batch, d)`` and L ``(*batch, d, d)``: one for each problem, or one
        for all of them.

    Raises
    ------
    ValueError
        If the two have different dimensions.
    """

    target: Target
    gaussian: Gaussian

    def __post_init__(self) -> None:
        if self.gaussian.dim != self.target.dim:
            raise ValueError(
                f"the Gaussian has d={self.gaussian.dim}, but the target has d={self.target.dim}"
            )

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.target.dim

    def base(self) -> Gaussian:
        """Return N(0, I), the Gaussian in its own coordinates."""
        return Gaussian.isotropic(self.gaussian.mean.new_zeros(self.dim))

    def to_x(self, u: Tensor) -> Tensor:
        """Return x = m + L u, ``(*batch, n, d)``."""
        return self.gaussian.mean.unsqueeze(-2) + u @ self.gaussian.scale_tril.mT

    def log_prob(self, u: Tensor) -> Tensor:
        """Return log p̄(m + L u) + log|det L|, ``(*batch, n)``."""
        return self.target.log_prob(self.to_x(u)) + self._log_det

    def score(self, u: Tensor) -> Tensor:
        """Return Lᵀ s(m + L u), ``(*batch, n, d)``, with s the target's score."""
        return self.target.score(self.to_x(u)) @ self.gaussian.scale_tril

    def log_prob_and_score(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return both from one call of the target."""
        log_p, score = self.target.log_prob_and_score(self.to_x(u))
        return log_p + self._log_det, score @ self.gaussian.scale_tril

    @property
    def _log_det(self) -> Tensor:
        """log|det L|, ``(*batch, 1)``."""
        return torch.log(self.gaussian.scale_tril.diagonal(dim1=-2, dim2=-1)).sum(-1, keepdim=True)
