"""One transition's map T(y) = y + ε φ(y), and the log-determinant of its Jacobian I + ε ∇φ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from steinis_lib.checks import check_finite
from steinis_lib.kernels import Kernel
from steinis_lib.targets import Target

Determinant = Literal["exact", "first-order", "switch"]

SWITCH_BELOW = 0.1
"""The paper's switch (section 5): first-order determinants once ε ≤ 0.1."""


@dataclass(frozen=True)
class StepMap:
    """T(y) = y + ε φ(y), with φ built from leaders alone (eqs. 8 and 9).

    Everything that defines the map is here, so that it can be applied to any points, kept, and
    applied again. `build` makes one from a target.

    Parameters
    ----------
    leaders, scores
        Leaders and their scores, ``(*batch, m, d)``.
    kernel
        A kernel fitted to the leaders.
    step_size
        ε, a number or one per problem ``(*batch,)``.
    """

    leaders: Tensor
    scores: Tensor
    kernel: Kernel
    step_size: float | Tensor

    def __call__(self, y: Tensor) -> Tensor:
        """Return T(y) for points ``(*batch, n, d)``."""
        phi, _ = self.kernel.field(y, self.leaders, self.scores)
        return y + self._epsilon(y) * phi

    def with_log_det(
        self, y: Tensor, determinant: Determinant = "exact"
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return T(y), log|det ∇T(y)|, and whether that determinant is positive.

        Parameters
        ----------
        y
            Points ``(*batch, n, d)``.
        determinant
            "exact"; "first-order", Π_k(1 + ε a_kk) of Proposition 1, off by O(ε²); or "switch",
            first-order for ε ≤ 0.1 and exact above, as in the paper.

        Returns
        -------
        moved
            ``(*batch, n, d)``.
        log_abs_det
            ``(*batch, n)``.
        orientation_kept
            ``(*batch, n)``, False where the determinant is not positive: there the map folds
            space, is not one-to-one, and the density tracked through it is wrong. True
            everywhere is necessary for a one-to-one map, not sufficient.
        """
        epsilon = self._epsilon(y)
        if determinant == "switch":
            determinant = "first-order" if bool((epsilon <= SWITCH_BELOW).all()) else "exact"
        if determinant == "first-order":
            phi, diagonal = self.kernel.field(y, self.leaders, self.scores, "diagonal")
            assert diagonal is not None
            factors = 1 + epsilon * diagonal
            log_abs_det, sign = factors.abs().log().sum(-1), factors.sign().prod(-1)
        elif determinant == "exact":
            phi, jacobian = self.kernel.field(y, self.leaders, self.scores, "full")
            assert jacobian is not None
            jacobian = epsilon.unsqueeze(-1) * jacobian
            jacobian.diagonal(dim1=-2, dim2=-1).add_(1)
            sign, log_abs_det = _slogdet(jacobian)
        else:
            raise ValueError(
                f"determinant must be 'exact', 'first-order' or 'switch', got {determinant!r}"
            )
        shape = y.shape[:-1]  # an affine map has one Jacobian for all points
        return y + epsilon * phi, log_abs_det.expand(shape), (sign > 0).expand(shape)

    def _epsilon(self, like: Tensor) -> Tensor:
        epsilon = torch.as_tensor(self.step_size, dtype=like.dtype, device=like.device)
        return epsilon[..., None, None]


def build(target: Target, leaders: Tensor, kernel: Kernel, step_size: float | Tensor) -> StepMap:
    """Build the map that SVGD would move `leaders` by (eq. 8): fit the kernel, take the scores.

    Raises
    ------
    FloatingPointError
        If a score is not finite, naming the leader.
    """
    scores = target.score(leaders)
    check_finite(scores, "the target's score")
    return StepMap(leaders, scores, kernel.fit(leaders), step_size)


def _slogdet(a: Tensor) -> tuple[Tensor, Tensor]:
    """Sign and log|det| of ``(*, d, d)``; closed form for d ≤ 2, where LAPACK's calls dominate."""
    if a.shape[-1] > 2:
        sign, log_abs_det = torch.linalg.slogdet(a)
        return sign, log_abs_det
    det = a[..., 0, 0]
    if a.shape[-1] == 2:
        det = det * a[..., 1, 1] - a[..., 0, 1] * a[..., 1, 0]
    return det.sign(), det.abs().log()
