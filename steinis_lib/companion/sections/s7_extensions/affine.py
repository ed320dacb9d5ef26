"""A kernel with an affine part, which does not pay here: `Linear`, and sums of kernels.

`Linear`, k(x, y) = 1 + (x - m)ᵀ(y - m), has an affine field: it shifts and
scales all followers together. From a Gaussian q_0, its maps keep q_ℓ Gaussian; `GaussianFlow`
follows that density in closed form. `Sum` adds it to a radial kernel.
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
    covariance I, G is an average Hessian (Stein's lemma). Its antisymmetric part is noise, and
    rotates the cloud without use.

    Parameters
    ----------
    symmetric
        Take (G + Gᵀ)/2 in place of G (default). The field is then not that of a kernel; the map is
        as valid.
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
