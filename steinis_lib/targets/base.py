"""Targets: unnormalised densities p̄ on R^d, with their scores s_p = ∇ log p̄.

Every target takes particles ``(*batch, n, d)`` and returns log-densities ``(*batch, n)`` and
scores ``(*batch, n, d)``. Parameters may have the same batch axes: each problem of a batch then has
a model of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class Target(Protocol):
    """What every algorithm needs of p̄: its dimension, log-density and score.

    A target may also offer, where they are known exactly, ``log_z`` ``(*batch,)``, ``mean``
    ``(*batch, d)``, and ``sample(shape, generator)`` with ``shape = (*batch, n)``.
    """

    @property
    def dim(self) -> int:
        """The dimension d."""
        ...

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log p̄(x) of shape ``(*batch, n)`` for particles ``(*batch, n, d)``."""
        ...

    def score(self, x: Tensor) -> Tensor:
        """Return ∇ log p̄(x) of shape ``(*batch, n, d)`` for particles ``(*batch, n, d)``."""
        ...

    def log_prob_and_score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return both, which is cheaper than two calls where they share work."""
        ...


@runtime_checkable
class Proposal(Protocol):
    """What an initial distribution q_0 needs: a normalised density and a sampler."""

    @property
    def dim(self) -> int:
        """The dimension d."""
        ...

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log q_0(x), normalised, of shape ``(*batch, n)``."""
        ...

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw particles ``(*batch, n, d)`` for ``shape = (*batch, n)``."""
        ...


class ScoredProposal(Target, Proposal, Protocol):
    """A q_0 for annealing: normalised density, sampler, and score."""


@dataclass(frozen=True)
class LogProb:
    """Any torch log-density as a target; the score comes from autograd.

    Parameters
    ----------
    function
        Maps ``(n, d)`` to ``(n,)``, one value per particle, differentiable by torch. Batch axes
        are folded into n before it is called.
    dim
        The dimension d.
    """

    function: Callable[[Tensor], Tensor]
    dim: int

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log p̄(x) of shape ``(*batch, n)``."""
        flat = x if x.shape[1:] == (self.dim,) else x.reshape(-1, self.dim)
        value = self.function(flat)
        if not isinstance(value, Tensor) or value.shape != flat.shape[:1]:
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(
                f"log_prob must map (n, d) to (n,): for {tuple(flat.shape)} it returned {got}; "
                "sum over coordinates, not over particles"
            )
        return value if flat is x else value.reshape(x.shape[:-1])

    def score(self, x: Tensor) -> Tensor:
        """Return ∇ log p̄(x) of shape ``(*batch, n, d)`` by reverse-mode differentiation."""
        return self.log_prob_and_score(x)[1]

    def log_prob_and_score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p̄(x) and its gradient from one forward and one backward pass."""
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            value = self.log_prob(x)
            if not value.requires_grad:
                raise ValueError("log_prob does not depend on its input through torch operations")
            (gradient,) = torch.autograd.grad(value, x, torch.ones_like(value))
        return value.detach(), gradient


@dataclass(frozen=True)
class Gaussian:
    """The normal distribution N(mean, L Lᵀ), normalised.

    Parameters
    ----------
    mean
        ``(*batch, d)``.
    scale_tril
        The Cholesky factor L of the covariance, ``(*batch, d, d)``, positive diagonal.
    """

    mean: Tensor
    scale_tril: Tensor

    def __post_init__(self) -> None:
        d = self.mean.shape[-1]
        if self.scale_tril.shape[-2:] != (d, d):
            raise ValueError(f"scale_tril must end in ({d}, {d}), got {self.scale_tril.shape}")
        if not bool((self.scale_tril.diagonal(dim1=-2, dim2=-1) > 0).all()):
            raise ValueError("scale_tril must have a positive diagonal")

    @classmethod
    def isotropic(cls, mean: Tensor, scale: float = 1.0) -> Gaussian:
        """Return N(mean, scale² I) for `mean` of shape ``(*batch, d)``."""
        eye = torch.eye(mean.shape[-1], dtype=mean.dtype, device=mean.device)
        return cls(mean, scale * eye)

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.mean.shape[-1]

    @property
    def log_z(self) -> Tensor:
        """log Z = 0: the density is normalised."""
        return self.mean.new_zeros(self.mean.shape[:-1])

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log N(x) of shape ``(*batch, n)``."""
        log_peak, _ = self._constants
        return torch.add(log_peak, self._whiten(x).square().sum(-1), alpha=-0.5)

    def score(self, x: Tensor) -> Tensor:
        """Return Σ⁻¹(mean - x), of shape ``(*batch, n, d)``."""
        _, variances = self._constants
        return self._pull(self._whiten(x)) if variances is None else (self._row - x) / variances

    def log_prob_and_score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return log N(x) and its gradient."""
        log_peak, variances = self._constants
        if variances is None:
            z = self._whiten(x)
            square, score = z.square(), self._pull(z)
        else:
            centred = self._row - x
            score = centred / variances
            square = centred * score
        return torch.add(log_peak, square.sum(-1), alpha=-0.5), score

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw ``(*batch, n, d)`` independent particles for ``shape = (*batch, n)``."""
        z = torch.randn(
            *shape, self.dim, generator=generator, dtype=self.mean.dtype, device=self.mean.device
        )
        if self._scales is not None:
            return self._row + z * self._scales
        return self._row + z @ self.scale_tril.mT

    @cached_property
    def _row(self) -> Tensor:
        """The mean, ``(*batch, 1, d)``."""
        return self.mean.unsqueeze(-2)

    @cached_property
    def _scales(self) -> Tensor | None:
        """The diagonal of L, ``(*batch, 1, d)``, if L is diagonal: it saves triangular solves."""
        scales = self.scale_tril.diagonal(dim1=-2, dim2=-1)
        return (
            scales.unsqueeze(-2) if torch.equal(torch.diag_embed(scales), self.scale_tril) else None
        )

    @property
    def _constants(self) -> tuple[Tensor, Tensor | None]:
        """log N(mean), ``(*batch, 1)``, and the variances, ``(*batch, 1, d)``, if L is diagonal.

        They are computed once, except where they are differentiated.
        """
        return self._compute_constants() if self.scale_tril.requires_grad else self._kept_constants

    @cached_property
    def _kept_constants(self) -> tuple[Tensor, Tensor | None]:
        return self._compute_constants()

    def _compute_constants(self) -> tuple[Tensor, Tensor | None]:
        log_det = self.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1, keepdim=True)
        log_peak = -log_det - 0.5 * self.dim * math.log(2 * math.pi)
        return log_peak, None if self._scales is None else self._scales.square()

    def _whiten(self, x: Tensor) -> Tensor:
        """Return z = L⁻¹(mean - x) for each particle (a row)."""
        centred = self._row - x
        if self._scales is not None:
            return centred / self._scales
        return torch.linalg.solve_triangular(self.scale_tril.mT, centred, upper=True, left=False)

    def _pull(self, z: Tensor) -> Tensor:
        """Return L⁻ᵀ z for each particle."""
        return torch.linalg.solve_triangular(self.scale_tril, z, upper=False, left=False)
