"""Kernels beyond the paper's: a linear one, sums, and any kernel in the leaders' own coordinates.

With the RBF of section 5 a map moves a follower by what it feels of leaders nearby, which in high
dimension is nothing. Two remedies, which leave the density tracked exactly, as any map does:

* `Linear`, k(x, y) = 1 + (x - m)ᵀ(y - m): its field is affine, so that all followers, however far,
  are shifted and scaled together. q_0 Gaussian then stays Gaussian: this is Gaussian variational
  inference, found by a Stein flow. Added to an RBF (`Sum`), it takes the coarse part of the work.
* `Whitened`, which runs a kernel in coordinates where the leaders have covariance I: the
  matrix-valued kernel C k(L⁻¹x, L⁻¹y) with C = L Lᵀ, constant over a step, of Wang, Tang, Bajaj &
  Liu (2019). The preconditioner comes from leaders alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from steinis_lib.stein.determinants import problems
from steinis_lib.stein.kernels import JacobianForm, Kernel


@dataclass(frozen=True)
class Linear:
    """k(x, y) = 1 + (x - m)ᵀ(y - m), with m the leaders' mean.

    φ(y) = s̄ + (G + I)(y - m) with G = (1/|A|) Σ_j s_j (x_j - m)ᵀ. For Gaussian leaders of
    covariance I, G is an average Hessian (Stein's lemma) and its antisymmetric part is noise, which
    rotates the cloud for nothing.

    Parameters
    ----------
    symmetric
        Take (G + Gᵀ)/2 in place of G (default). No longer the field of a kernel, but a map as good.
    centre
        m, ``(*batch, 1, d)``; set by `fit`.
    """

    symmetric: bool = True
    centre: Tensor | None = None

    def fit(self, leaders: Tensor) -> Self:
        """Return the kernel centred at the leaders' mean."""
        return replace(self, centre=leaders.mean(-2, keepdim=True))

    def field(
        self, y: Tensor, leaders: Tensor, scores: Tensor, jacobian: JacobianForm = "none"
    ) -> tuple[Tensor, Tensor | None]:
        """Return φ(y) and ∇φ, the same everywhere: ``(*batch, 1, d, d)``, or its diagonal."""
        centre = self._centre()
        gain = scores.mT @ (leaders - centre) / leaders.shape[-2]
        if self.symmetric:
            gain = (gain + gain.mT) / 2
        gain = gain + torch.eye(y.shape[-1], dtype=y.dtype, device=y.device)
        phi = scores.mean(-2, keepdim=True) + (y - centre) @ gain.mT
        if jacobian == "none":
            return phi, None
        gain = gain.unsqueeze(-3)
        return phi, gain if jacobian == "full" else gain.diagonal(dim1=-2, dim2=-1)

    def jacobians(
        self, y: Tensor, leaders: Tensor, scores: Tensor, at_once: int
    ) -> tuple[Tensor, Iterator[Tensor]]:
        """Return φ(y) and ∇φ of `at_once` problems at a time, n = 1; see `Kernel.jacobians`."""
        phi, gain = self.field(y, leaders, scores, "full")
        assert gain is not None
        pieces = problems(gain.squeeze(-3), phi.shape[:-2]).split(at_once)
        return phi, (piece.unsqueeze(-3).clone() for piece in pieces)

    def stein(self, x: Tensor, score_x: Tensor, y: Tensor, score_y: Tensor) -> Tensor:
        """Return κ_p(x_i, y_j) = k s·s' + s·(x - m) + s'·(y - m) + d, eq. 7, ``(*batch, n, m)``."""
        x, y = x - self._centre(), y - self._centre()
        along_x = (score_x * x).sum(-1).unsqueeze(-1)
        along_y = (score_y * y).sum(-1).unsqueeze(-2)
        return (1 + x @ y.mT) * (score_x @ score_y.mT) + along_x + along_y + x.shape[-1]

    def _centre(self) -> Tensor:
        if self.centre is None:
            raise ValueError("the kernel has no centre yet: call kernel.fit(leaders) first")
        return self.centre


@dataclass(frozen=True)
class Sum:
    """Σ_i weights_i k_i: fields, Jacobians and Stein kernels add up.

    Raises
    ------
    ValueError
        If there is not one positive weight for each kernel.
    """

    kernels: tuple[Kernel, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        fit = len(self.kernels) == len(self.weights) > 0
        if not fit or not all(w > 0 for w in self.weights):
            raise ValueError(
                f"a sum needs one positive weight for each of its {len(self.kernels)} kernels, "
                f"got {self.weights}"
            )

    def fit(self, leaders: Tensor) -> Self:
        """Return the sum of the fitted kernels."""
        return replace(self, kernels=tuple(kernel.fit(leaders) for kernel in self.kernels))

    def field(
        self, y: Tensor, leaders: Tensor, scores: Tensor, jacobian: JacobianForm = "none"
    ) -> tuple[Tensor, Tensor | None]:
        """Return φ(y) and ∇φ(y) as `Kernel.field` does."""
        parts = [kernel.field(y, leaders, scores, jacobian) for kernel in self.kernels]
        phi = self._add([phi for phi, _ in parts])
        return phi, self._add(
            [d for _, d in parts if d is not None]
        ) if jacobian != "none" else None

    def stein(self, x: Tensor, score_x: Tensor, y: Tensor, score_y: Tensor) -> Tensor:
        """Return κ_p(x_i, y_j), ``(*batch, n, m)``."""
        return self._add([kernel.stein(x, score_x, y, score_y) for kernel in self.kernels])

    def jacobians(
        self, y: Tensor, leaders: Tensor, scores: Tensor, at_once: int
    ) -> tuple[Tensor, Iterator[Tensor]]:
        """Return φ(y) and ∇φ(y) of `at_once` problems at a time; see `Kernel.jacobians`."""
        fields, jacobians = zip(
            *(kernel.jacobians(y, leaders, scores, at_once) for kernel in self.kernels), strict=True
        )
        return self._add(fields), (self._add(pieces) for pieces in zip(*jacobians, strict=True))

    def _add(self, values: Sequence[Tensor]) -> Tensor:
        total = self.weights[0] * values[0]
        for weight, value in zip(self.weights[1:], values[1:], strict=True):
            total = total + weight * value
        return total


@dataclass(frozen=True)
class Whitened:
    """A kernel in u = L⁻¹(x - m), where leaders have mean 0 and covariance I (C = L Lᵀ is theirs).

    There scores are Lᵀs. A field φ_u moves x by L φ_u, with Jacobian L ∇φ_u L⁻¹.

    Parameters
    ----------
    kernel
        The kernel of u.
    shrinkage
        C gets this much of its mean variance added to its diagonal; needed where there are no
        more leaders than dimensions.
    mean, scale_tril
        m, ``(*batch, 1, d)``, and L, ``(*batch, d, d)``; set by `fit`.
    """

    kernel: Kernel
    shrinkage: float = 0.0
    mean: Tensor | None = None
    scale_tril: Tensor | None = None

    def __post_init__(self) -> None:
        if not self.shrinkage >= 0:
            raise ValueError(f"shrinkage must not be negative, got {self.shrinkage}")

    def fit(self, leaders: Tensor) -> Self:
        """Take m and C from the leaders, and fit the kernel to the whitened ones.

        Raises
        ------
        ValueError
            If the leaders' covariance is singular.
        """
        m, d = leaders.shape[-2:]
        if m <= d and self.shrinkage == 0:
            raise ValueError(
                f"{m} leaders in {d} dimensions have a singular covariance: take more than {d} "
                "leaders, or shrinkage > 0"
            )
        mean = leaders.mean(-2, keepdim=True)
        centred = leaders - mean
        covariance = centred.mT @ centred / (m - 1)
        if self.shrinkage:
            variance = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
            eye = torch.eye(d, dtype=leaders.dtype, device=leaders.device)
            covariance = covariance + self.shrinkage * variance * eye
        scale_tril, failed = torch.linalg.cholesky_ex(covariance)
        if bool(failed.any()):
            raise ValueError("the leaders' covariance is singular: take more leaders, or shrinkage")
        fitted = replace(self, mean=mean, scale_tril=scale_tril)
        return replace(fitted, kernel=self.kernel.fit(fitted._whiten(leaders)))

    def field(
        self, y: Tensor, leaders: Tensor, scores: Tensor, jacobian: JacobianForm = "none"
    ) -> tuple[Tensor, Tensor | None]:
        """Return φ(y) and ∇φ(y).

        "diagonal" is that of ∇φ_u, in the whitened coordinates: of the same sum, and to first order
        in ε of the same determinant.
        """
        scale = self._scale()
        phi, d = self.kernel.field(self._whiten(y), self._whiten(leaders), scores @ scale, jacobian)
        if d is not None and jacobian == "full":
            outer = scale.unsqueeze(-3)
            d = torch.linalg.solve_triangular(outer, outer @ d, upper=False, left=False)
        return phi @ scale.mT, d

    def jacobians(
        self, y: Tensor, leaders: Tensor, scores: Tensor, at_once: int
    ) -> tuple[Tensor, Iterator[Tensor]]:
        """Return φ(y) and ∇φ(y) of `at_once` problems at a time; see `Kernel.jacobians`."""
        scale = self._scale()
        whitened = self._whiten(y), self._whiten(leaders), scores @ scale
        phi, jacobians = self.kernel.jacobians(*whitened, at_once)
        eye = torch.eye(scale.shape[-1], dtype=scale.dtype, device=scale.device)
        inverse = torch.linalg.solve_triangular(scale, eye, upper=False)
        left, right = (problems(t, phi.shape[:-2]).split(at_once) for t in (scale, inverse))
        pieces = zip(left, jacobians, right, strict=True)
        return phi @ scale.mT, (a.unsqueeze(-3) @ j @ b.unsqueeze(-3) for a, j, b in pieces)

    def stein(self, x: Tensor, score_x: Tensor, y: Tensor, score_y: Tensor) -> Tensor:
        """Return κ_p of the whitened particles and scores, ``(*batch, n, m)``."""
        scale = self._scale()
        return self.kernel.stein(self._whiten(x), score_x @ scale, self._whiten(y), score_y @ scale)

    def _whiten(self, x: Tensor) -> Tensor:
        assert self.mean is not None
        upper = self._scale().mT
        return torch.linalg.solve_triangular(upper, x - self.mean, upper=True, left=False)

    def _scale(self) -> Tensor:
        if self.scale_tril is None:
            raise ValueError("the kernel has no metric yet: call kernel.fit(leaders) first")
        return self.scale_tril
