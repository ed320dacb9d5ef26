"""SteinIS with steps by AdaGrad, in a form in which each transition is still a map.

AdaGrad divides a step by the root of the sum of all squares so far. With a sum for each particle
and coordinate, as SVGD is often run, a particle's step depends on its own past, so that a
transition is no map of its position, and densities cannot be tracked. Here one sum for each
problem is taken over leaders alone ("AdaGrad-norm"; Ward, Wu & Bottou 2019):

    ε_ℓ = α / √(δ + Σ_{k ≤ ℓ} mean of φ_k² over leaders and coordinates).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steinis_lib.core.checks import check_finite
from steinis_lib.stein.maps import build
from steinis_lib.steinis import SteinIS, SteinISInfo, SteinISState


@dataclass(frozen=True)
class AdaGradState(SteinISState):
    """Where a run stands; see also `SteinISState`.

    Parameters
    ----------
    squares
        Sum over transitions of the mean of φ², ``(*batch,)``.
    """

    squares: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class AdaGradSteinIS(SteinIS):
    """Algorithm 1 with AdaGrad's step, one for each problem; `step_size` is its α.

    The info of a transition has the mean step over problems; each problem's own is in its
    `step_map`.

    Parameters
    ----------
    delta
        δ, which keeps the step finite where nothing moves.

    Raises
    ------
    ValueError
        If `step_size` is a schedule, δ is not positive, or `leaders_per_step` is given.
    """

    delta: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        if callable(self.step_size):
            raise ValueError("AdaGrad makes its own schedule: expected step_size α as a number")
        if not self.delta > 0:
            raise ValueError(f"delta must be positive, got {self.delta}")
        if self.leaders_per_step is not None:
            raise ValueError(
                "AdaGrad is written for the same leaders in each map: expected "
                f"leaders_per_step=None, got {self.leaders_per_step}"
            )

    def start(
        self,
        leaders: Tensor,
        followers: Tensor,
        log_q: Tensor,
        generator: torch.Generator | None = None,
    ) -> AdaGradState:
        """Start from given particles, with no squares so far; see `SteinIS.start`."""
        plain = super().start(leaders, followers, log_q, generator)
        return AdaGradState(**vars(plain), squares=leaders.new_zeros(leaders.shape[:-2]))

    def step(self, state: SteinISState) -> tuple[AdaGradState, SteinISInfo]:
        """Add this field's squares, take a step of AdaGrad's size, and update log q.

        Raises
        ------
        TypeError
            If the state has no squares: it is not one of this class.
        FloatingPointError
            If a score or a moved particle is not finite, naming the particle.
        """
        if not isinstance(state, AdaGradState) or state.squares is None:
            raise TypeError(
                "this state has no sum of squares: expected one from `init`, `start` or `step` of "
                "AdaGradSteinIS"
            )
        assert not callable(self.step_size)
        still = build(self.target, state.leaders, self.kernel, 0.0)
        phi, _ = still.kernel.field(state.leaders, still.leaders, still.scores)
        squares = state.squares + phi.square().mean((-2, -1))
        epsilon = self.step_size / (self.delta + squares).sqrt()
        step_map = replace(still, step_size=epsilon)
        leaders = state.leaders + epsilon[..., None, None] * phi
        followers, log_abs_det, positive = step_map.with_log_det(state.followers, self.determinant)
        check_finite(leaders, "a leader")
        check_finite(followers, "a follower")
        folds = (~positive).sum(-1)
        new = replace(
            state,
            leaders=leaders,
            followers=followers,
            log_q=state.log_q - log_abs_det,
            transition=state.transition + 1,
            n_folds=state.n_folds + folds,
            squares=squares,
        )
        return new, SteinISInfo(float(epsilon.mean()), log_abs_det, folds, step_map)
