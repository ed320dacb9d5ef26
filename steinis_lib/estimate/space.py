"""p̄ in the coordinates of q0, in 64 bits: what all stages of `find` work in.

With q0 = N(m, L Lᵀ) and x = m + L u, the density of u is p̄(m + L u) |det L|, with the same Z. What
q0 says about scales is then used by every stage, and none of them needs to know it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steinis_lib.targets.base import Gaussian, Target


@dataclass(frozen=True)
class Space:
    """p̄ of u = L⁻¹(x - m) in float64, whatever q0's dtype is.

    Points where p̄ is zero or not a number have log p̄ = -∞ and a score of zero. So has a point
    whose score is not finite, as to scores.

    Parameters
    ----------
    target
        p̄ of x.
    q0
        N(m, L Lᵀ).
    """

    target: Target
    q0: Gaussian

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.target.dim

    def to_x(self, u: Tensor) -> Tensor:
        """Return x = m + L u, in q0's dtype."""
        mean, scale = self.q0.mean.double(), self.q0.scale_tril.double()
        return (mean + u @ scale.mT).to(self.q0.mean.dtype)

    def log_prob(self, u: Tensor) -> Tensor:
        """Return log p̄ of u ``(n, d)``, ``(n,)``."""
        return self._usable(self.target.log_prob(self.to_x(u)))

    def score(self, u: Tensor) -> Tensor:
        """Return ∇ log p̄, ``(n, d)``."""
        return self.log_prob_and_score(u)[1]

    def log_prob_and_score(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return both from one call of the target."""
        log_p, score = self.target.log_prob_and_score(self.to_x(u))
        log_p = self._usable(log_p)
        score = score.double() @ self.q0.scale_tril.double()
        usable = torch.isfinite(score).all(-1) & torch.isfinite(log_p)
        return log_p, torch.where(usable.unsqueeze(-1), score, 0.0)

    def _usable(self, log_p: Tensor) -> Tensor:
        log_det = self.q0.scale_tril.double().diagonal().log().sum()
        log_p = log_p.double() + log_det
        return torch.where(torch.isnan(log_p), -torch.inf, log_p)
