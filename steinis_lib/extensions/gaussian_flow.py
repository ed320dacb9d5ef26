"""SteinIS with the affine kernel, from a Gaussian: q_ℓ stays Gaussian, and is kept as one.

With k(x, y) = 1 + (x - m)ᵀC⁻¹(y - m), that is `Linear` in coordinates whitened by q_ℓ = N(m, C)
itself, the velocity is φ(u) = s̄ + (G + I)u, where G averages s uᵀ over the leaders. For Gaussian
leaders G is an average Hessian (Stein's lemma), and -G is what the precision should be. A small
step a is u + a φ(u), the paper's map. Here it is taken implicitly: precision (1 - a)I - aG, then a
shift by a times that precision's inverse times s̄. To first order in a this is the same map, with
steps a/2 and a; it cannot fold, and at a = 1 it lands in one step where the target is Gaussian.

So this is Gaussian variational inference, found by a Stein flow: natural gradients (Opper &
Archambeau 2009; Khan & Rue 2023), with importance weights that are exact, since q_ℓ is known.
Because it is known, leaders are drawn anew for each transition, and moved and scaled to have its
mean and covariance exactly: for a Gaussian target s̄ and G then have no noise. For others
their higher moments leave the end of a run off the optimum by O(1/|A|), with weights as exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steinis_lib.core.checks import check_finite
from steinis_lib.core.generators import fork, resume
from steinis_lib.core.loop import iterate
from steinis_lib.targets.base import Gaussian, Target

NARROWEST, WIDEST = 0.25, 2.0
"""Trust region: a transition scales no direction of the cloud by less or by more than this ..."""
FARTHEST = 0.7
"""... and shifts it by at most this times √d standard deviations."""


@dataclass(frozen=True)
class GaussianFlowState:
    """Where a run stands.

    Parameters
    ----------
    mean, scale_tril
        q_ℓ = N(m, L Lᵀ): ``(*batch, d)`` and ``(*batch, d, d)``.
    transition
        ℓ, an int64 scalar.
    rng
        The state of the run's own random generator, uint8.
    """

    mean: Tensor
    scale_tril: Tensor
    transition: Tensor
    rng: Tensor


@dataclass(frozen=True)
class GaussianFlowInfo:
    """What one transition did: a, and whether the trust region held it back, ``(*batch,)``."""

    step_size: float
    held_back: Tensor


@dataclass(frozen=True)
class GaussianFlow:
    """Gaussian SteinIS: the settings of a run, and its `init`, `step`, `run` and `proposal`.

    The first `full_steps` transitions have a = 1, to get there; the t-th after them has
    a = 1/(1 + t/2), so that the noise of the leaders averages out.

    Parameters
    ----------
    target
        p̄, through `score`.
    n_leaders
        |A|, more than d; a transition takes that many scores.
    full_steps
        Each can scale a direction by 1/4 to 2, and shift it by 0.7 √d standard deviations:
        take more of them from far away (`GaussianFlowInfo.held_back` is then True), and for targets
        far from Gaussian: what is left when a begins to fall shrinks slowly.

    Raises
    ------
    ValueError
        If there are no more leaders than dimensions, or `full_steps` is negative.
    """

    target: Target
    n_leaders: int
    full_steps: int = 6

    def __post_init__(self) -> None:
        if self.n_leaders <= self.target.dim:
            raise ValueError(
                f"n_leaders must be more than d = {self.target.dim}, so that leaders can have the "
                f"covariance of q; got {self.n_leaders}"
            )
        if self.full_steps < 0:
            raise ValueError(f"full_steps must not be negative, got {self.full_steps}")

    def init(
        self, q0: Gaussian, generator: torch.Generator, batch_shape: tuple[int, ...] = ()
    ) -> GaussianFlowState:
        """Start at q_0, repeated along `batch_shape`; `generator` seeds the run's own stream.

        Raises
        ------
        ValueError
            If q_0 and the target differ in d, or batch axes do not broadcast.
        """
        d = q0.dim
        if d != self.target.dim:
            raise ValueError(f"q0 has d={d}, but the target has d={self.target.dim}")
        batch = torch.broadcast_shapes(batch_shape, q0.mean.shape[:-1], q0.scale_tril.shape[:-2])
        return GaussianFlowState(
            q0.mean.expand(*batch, d),
            q0.scale_tril.expand(*batch, d, d),
            torch.tensor(0),
            fork(generator),
        )

    def step(self, state: GaussianFlowState) -> tuple[GaussianFlowState, GaussianFlowInfo]:
        """One transition: draw leaders from q_ℓ, take their scores, move q_ℓ.

        Raises
        ------
        FloatingPointError
            If a score is not finite, naming the leader.
        """
        mean, scale = state.mean, state.scale_tril
        generator = resume(state.rng, mean.device)
        shape = (*mean.shape[:-1], self.n_leaders, mean.shape[-1])
        u = standardise(
            torch.randn(shape, generator=generator, dtype=mean.dtype, device=mean.device)
        )
        scores = self.target.score(mean.unsqueeze(-2) + u @ scale.mT)
        check_finite(scores, "the target's score")
        scores = scores @ scale  # in the coordinates u
        hessian = scores.mT @ u / self.n_leaders
        curvature, axes = torch.linalg.eigh(-(hessian + hessian.mT) / 2)
        a = 1 / (1 + 0.5 * max(0, int(state.transition) + 1 - self.full_steps))
        wanted = 1 - a + a * curvature
        precision = wanted.clamp(WIDEST**-2, NARROWEST**-2)
        shift = a * (scores.mean(-2).unsqueeze(-2) @ axes).squeeze(-2) / precision
        far = shift.norm(dim=-1, keepdim=True) / (FARTHEST * math.sqrt(mean.shape[-1]))
        held_back = ((wanted != precision).any(-1, keepdim=True) | (far > 1)).squeeze(-1)
        shift = shift / far.clamp(min=1)
        new = GaussianFlowState(
            mean + (scale @ (axes @ shift.unsqueeze(-1))).squeeze(-1),
            _triangular(scale @ (axes * precision.rsqrt().unsqueeze(-2))),
            state.transition + 1,
            generator.get_state(),
        )
        return new, GaussianFlowInfo(a, held_back)

    def run(
        self,
        state: GaussianFlowState,
        n_transitions: int,
        on_step: Callable[[GaussianFlowState, GaussianFlowInfo], None] | None = None,
    ) -> GaussianFlowState:
        """Take `n_transitions` further transitions; `on_step` sees each new state."""
        return iterate(self.step, state, n_transitions, on_step)

    def proposal(self, state: GaussianFlowState) -> Gaussian:
        """Return q_ℓ, to sample and weigh from with `importance_sampling`, or to anneal from."""
        return Gaussian(state.mean, state.scale_tril)


def standardise(u: Tensor) -> Tensor:
    """Return points ``(*batch, n, d)`` moved to mean 0 and covariance I (with 1/n) exactly.

    That is uS⁻¹ᐟ² for centred u with covariance S, or √n times their polar factor: by an SVD, since
    with few more points than dimensions S is too close to singular for 32 bits.

    Raises
    ------
    ValueError
        If there are no more points than dimensions.
    """
    n, d = u.shape[-2:]
    if n <= d:
        raise ValueError(f"{n} points in {d} dimensions have no covariance I: take more than {d}")
    left, _, right = torch.linalg.svd(u - u.mean(-2, keepdim=True), full_matrices=False)
    return math.sqrt(n) * left @ right


def _triangular(a: Tensor) -> Tensor:
    """Return the lower L with positive diagonal and L Lᵀ = a aᵀ."""
    r = torch.linalg.qr(a.mT, mode="r").R
    return (r * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-1)).mT.tril()
