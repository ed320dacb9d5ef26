"""Mixtures of Gaussians, as targets and as proposals: diagonal and full covariances."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class GaussianMixture:
    """A mixture Σ_k π_k N(μ_k, diag σ_k²), normalised.

    Parameters
    ----------
    log_weights
        log π_k, ``(*batch, K)``, normalised.
    means
        μ_k, ``(*batch, K, d)``.
    scales
        Standard deviations σ_k, ``(*batch, K, d)``, positive.
    """

    log_weights: Tensor
    means: Tensor
    scales: Tensor

    def __post_init__(self) -> None:
        if self.means.shape != self.scales.shape or self.log_weights.shape != self.means.shape[:-1]:
            raise ValueError(
                "expected log_weights (*batch, K) and means, scales (*batch, K, d); got "
                f"{tuple(self.log_weights.shape)}, {tuple(self.means.shape)}, "
                f"{tuple(self.scales.shape)}"
            )
        if not bool((self.scales > 0).all()):
            raise ValueError("scales must be positive standard deviations")
        total = self.log_weights.logsumexp(-1)
        if not bool((total.abs() < 1e-4).all()):
            raise ValueError("log_weights must be normalised: logsumexp over components must be 0")

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.means.shape[-1]

    @property
    def log_z(self) -> Tensor:
        """log Z = 0: the density is normalised."""
        return self.means.new_zeros(self.means.shape[:-2])

    @property
    def mean(self) -> Tensor:
        """E[x], ``(*batch, d)``."""
        return (self.log_weights.exp().unsqueeze(-1) * self.means).sum(-2)

    @property
    def second_moment(self) -> Tensor:
        """E[x_j²] for each coordinate, ``(*batch, d)``."""
        moments = self.means.square() + self.scales.square()
        return (self.log_weights.exp().unsqueeze(-1) * moments).sum(-2)

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log p(x) of shape ``(*batch, n)``."""
        return self._log_components(x).logsumexp(-1)

    def score(self, x: Tensor) -> Tensor:
        """Return ∇ log p(x) of shape ``(*batch, n, d)``."""
        return self._score(x, self._log_components(x).softmax(-1))

    def log_prob_and_score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p(x) and its gradient."""
        components = self._log_components(x)
        largest = components.amax(-1, keepdim=True)
        terms = (components - largest).exp()  # one exponential serves both
        total = terms.sum(-1, keepdim=True)
        return (largest + total.log()).squeeze(-1), self._score(x, terms / total)

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw ``(*batch, n, d)`` independent particles for ``shape = (*batch, n)``."""
        like = self.means
        u = torch.rand(*shape, 1, generator=generator, dtype=like.dtype, device=like.device)
        cumulative = self.log_weights.exp().cumsum(-1).unsqueeze(-2)
        k = (u > cumulative).sum(-1).clamp(max=self.means.shape[-2] - 1)
        index = k.unsqueeze(-1).expand(*k.shape, self.dim)
        means = self.means.expand(*k.shape[:-1], *self.means.shape[-2:]).gather(-2, index)
        scales = self.scales.expand(*k.shape[:-1], *self.scales.shape[-2:]).gather(-2, index)
        z = torch.randn(*shape, self.dim, generator=generator, dtype=like.dtype, device=like.device)
        return means + scales * z

    def _score(self, x: Tensor, responsibility: Tensor) -> Tensor:
        precision = self.scales.square().reciprocal()
        return responsibility @ (self.means * precision) - x * (responsibility @ precision)

    def _log_components(self, x: Tensor) -> Tensor:
        """log π_k N(x; μ_k, σ_k²), ``(*batch, n, K)``, from two matrix products."""
        centre = self.means.mean(-2, keepdim=True)  # keeps the expanded square accurate
        x, means = x - centre, self.means - centre
        precision = self.scales.square().reciprocal()
        quadratic = (
            x.square() @ precision.mT
            - 2 * (x @ (means * precision).mT)
            + (means.square() * precision).sum(-1).unsqueeze(-2)
        )
        constant = (
            self.log_weights - self.scales.log().sum(-1) - 0.5 * self.dim * math.log(2 * math.pi)
        )
        return constant.unsqueeze(-2) - 0.5 * quadratic


@dataclass(frozen=True)
class FullCovarianceMixture:
    """A mixture Σ_k π_k N(μ_k, L_k L_kᵀ), normalised.

    The batch axes of the three broadcast: many sets of weights may share the same components.

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


def random_mixture(
    n_components: int,
    dim: int,
    generator: torch.Generator,
    *,
    batch_shape: tuple[int, ...] = (),
    spread: float = 3.0,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float64,
) -> GaussianMixture:
    """Draw mixtures with equal weights, means uniform on [-spread, spread]^d, σ = `scale`.

    Independent mixtures are drawn along `batch_shape`. The paper says only "10 randomly
    generated mixture components": the distribution of the mixtures is our choice.
    """
    shape = (*batch_shape, n_components, dim)
    u = torch.rand(shape, generator=generator, dtype=dtype, device=generator.device)
    means = spread * (2 * u - 1)
    log_weights = torch.full_like(means[..., 0], -math.log(n_components))
    return GaussianMixture(log_weights, means, torch.full_like(means, scale))
