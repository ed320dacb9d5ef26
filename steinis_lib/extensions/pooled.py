"""SteinIS from a pool of leaders, with steps that provably do not fold, and nothing to tune.

Algorithm 1 with five changes. All of them look at leaders alone, so that followers are independent
draws from a known q_ℓ given the leaders, and Ẑ is unbiased.

* *A pool.* A random batch of the leaders builds each map, and needs scores; all leaders move
  through it (Jin, Li & Liu 2020). With as few leaders as scores, maps fit their accidents. Maps
  give the pool, not the followers, the target's mean and covariance. Those of |A| leaders are off
  by chance, and this alone leaves a KL divergence of about d(d + 3)/(4|A|). A leader that is not
  drawn costs no score, so that a large pool is cheap.
* *Whitening* by the mean and covariance of the whole pool (Wang, Tang, Bajaj & Liu 2019). A batch's
  own covariance is too noisy. A pool has many leaders for each dimension, so there is no shrinkage,
  and the method is the same in any affine coordinates.
* *A wide kernel.* In whitened coordinates u, h is 0.7 squared median distances of leaders. The
  paper's rule divides by 2 log(|A|+1), and then k is about |A|⁻² at that distance.
* *An affine part*, a + G u, in each map. An RBF kernel this wide shifts the cloud at once, but
  scales it slowly: how fast it does falls like 1/d. The kernel 1 + uᵀu' has no such bias. As the
  mean and covariance of u are known to be 0 and I, its field is estimated by regressing scores on
  u, s ≈ a + M u, with G the symmetric part of M + I. The noise of a and G is that of the residuals.
  They are scaled by the share of ‖a‖² + ‖G‖² that exceeds this noise (James & Stein 1961), so that
  they fade near the target, and by d/(d + 10), as in few dimensions the RBF kernel needs less help.
* *A step with a bound.* φ(u) = (1/m) Σ_j [k(u_j, u) s_j + ∇_{u_j} k(u_j, u)] + a + G u has

      ‖∇φ‖ ≤ Λ = mean‖s_j‖ √(2/(e h)) + 2/h + ‖G‖   everywhere.

  With ε ≤ c/Λ and c < 1 every map is one-to-one (Banach), so that the tracked density is right. Far
  from the target scores are large and steps small; they grow by themselves as leaders come near.
  Steps then fall as (1 + ℓ/τ)^(-1/2), to average out the noise of the batches.

Followers need no score, so many of them cost little. Their determinants are exact.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from steinis_lib.core.algorithm import Algorithm
from steinis_lib.core.checks import check_at_least, check_finite, check_log_density, check_q0
from steinis_lib.core.generators import fork, random_batch, resume
from steinis_lib.extensions.affine_part import WithAffinePart, affine_part
from steinis_lib.extensions.whitened_kernel import Whitened
from steinis_lib.importance import ImportanceSample
from steinis_lib.stein.kernels import RBF, median_distance
from steinis_lib.stein.maps import StepMap
from steinis_lib.targets.base import Proposal, Target

STEEPEST = 0.9
"""c: the most that a step may change distances by, as a share of them. Below 1 no map folds."""
CALM_AFTER = 50
"""τ: transitions after which steps begin to fall."""
WIDTH = 0.7
"""h in units of the squared median distance of whitened leaders."""
AFFINE_FROM = 10
"""The d at which the affine part has half of its full weight."""
FOR_MEDIAN = 200
"""The median distance is that of so many leaders; in whitened coordinates it hardly varies."""
NUMBERS = 2**23
"""The most numbers of Jacobians of one problem at a time: followers are moved in pieces."""
LEADERS_AT_ONCE = 2000
"""Leaders are moved so many at a time: their kernels then stay in the processor's cache."""


@dataclass(frozen=True)
class PooledSteinISState:
    """Where a run stands.

    Parameters
    ----------
    leaders, followers
        ``(*batch, |A|, d)`` and ``(*batch, |B|, d)``.
    log_q
        log q_ℓ of the followers, ``(*batch, |B|)``.
    transition
        ℓ, an int64 scalar.
    rng
        The state of the run's own random generator, uint8; `step` draws from nothing else.
    """

    leaders: Tensor
    followers: Tensor
    log_q: Tensor
    transition: Tensor
    rng: Tensor


@dataclass(frozen=True)
class PooledSteinISInfo:
    """What one transition did.

    Parameters
    ----------
    step_size
        ε, ``(*batch,)``.
    affine_share
        The share of the affine part that was more than noise, ``(*batch,)``.
    step_map
        The map. Keep those of a run to build a `PushForward`.
    """

    step_size: Tensor
    affine_share: Tensor
    step_map: StepMap


@dataclass(frozen=True)
class PooledSteinIS(Algorithm[PooledSteinISState, PooledSteinISInfo]):
    """SteinIS with a pool of leaders, whitened kernels, and steps that are bounded by their maps.

    Parameters
    ----------
    target
        p̄, through `log_prob` and `score`.
    q0
        Where all particles are drawn from.
    n_leaders
        |A|, the pool, many times d. What maps can learn of a target is limited by it. Leaders cost
        scores only when they are drawn.
    n_followers
        |B|.
    leaders_per_step
        Leaders drawn anew for each map; at least d + 3.
    affine
        Whether maps have an affine part.

    Raises
    ------
    ValueError
        If a setting is out of range, or dimensions differ.
    """

    target: Target
    q0: Proposal
    _: KW_ONLY
    n_leaders: int = 10_000
    n_followers: int = 1000
    leaders_per_step: int = 200
    affine: bool = True

    def __post_init__(self) -> None:
        check_q0(self.target, self.q0)
        check_at_least(self.leaders_per_step, self.target.dim + 3, "leaders_per_step")
        check_at_least(self.n_leaders, self.leaders_per_step, "n_leaders")
        check_at_least(self.n_followers, 1, "n_followers")

    def init(
        self, generator: torch.Generator, *, batch_shape: tuple[int, ...] = ()
    ) -> PooledSteinISState:
        """Draw leaders and followers from q_0; `generator` also seeds the choice of leaders."""
        leaders = self.q0.sample((*batch_shape, self.n_leaders), generator)
        followers = self.q0.sample((*batch_shape, self.n_followers), generator)
        log_q = self.q0.log_prob(followers)
        check_log_density(log_q, "log q_0")
        return PooledSteinISState(leaders, followers, log_q, torch.tensor(0), fork(generator))

    def step(self, state: PooledSteinISState) -> tuple[PooledSteinISState, PooledSteinISInfo]:
        """One transition: build a map from a batch of leaders, and move all particles by it.

        Raises
        ------
        ValueError
            If the leaders' covariance is singular.
        FloatingPointError
            If a score or a moved particle is not finite, naming the particle.
        """
        generator = resume(state.rng, state.leaders.device)
        x = random_batch(state.leaders, self.leaders_per_step, generator)
        scores = self.target.score(x)
        check_finite(scores, "the target's score")
        outer = self._coordinates(state.leaders)
        pool, u, s = outer.whiten(state.leaders), outer.whiten(x), outer.whiten_scores(scores)
        kernel, share = self._kernel(pool, u, s)
        damping = (1 + int(state.transition) / CALM_AFTER) ** -0.5
        epsilon = damping * STEEPEST / kernel.steepness(s)
        inner = StepMap(u, s, kernel, epsilon)  # in whitened coordinates; det ∇T is the same there

        moved_pool = torch.cat([inner(part) for part in pool.split(LEADERS_AT_ONCE, -2)], -2)
        leaders = outer.unwhiten(moved_pool)
        moved, log_det = _move(inner, outer.whiten(state.followers))
        followers = outer.unwhiten(moved)
        check_finite(leaders, "a leader")
        check_finite(followers, "a follower")
        new = PooledSteinISState(
            leaders=leaders.contiguous(),  # as a file gives them back: layout changes rounding
            followers=followers.contiguous(),
            log_q=state.log_q - log_det,
            transition=state.transition + 1,
            rng=generator.get_state(),
        )
        step_map = StepMap(x, scores, replace(outer, kernel=kernel), epsilon)
        return new, PooledSteinISInfo(epsilon, share, step_map)

    def importance_sample(self, state: PooledSteinISState) -> ImportanceSample:
        """Return the followers with log w = log p̄ - log q_ℓ.

        Raises
        ------
        FloatingPointError
            If a log-density is NaN or +inf, naming the follower.
        """
        log_p = self.target.log_prob(state.followers)
        check_log_density(log_p, "the target's log_prob")
        return ImportanceSample(state.followers, log_p - state.log_q)

    def n_evaluations(self, n_transitions: int) -> int:
        """Return at how many particles of one problem p̄ or its score is asked for."""
        return n_transitions * self.leaders_per_step + self.n_followers

    def _coordinates(self, leaders: Tensor) -> Whitened:
        """Return the coordinates in which the pool has mean 0 and covariance I."""
        return Whitened(RBF(bandwidth=1.0)).fit(leaders)

    def _kernel(self, pool: Tensor, u: Tensor, s: Tensor) -> tuple[WithAffinePart, Tensor]:
        """Return the kernel of a map in whitened coordinates, and the share of its affine part."""
        rbf = RBF(bandwidth=WIDTH * median_distance(pool[..., :FOR_MEDIAN, :]).square())
        shift, gain, share = affine_part(u, s)
        if not self.affine:
            share = torch.zeros_like(share)
        d = self.target.dim
        scale = d / (d + AFFINE_FROM) * share[..., None, None]
        return WithAffinePart(rbf, scale * shift, scale * gain), share


def _move(step_map: StepMap, followers: Tensor) -> tuple[Tensor, Tensor]:
    """Return T(y) and log det ∇T(y), exactly, of a limited number of followers at a time."""
    at_once = max(1, NUMBERS // followers.shape[-1] ** 2)
    parts = [step_map.with_log_det(y)[:2] for y in followers.split(at_once, -2)]
    moved, log_det = zip(*parts, strict=True)
    return torch.cat(moved, -2), torch.cat(log_det, -1)
