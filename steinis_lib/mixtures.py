"""Mixtures of Gaussians with full covariances, as proposals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from steinis_lib.targets import Gaussian


@dataclass(frozen=True)
class FullMixture:
    """A mixture Σ_k π_k N(μ_k, L_k L_kᵀ), normalised; no intermediate is n×K×d.

    The batch axes of the three broadcast: many sets of weights may share their components.

    Parameters
    ----------
    log_weights
        log π_k, ``(*batch, K)``, normalised; -inf drops a component.
    means
        μ_k, ``(*batch, K, d)``.
    scale_trils
        The Cholesky factors L_k, ``(*batch, K, d, d)``: lower, positive diagonal.

    Raises
    ------
    ValueError
        If the shapes do not fit, a factor is no Cholesky factor, or Σ_k π_k ≠ 1.
    """

    log_weights: Tensor
    means: Tensor
    scale_trils: Tensor

    def __post_init__(self) -> None:
        shapes = [tuple(t.shape) for t in (self.log_weights, self.means, self.scale_trils)]
        weights, means, trils = shapes
        try:
            fits = (*weights[-1:], *means[-1:] * 2) == trils[-3:] and means[-2:] == trils[-3:-1]
            torch.broadcast_shapes(weights[:-1], means[:-2], trils[:-3])
        except RuntimeError:
            fits = False
        if not fits:
            raise ValueError(
                "expected log_weights (*batch, K), means (*batch, K, d), scale_trils "
                f"(*batch, K, d, d); got {', '.join(map(str, shapes))}"
            )
        diagonal = self.scale_trils.diagonal(dim1=-2, dim2=-1)
        if not bool((diagonal > 0).all()) or bool(self.scale_trils.triu(1).any()):
            raise ValueError("scale_trils must be lower triangular with a positive diagonal")
        if not bool((self.log_weights.logsumexp(-1).abs() < 1e-4).all()):
            raise ValueError("log_weights must be normalised: logsumexp over components must be 0")

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.means.shape[-1]

    @property
    def log_z(self) -> Tensor:
        """log Z = 0: the density is normalised."""
        return torch.zeros_like(self.log_weights[..., 0] + self.means[..., 0, 0])

    def log_components(self, x: Tensor) -> Tensor:
        """Return log N(x; μ_k, L_k L_kᵀ), WITHOUT the weights, ``(*batch, n, K)``.

        ‖L_k⁻¹(x - μ_k)‖² is summed over its d coordinates, one matrix product for each.
        """
        whiten, shift, log_det = self._whitening
        log_n = -(log_det + 0.5 * self.dim * math.log(2 * math.pi)).unsqueeze(-2)
        for i in range(self.dim):
            z = (x @ whiten[..., i, :].mT).sub_(shift[..., i].unsqueeze(-2))
            log_n = torch.addcmul(log_n, z, z, value=-0.5)
        return log_n

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log q(x) of shape ``(*batch, n)``."""
        return self._joint(x).logsumexp(-1)

    def score(self, x: Tensor) -> Tensor:
        """Return ∇ log q(x) of shape ``(*batch, n, d)``."""
        return self.log_prob_and_score(x)[1]

    def log_prob_and_score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return log q(x) and its gradient Σ_k ρ_k(x) Σ_k⁻¹ (μ_k - x), ρ the responsibilities."""
        joint = self._joint(x)
        log_q = joint.logsumexp(-1)
        rho = (joint - log_q.unsqueeze(-1)).exp()
        whiten, shift, _ = self._whitening
        pull = rho @ (whiten.mT @ shift.unsqueeze(-1)).squeeze(-1)
        precision = (rho @ (whiten.mT @ whiten).flatten(-2)).unflatten(-1, (self.dim, self.dim))
        return log_q, pull - (precision @ x.unsqueeze(-1)).squeeze(-1)

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw ``(*batch, n, d)`` independent particles for ``shape = (*batch, n)``."""
        d, like = self.dim, self.means
        cumulative = self.log_weights.exp().cumsum(-1).expand(*shape[:-1], -1).contiguous()
        u = torch.rand(shape, generator=generator, dtype=like.dtype, device=like.device)
        k = torch.searchsorted(cumulative, u * cumulative[..., -1:], right=True).unsqueeze(-1)
        z = torch.randn(*shape, d, generator=generator, dtype=like.dtype, device=like.device)

        def chosen(values: Tensor) -> Tensor:
            wide = values.expand(*shape[:-1], *values.shape[-2:])
            return wide.gather(-2, k.expand(*shape, values.shape[-1]))

        trils = chosen(self.scale_trils.flatten(-2)).unflatten(-1, (d, d))
        return chosen(like) + (trils @ z.unsqueeze(-1)).squeeze(-1)

    def _joint(self, x: Tensor) -> Tensor:
        return self.log_components(x) + self.log_weights.unsqueeze(-2)

    @cached_property
    def _whitening(self) -> tuple[Tensor, Tensor, Tensor]:
        """L_k⁻¹, L_k⁻¹ μ_k, and log|L_k|."""
        eye = torch.eye(self.dim, dtype=self.means.dtype, device=self.means.device)
        whiten = torch.linalg.solve_triangular(self.scale_trils, eye, upper=False)
        shift = (whiten @ self.means.unsqueeze(-1)).squeeze(-1)
        return whiten, shift, self.scale_trils.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def defensive(gaussian: Gaussian, inflation: float = 1.5, share: float = 0.1) -> FullMixture:
    """Return (1 - share) N(m, C) + share N(m, inflation² C), for `gaussian` = N(m, C).

    Weights p̄/q are then at most 1/share times those under the wide part, whose tails are heavier:
    their variance is finite wherever it is under the wide part alone (Hesterberg 1995).

    Parameters
    ----------
    gaussian
        N(m, C), m of shape ``(*batch, d)``.
    inflation
        Factor on standard deviations, above 1.
    share
        The wide part's weight, between 0 and 1.

    Raises
    ------
    ValueError
        If `inflation` or `share` is out of range.
    """
    if not 1 < inflation < math.inf:
        raise ValueError(f"inflation must be above 1 and finite, got {inflation}")
    if not 0 < share < 1:
        raise ValueError(f"share must be between 0 and 1, both excluded, got {share}")
    m, tril = gaussian.mean, gaussian.scale_tril
    return FullMixture(
        m.new_tensor([1 - share, share]).log(),
        torch.stack([m, m], -2),
        torch.stack([tril, inflation * tril], -3),
    )
