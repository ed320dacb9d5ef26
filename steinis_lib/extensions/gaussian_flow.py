"""SteinIS with the affine kernel, from a Gaussian: q_ℓ stays Gaussian, and is kept as one.

Take k(x, y) = 1 + (x - m)ᵀC⁻¹(y - m), which is `Linear` in coordinates whitened by q_ℓ = N(m, C)
itself. The velocity is φ(u) = s̄ + (G + I)u, where G averages s uᵀ over the leaders. For Gaussian
leaders G is an average Hessian (Stein's lemma), and -G is what the precision should be. The paper's
map for a small step a is u + a φ(u). Here the step is taken implicitly: the precision becomes
(1 - a)I - aG, then the mean is shifted by a times that precision's inverse times s̄. To first order
in a this is the same map, with steps a/2 and a. It cannot fold, and at a = 1 it reaches a Gaussian
target in one step.

So this is Gaussian variational inference, found by a Stein flow: natural gradients (Opper &
Archambeau 2009; Khan & Rue 2023), with importance weights that are exact, since q_ℓ is known.
Because q_ℓ is known, leaders are drawn anew for each transition. They are moved and scaled to have
its mean and covariance exactly, so that s̄ and G have no noise if the target is Gaussian. For other
targets the leaders' higher moments leave the end of a run off the optimum by O(1/|A|); the weights
are exact all the same.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from steinis_lib.core.algorithm import Algorithm
from steinis_lib.core.checks import check_finite, check_q0
from steinis_lib.core.generators import fork, resume
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
        The state of the run's own random generator, uint8; `step` draws from nothing else.
    """

    mean: Tensor
    scale_tril: Tensor
    transition: Tensor
    rng: Tensor


@dataclass(frozen=True)
class GaussianFlowInfo:
    """What one transition did: a, and whether the trust region shortened it, ``(*batch,)``."""

    step_size: float
    held_back: Tensor


@dataclass(frozen=True)
class GaussianFlow(Algorithm[GaussianFlowState, GaussianFlowInfo]):
    """Fit a Gaussian to p̄ by the affine Stein flow.

    The first `full_steps` transitions have a = 1, to come near; the t-th after them has
    a = 1/(1 + t/2), so that the noise of the leaders averages out.

    Parameters
    ----------
    target
        p̄, through `score`.
    q0
        Where the flow starts.
    n_leaders
        |A|, more than d; a transition takes that many scores.
    full_steps
        Transitions with a = 1. Each can scale a direction by 1/4 to 2, and shift the mean by
        0.7 √d standard deviations. Take more where q_0 is far away (`GaussianFlowInfo.held_back`
        is then True), and where the target is far from Gaussian: the distance that is left when a
        begins to fall shrinks slowly.

    Raises
    ------
    ValueError
        If there are no more leaders than dimensions, `full_steps` is negative, or dimensions
        differ.
    """

    target: Target
    q0: Gaussian
    _: KW_ONLY
    n_leaders: int
    full_steps: int = 6

    def __post_init__(self) -> None:
        check_q0(self.target, self.q0, Gaussian)
        if self.n_leaders <= self.target.dim:
            raise ValueError(
                f"n_leaders must be more than d = {self.target.dim}, so that leaders can have the "
                f"covariance of q; got {self.n_leaders}"
            )
        if self.full_steps < 0:
            raise ValueError(f"full_steps must not be negative, got {self.full_steps}")

    def init(
        self, generator: torch.Generator, *, batch_shape: tuple[int, ...] = ()
    ) -> GaussianFlowState:
        """Start at q_0, repeated along `batch_shape`; `generator` seeds the run's own stream.

        Raises
        ------
        RuntimeError
            If the batch axes do not broadcast.
        """
        mean, scale_tril = self.q0.mean, self.q0.scale_tril
        batch = torch.broadcast_shapes(batch_shape, mean.shape[:-1], scale_tril.shape[:-2])
        return GaussianFlowState(
            mean.expand(*batch, -1),
            scale_tril.expand(*batch, -1, -1),
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

    def proposal(self, state: GaussianFlowState) -> Gaussian:
        """Return q_ℓ, for `importance_sampling` or as the q_0 of another algorithm."""
        return Gaussian(state.mean, state.scale_tril)

    def n_evaluations(self, n_transitions: int) -> int:
        """Return how many particles of a problem the score of p̄ is asked for at."""
        return n_transitions * self.n_leaders


def has_settled(
    target: Target, q: Gaussian, generator: torch.Generator, *, n_leaders: int, n_transitions: int
) -> bool:
    """Say whether more transitions from q, without batch axes, leave its ELBO where it is.

    False if they raise the mean of log p̄ - log q by more than 1, beyond noise. Both means are taken
    over the same standard normal draws, as many as leaders, which takes out most of the noise.
    """
    flow = GaussianFlow(target, q, n_leaders=n_leaders)
    further = flow.proposal(flow.run(flow.init(generator), n_transitions))
    unit = Gaussian.isotropic(torch.zeros_like(q.mean))
    u = standardise(unit.sample((n_leaders,), generator))

    def log_weights(density: Gaussian) -> Tensor:
        x = density.mean + u @ density.scale_tril.mT
        return target.log_prob(x) - density.log_prob(x)

    rise = log_weights(further) - log_weights(q)
    return not bool(rise.mean() > 1 + 2 * rise.std() / n_leaders**0.5)


def standardise(u: Tensor) -> Tensor:
    """Return points ``(*batch, n, d)`` moved to mean 0 and covariance I (with 1/n) exactly.

    That is uS⁻¹ᐟ² for centred u with covariance S, or √n times their polar factor. It is taken by
    an SVD, since with few more points than dimensions S is too close to singular for 32 bits.

    Raises
    ------
    ValueError
        If there are no more points than dimensions.
    """
    n, d = u.shape[-2:]
    if n <= d:
        raise ValueError(
            f"{n} points in {d} dimensions cannot have covariance I: take more than {d}"
        )
    left, _, right = torch.linalg.svd(u - u.mean(-2, keepdim=True), full_matrices=False)
    return math.sqrt(n) * left @ right


def _triangular(a: Tensor) -> Tensor:
    """Return the lower L with positive diagonal and L Lᵀ = a aᵀ."""
    r = torch.linalg.qr(a.mT, mode="r").R
    return (r * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-1)).mT.tril()
