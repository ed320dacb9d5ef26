"""One transition's map T(y) = y + ε φ(y), and the log-determinant of its Jacobian I + ε ∇φ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from steinis_lib.core.checks import check_finite
from steinis_lib.stein.determinants import log_abs_det, problems
from steinis_lib.stein.kernels import Kernel
from steinis_lib.targets.base import Target

Determinant = Literal["exact", "first-order", "switch"]

SWITCH_BELOW = 0.1
"""The paper's switch (section 5): first-order determinants once ε ≤ 0.1."""

JACOBIANS = 2**19
"""The most numbers of Jacobians held at a time, in whole problems: 2 MB in 32 bits."""


@dataclass(frozen=True)
class StepMap:
    """T(y) = y + ε φ(y), with φ built from leaders alone (eqs. 8 and 9).

    It holds all that defines the map, so it can be kept and applied to any points. `build` makes
    one from a target.

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
            ``(*batch, n)``, False where the determinant is not positive. There the map folds
            space: it is not one-to-one, and the density tracked through it is wrong. True
            everywhere does not prove that the map is one-to-one.
        """
        epsilon = self._epsilon(y)
        if determinant == "switch":
            determinant = "first-order" if bool((epsilon <= SWITCH_BELOW).all()) else "exact"
        if determinant == "exact":
            moved, sign, log_det = self._exact(y)
        elif determinant == "first-order":
            phi, diagonal = self.kernel.field(y, self.leaders, self.scores, "diagonal")
            assert diagonal is not None
            factors = 1 + epsilon * diagonal
            log_det, sign = factors.abs().log().sum(-1), factors.sign().prod(-1)
            moved = y + epsilon * phi
        else:
            raise ValueError(
                f"determinant must be 'exact', 'first-order' or 'switch', got {determinant!r}"
            )
        shape = y.shape[:-1]  # an affine map has one Jacobian for all points
        return moved, log_det.expand(shape), (sign > 0).expand(shape)

    def _exact(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return T(y), and sign and log|det| of I + ε ∇φ(y), ``(*batch, n)`` or ``(*batch, 1)``."""
        epsilon = self._epsilon(y)
        batch = torch.broadcast_shapes(y.shape[:-2], epsilon.shape[:-2])
        y = y.expand(*batch, *y.shape[-2:])
        at_once = max(1, JACOBIANS // max(1, y.shape[-2] * y.shape[-1] ** 2))
        phi, jacobians = self.kernel.jacobians(y, self.leaders, self.scores, at_once)
        steps = problems(epsilon, phi.shape[:-2]).unsqueeze(-1).split(at_once)
        found = []
        for step, jacobian in zip(steps, jacobians, strict=True):
            jacobian.mul_(step).diagonal(dim1=-2, dim2=-1).add_(1)
            found.append(torch.stack(log_abs_det(jacobian)))
        both = torch.cat(found, 1)
        sign, log_det = both.view(2, *phi.shape[:-2], both.shape[-1])
        return y + epsilon * phi, sign, log_det

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
