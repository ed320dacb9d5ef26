"""Any kernel in the leaders' own coordinates, where they have covariance I.

This is the matrix-valued kernel C k(L⁻¹x, L⁻¹y) with C = L Lᵀ, constant over a step, of Wang, Tang,
Bajaj & Liu (2019). The preconditioner comes from leaders alone, so that weights stay valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from steinis_lib.stein.determinants import problems
from steinis_lib.stein.kernels import JacobianForm, Kernel


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
        return replace(fitted, kernel=self.kernel.fit(fitted.whiten(leaders)))

    def field(
        self, y: Tensor, leaders: Tensor, scores: Tensor, jacobian: JacobianForm = "none"
    ) -> tuple[Tensor, Tensor | None]:
        """Return φ(y) and ∇φ(y).

        "diagonal" is the diagonal of ∇φ_u, in the whitened coordinates. It has the same sum, and so
        to first order in ε the same determinant.
        """
        scale = self._scale()
        phi, d = self.kernel.field(
            self.whiten(y), self.whiten(leaders), self.whiten_scores(scores), jacobian
        )
        if d is not None and jacobian == "full":
            outer = scale.unsqueeze(-3)
            d = torch.linalg.solve_triangular(outer, outer @ d, upper=False, left=False)
        return phi @ scale.mT, d

    def jacobians(
        self, y: Tensor, leaders: Tensor, scores: Tensor, at_once: int
    ) -> tuple[Tensor, Iterator[Tensor]]:
        """Return φ(y) and ∇φ(y) of `at_once` problems at a time; see `Kernel.jacobians`."""
        scale = self._scale()
        whitened = self.whiten(y), self.whiten(leaders), scores @ scale
        phi, jacobians = self.kernel.jacobians(*whitened, at_once)
        eye = torch.eye(scale.shape[-1], dtype=scale.dtype, device=scale.device)
        inverse = torch.linalg.solve_triangular(scale, eye, upper=False)
        left, right = (problems(t, phi.shape[:-2]).split(at_once) for t in (scale, inverse))
        pieces = zip(left, jacobians, right, strict=True)
        return phi @ scale.mT, (a.unsqueeze(-3) @ j @ b.unsqueeze(-3) for a, j, b in pieces)

    def stein(self, x: Tensor, score_x: Tensor, y: Tensor, score_y: Tensor) -> Tensor:
        """Return κ_p of the whitened particles and scores, ``(*batch, n, m)``."""
        scale = self._scale()
        return self.kernel.stein(self.whiten(x), score_x @ scale, self.whiten(y), score_y @ scale)

    def whiten(self, x: Tensor) -> Tensor:
        """Return u = L⁻¹(x - m), ``(*batch, n, d)``."""
        upper = self._scale().mT
        return torch.linalg.solve_triangular(upper, x - self._mean(), upper=True, left=False)

    def unwhiten(self, u: Tensor) -> Tensor:
        """Return x = m + L u, ``(*batch, n, d)``."""
        return self._mean() + u @ self._scale().mT

    def whiten_scores(self, scores: Tensor) -> Tensor:
        """Return Lᵀs, the scores with respect to u, ``(*batch, n, d)``."""
        return scores @ self._scale()

    def _mean(self) -> Tensor:
        self._scale()  # refuses a kernel that was not fitted
        assert self.mean is not None
        return self.mean

    def _scale(self) -> Tensor:
        if self.scale_tril is None:
            raise ValueError("the kernel has no metric yet: call kernel.fit(leaders) first")
        return self.scale_tril
