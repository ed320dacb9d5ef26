"""Gauss-Bernoulli restricted Boltzmann machines, the models of section 5.3.

p(x, h) ∝ exp(xᵀB h + bᵀx + cᵀh - ‖x‖²/2) with x in R^d and h in {±1}^d' (eq. 21). Given h, x is
N(Bh + b, I), so p(x) is a mixture of 2^d' Gaussians. For small d', Z, moments and exact draws
follow from sums over all h.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

MAX_HIDDEN = 20
"""The largest d' for sums over all h: a few arrays of 8 d' 2^d' bytes for each model."""


@dataclass(frozen=True)
class GaussBernoulliRBM:
    """p̄(x) = exp(bᵀx - ‖x‖²/2) Π_i 2 cosh φ_i with φ = Bᵀx + c: eq. 21 with h summed out.

    `log_z`, `mean`, `covariance` and `state_log_probs` are sums over all h, taken in float64
    whatever the dtype of the parameters, and kept once computed.

    Parameters
    ----------
    coupling
        B, ``(*batch, d, d')``.
    bias_x
        b, ``(*batch, d)``.
    bias_h
        c, ``(*batch, d')``.

    Raises
    ------
    ValueError
        If shapes or dtypes do not fit, or a parameter is not finite. Whatever sums over all h
        raises it too if d' > 20.
    """

    coupling: Tensor
    bias_x: Tensor
    bias_h: Tensor

    def __post_init__(self) -> None:
        parameters = (self.coupling, self.bias_x, self.bias_h)
        shape = self.coupling.shape
        fit = len(shape) > 1 and self.bias_x.shape == shape[:-1]
        if not fit or self.bias_h.shape != (*shape[:-2], shape[-1]):
            shapes = ", ".join(str(tuple(p.shape)) for p in parameters)
            raise ValueError(
                "expected coupling (*batch, d, d'), bias_x (*batch, d) and bias_h (*batch, d'); "
                f"got {shapes}"
            )
        if len({p.dtype for p in parameters}) > 1 or not self.coupling.is_floating_point():
            dtypes = ", ".join(str(p.dtype) for p in parameters)
            raise ValueError(f"all parameters must have one floating-point dtype, got {dtypes}")
        if not all(bool(torch.isfinite(p).all()) for p in parameters):
            raise ValueError("coupling, bias_x and bias_h must be finite")

    @property
    def dim(self) -> int:
        """The dimension d of x."""
        return self.coupling.shape[-2]

    @property
    def n_hidden(self) -> int:
        """The number d' of hidden units."""
        return self.coupling.shape[-1]

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log p̄(x) = bᵀx - ‖x‖²/2 + Σ_i log(2 cosh φ_i), ``(*batch, n)``."""
        return self._log_prob(x, self._phi(x))

    def score(self, x: Tensor) -> Tensor:
        """Return ∇ log p̄(x) = b - x + B tanh φ, ``(*batch, n, d)``."""
        return self._score(x, self._phi(x))

    def log_prob_and_score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p̄(x) and its gradient from one φ."""
        phi = self._phi(x)
        return self._log_prob(x, phi), self._score(x, phi)

    @cached_property
    def state_log_probs(self) -> Tensor:
        """log p(h), float64 ``(*batch, 2^d')``; state k has the bits of k, highest first, as ±1."""
        return self._log_terms - self._log_terms.logsumexp(-1, keepdim=True)

    @cached_property
    def log_z(self) -> Tensor:
        """log Z = (d/2) log 2π + logsumexp_h [cᵀh + ‖Bh + b‖²/2], float64 ``(*batch,)``."""
        return self._log_terms.logsumexp(-1) + 0.5 * self.dim * math.log(2 * math.pi)

    @cached_property
    def mean(self) -> Tensor:
        """E[x] = B E[h] + b, float64 ``(*batch, d)``."""
        h = (self.state_log_probs.exp() @ self._states()).unsqueeze(-1)
        return (self.coupling.double() @ h).squeeze(-1) + self.bias_x.double()

    @cached_property
    def covariance(self) -> Tensor:
        """Cov[x] = I + B Cov[h] Bᵀ, float64 ``(*batch, d, d)``."""
        p, states, coupling = self.state_log_probs.exp(), self._states(), self.coupling.double()
        h = (p @ states).unsqueeze(-1)
        cov_h = (states.mT * p.unsqueeze(-2)) @ states - h @ h.mT
        eye = torch.eye(self.dim, dtype=cov_h.dtype, device=cov_h.device)
        return eye + coupling @ cov_h @ coupling.mT

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw ``(*batch, n, d)`` independent particles for ``shape = (*batch, n)``: h, then x."""
        like = self.coupling
        cumulative = self.state_log_probs.exp().cumsum(-1)
        cumulative = (cumulative / cumulative[..., -1:]).expand(*shape[:-1], -1).contiguous()
        u = torch.rand(shape, generator=generator, dtype=torch.float64, device=like.device)
        k = torch.searchsorted(cumulative, u, right=True)
        z = torch.randn(*shape, self.dim, generator=generator, dtype=like.dtype, device=like.device)
        return self.bias_x.unsqueeze(-2) + _signs(k, self.n_hidden).to(like) @ like.mT + z

    def _phi(self, x: Tensor) -> Tensor:
        return _add_product(self.bias_h.unsqueeze(-2), x, self.coupling)

    def _log_prob(self, x: Tensor, phi: Tensor) -> Tensor:
        linear = (x @ self.bias_x.unsqueeze(-1)).squeeze(-1)
        return linear - 0.5 * x.square().sum(-1) + torch.logaddexp(phi, -phi).sum(-1)

    def _score(self, x: Tensor, phi: Tensor) -> Tensor:
        return _add_product(self.bias_x.unsqueeze(-2) - x, phi.tanh(), self.coupling.mT)

    @cached_property
    def _log_terms(self) -> Tensor:
        """cᵀh + ‖Bh + b‖²/2 for all states, float64 ``(*batch, 2^d')``.

        The square is multiplied out. Its mean over all h is ‖B‖² + ‖b‖², so the largest terms,
        which decide the sum, lose little to cancellation.
        """
        states, coupling = self._states(), self.coupling.double()
        bias_x = self.bias_x.double().unsqueeze(-1)
        field = self.bias_h.double().unsqueeze(-2) + (coupling.mT @ bias_x).mT
        terms = ((0.5 * states @ (coupling.mT @ coupling) + field) * states).sum(-1)
        return terms + 0.5 * bias_x.square().sum(-2)

    def _states(self) -> Tensor:
        """All h, float64 ``(2^d', d')``."""
        if self.n_hidden > MAX_HIDDEN:
            raise ValueError(
                f"a sum over all 2^d' hidden states is limited to d' ≤ {MAX_HIDDEN}, "
                f"got d' = {self.n_hidden}; log_prob and score have no such limit"
            )
        k = torch.arange(2**self.n_hidden, device=self.bias_h.device)
        return _signs(k, self.n_hidden).double()


def random_rbm(
    dim: int,
    n_hidden: int,
    generator: torch.Generator,
    *,
    batch_shape: tuple[int, ...] = (),
    dtype: torch.dtype = torch.float64,
) -> GaussBernoulliRBM:
    """Draw models as section 5.3 does: b, c ~ N(0, I), and B of ±0.5, each sign equally likely.

    Independent models are drawn along `batch_shape`.
    """
    device = generator.device
    bias_x, bias_h = (
        torch.randn(*batch_shape, size, generator=generator, dtype=dtype, device=device)
        for size in (dim, n_hidden)
    )
    coin = torch.randint(2, (*batch_shape, dim, n_hidden), generator=generator, device=device)
    return GaussBernoulliRBM(coin.to(dtype) - 0.5, bias_x, bias_h)


def _add_product(offset: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return offset + a b, in one call where shapes allow; most of a score's time goes here."""
    if a.ndim == b.ndim == 3 and len(a) == len(b):
        return torch.baddbmm(offset, a, b)
    return offset + a @ b


def _signs(k: Tensor, bits: int) -> Tensor:
    """Return the bits of k, highest first, as ±1 along a new last axis."""
    place = torch.arange(bits - 1, -1, -1, device=k.device)
    return 2 * ((k.unsqueeze(-1) >> place) & 1) - 1
