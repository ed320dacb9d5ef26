"""Mixtures of multivariate t and Gaussian components: the proposals of `find`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

MOST_NUMBERS = 2_000_000
"""Numbers that are held at a time."""


@dataclass(frozen=True)
class StudentMixture:
    """A mixture Σ_k π_k t(μ_k, L_k L_kᵀ, ν_k), normalised; ν = ∞ is a Gaussian.

    Parameters
    ----------
    log_weights
        log π_k up to a constant, ``(K,)``: they are normalised here.
    means
        μ_k, ``(K, d)``.
    scale_trils
        Cholesky factors L_k, ``(K, d, d)``.
    freedom
        ν_k, ``(K,)``, positive.
    """

    log_weights: Tensor
    means: Tensor
    scale_trils: Tensor
    freedom: Tensor

    def __post_init__(self) -> None:
        k, d = self.means.shape
        shapes = (self.log_weights.shape, self.scale_trils.shape, self.freedom.shape)
        if shapes != ((k,), (k, d, d), (k,)):
            raise ValueError(
                "expected log_weights (K,), means (K, d), scale_trils (K, d, d) and freedom (K,); "
                f"got {tuple(self.means.shape)} and {[tuple(s) for s in shapes]}"
            )
        object.__setattr__(self, "log_weights", self.log_weights.log_softmax(0))

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.means.shape[-1]

    @property
    def log_z(self) -> Tensor:
        """log Z = 0: the density is normalised."""
        return self.means.new_zeros(())

    def distances(self, x: Tensor) -> Tensor:
        """Return δ_k = ‖L_k⁻¹(x - μ_k)‖² of x ``(n, d)``, ``(n, K)``."""
        n, (k, d) = len(x), self.means.shape
        shift = (self._whiten @ self.means.unsqueeze(-1)).squeeze(-1)
        columns, most = [], max(1, MOST_NUMBERS // max(n * d, 1))
        for i in range(0, k, most):  # all of them at once, as far as memory allows
            whiten = self._whiten[i : i + most].flatten(0, 1)
            z = x @ whiten.mT - shift[i : i + most].flatten()
            columns.append(z.unflatten(-1, (-1, d)).square_().sum(-1))
        return torch.cat(columns, -1)

    def log_components(self, x: Tensor, distances: Tensor | None = None) -> Tensor:
        """Return log t(x; μ_k, L_k L_kᵀ, ν_k), WITHOUT the weights, ``(n, K)``."""
        delta = self.distances(x) if distances is None else distances
        nu, d = self._finite_freedom, self.dim
        log_det = self.scale_trils.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        gaussian = -0.5 * delta - 0.5 * d * math.log(2 * math.pi)
        constant = torch.lgamma((nu + d) / 2) - torch.lgamma(nu / 2)
        constant = constant - 0.5 * d * (nu * math.pi).log()
        heavy = constant - 0.5 * (nu + d) * torch.log1p(delta / nu)
        return torch.where(torch.isinf(self.freedom), gaussian, heavy) - log_det

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log q(x), ``(n,)``."""
        return (self.log_components(x) + self.log_weights).logsumexp(-1)

    def score(self, x: Tensor) -> Tensor:
        """Return ∇ log q(x), ``(n, d)``."""
        return self.log_prob_and_score(x)[1]

    def log_prob_and_score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return log q(x) and its gradient."""
        delta = self.distances(x)
        joint = self.log_components(x, delta) + self.log_weights
        log_q = joint.logsumexp(-1)
        pull = (joint - log_q.unsqueeze(-1)).exp() * self.pulls(delta)
        score = torch.zeros_like(x)
        for k, (mean, whiten) in enumerate(zip(self.means, self._whiten, strict=True)):
            score = score - pull[:, k : k + 1] * (((x - mean) @ whiten.mT) @ whiten)
        return log_q, score

    def pulls(self, distances: Tensor) -> Tensor:
        """Return (ν + d)/(ν + δ), ``(n, K)``: what a point counts for in EM; 1 for a Gaussian."""
        nu = self._finite_freedom
        return torch.where(torch.isinf(self.freedom), 1.0, (nu + self.dim) / (nu + distances))

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw ``(n, d)`` independent particles for ``shape = (n,)``."""
        like = self.means
        k = torch.multinomial(self.log_weights.exp(), shape[0], True, generator=generator)
        z = torch.randn(*shape, self.dim, generator=generator, dtype=like.dtype, device=like.device)
        nu = self._finite_freedom[k]
        # A chi-squared number by way of the gamma distribution, which takes a generator.
        chi = 2 * torch._standard_gamma(nu / 2, generator=generator)
        stretch = torch.where(torch.isinf(self.freedom[k]), 1.0, (nu / chi).sqrt())
        moved = torch.empty_like(z)
        for j in k.unique().tolist():
            moved[k == j] = z[k == j] @ self.scale_trils[j].mT
        return self.means[k] + stretch.unsqueeze(-1) * moved

    def joined(self, other: StudentMixture, share: float = 0.5) -> StudentMixture:
        """Return the mixture of both, with `share` of the weight for the other one."""
        shares = (math.log1p(-share), math.log(share))
        return StudentMixture(
            torch.cat([self.log_weights + shares[0], other.log_weights + shares[1]]),
            torch.cat([self.means, other.means]),
            torch.cat([self.scale_trils, other.scale_trils]),
            torch.cat([self.freedom, other.freedom]),
        )

    def chosen(self, index: Tensor) -> StudentMixture:
        """Return the mixture of some components."""
        return StudentMixture(
            self.log_weights[index], self.means[index], self.scale_trils[index], self.freedom[index]
        )

    @cached_property
    def _finite_freedom(self) -> Tensor:
        return torch.where(torch.isinf(self.freedom), 1.0, self.freedom)

    @cached_property
    def _whiten(self) -> Tensor:
        """L_k⁻¹."""
        eye = torch.eye(self.dim, dtype=self.means.dtype, device=self.means.device)
        return torch.linalg.solve_triangular(self.scale_trils, eye, upper=False)
