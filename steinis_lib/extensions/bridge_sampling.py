"""Bridge sampling (Bennett 1976; Meng & Wong 1996) from q to p̄, with draws of p by resample-move.

A mean of weights r = p̄/q is unreliable where p has mass that q seldom visits, because a few
weights dominate it. Draws of both q and p do better: r is small at the former and large at the
latter. With n draws of q, m draws of p, and a(x) = log r(x) - log Z + log(m/n), log Ẑ solves

    Σ_{draws of q} σ(a) = Σ_{draws of p} σ(-a),        σ(a) = 1/(1 + e⁻ᵃ).

If all draws are independent, this has the least variance among all averages over the two kinds of
draws (Meng & Wong 1996). Its terms are bounded, so that no weight can dominate it. Draws of p come
from the draws of q: they are resampled by their weights, then moved by HMC that leaves p invariant
(Gilks & Berzuini 2001).

Ẑ is consistent, but not unbiased: it is a ratio, the draws of p depend on those of q through the
resampling, and chains depend on where they began. If q is what SteinIS made of q_0, this is "warp"
bridge sampling (Meng & Schilling 2002), with the maps as the warp.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from steinis_lib.baselines.annealing import check_fixed_step, per_problem
from steinis_lib.baselines.geometric_path import Evaluated, GeometricPath, choose
from steinis_lib.baselines.hamiltonian import propose
from steinis_lib.core.algorithm import Algorithm
from steinis_lib.core.checks import check_at_least, check_finite, check_log_density
from steinis_lib.core.generators import fork, resume
from steinis_lib.core.resampling import systematic
from steinis_lib.importance import ImportanceSample
from steinis_lib.targets.base import ScoredProposal, Target

HALVINGS = 80  # of the interval that holds log Ẑ: beyond what 64 bits resolve


@dataclass(frozen=True)
class BridgeSamplingState(Evaluated):
    """Where a run stands: the chains, with what was evaluated there, and all ratios so far.

    Parameters
    ----------
    log_r_draws
        log p̄ - log q at the draws of q, ``(*batch, n)``.
    log_r_chains
        The same at all that the chains visited, ``(*batch, chains, t)`` after t transitions.
    rng
        The state of the run's own random generator, uint8; `step` draws from nothing else.
    """

    log_r_draws: Tensor
    log_r_chains: Tensor
    rng: Tensor


@dataclass(frozen=True)
class BridgeSamplingInfo:
    """What one transition did: the share of proposals accepted, ``(*batch,)``."""

    acceptance: Tensor


@dataclass(frozen=True)
class BridgeEstimate:
    """The estimate of log Z, ``(*batch,)`` each.

    Parameters
    ----------
    log_z
        log Ẑ.
    log_z_se
        Its standard error by the delta method, where chains count as independent, and states
        within a chain do not. Too small while chains remember that they began at the same draws.
    overlap
        ∫ p q/(s_q q + s_p p), with s_q and s_p the shares of the two kinds of draws: 1 if q = p, 0
        if they have no point in common.
    """

    log_z: Tensor
    log_z_se: Tensor
    overlap: Tensor


@dataclass(frozen=True)
class BridgeSampling(Algorithm[BridgeSamplingState, BridgeSamplingInfo]):
    """Bridge sampling between q and p̄, with chains on p that start at resampled draws of q.

    Parameters
    ----------
    target
        p̄, through `log_prob_and_score`.
    q0
        The normalised density q at the other end, with a score.
    n_draws, n_chains
        Draws of q and chains on p of each problem, at least 2 each.
    step_size, n_leapfrog
        ε, a number or one for each problem ``(*batch,)``, and L of HMC. Its masses are 1, so give
        both ends in coordinates where p is about as wide in all directions (`WhitenedTarget`).

    Raises
    ------
    ValueError
        If a setting is out of range, or dimensions differ.
    """

    target: Target
    q0: ScoredProposal
    _: KW_ONLY
    n_draws: int = 1000
    n_chains: int = 100
    step_size: float | Tensor = 0.5
    n_leapfrog: int = 2

    def __post_init__(self) -> None:
        _ = self.path  # refuses ends that do not fit
        check_fixed_step(self.step_size)
        check_at_least(self.n_draws, 2, "n_draws")
        check_at_least(self.n_chains, 2, "n_chains")
        check_at_least(self.n_leapfrog, 1, "n_leapfrog")

    @property
    def path(self) -> GeometricPath:
        """The path from q to p̄; only its ends are used."""
        return GeometricPath(self.q0, self.target)

    def init(
        self, generator: torch.Generator, *, batch_shape: tuple[int, ...] = ()
    ) -> BridgeSamplingState:
        """Draw from q, and start chains at draws resampled by their weights.

        Raises
        ------
        FloatingPointError
            If log p̄ is NaN or +inf or its score not finite at a draw, or p̄ is zero at all of them.
        """
        draws = self.path.draw(self.n_draws, generator, batch_shape)
        log_w = ImportanceSample(draws.particles, draws.log_p - draws.log_q0).log_w
        chosen = systematic(log_w, self.n_chains, generator)
        starts = Evaluated(**{name: _take(value, chosen) for name, value in vars(draws).items()})
        return BridgeSamplingState(
            **vars(starts),
            log_r_draws=log_w,
            log_r_chains=log_w.new_empty(*log_w.shape[:-1], self.n_chains, 0),
            rng=fork(generator),
        )

    def step(self, state: BridgeSamplingState) -> tuple[BridgeSamplingState, BridgeSamplingInfo]:
        """One transition: each chain takes L leapfrog steps at p̄, and accepts or stays."""
        x, generator = state.particles, resume(state.rng, state.particles.device)
        v = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
        log_u = torch.rand(x.shape[:-1], generator=generator, dtype=x.dtype, device=x.device).log()
        step_size = per_problem(self.step_size, x)
        accept, end, _ = propose(self.path, state, v, log_u, 1.0, step_size, self.n_leapfrog)
        new = choose(accept, end, state)
        log_r = (new.log_p - new.log_q0).unsqueeze(-1)
        after = BridgeSamplingState(
            **vars(new),
            log_r_draws=state.log_r_draws,
            log_r_chains=torch.cat([state.log_r_chains, log_r], -1),
            rng=generator.get_state(),
        )
        return after, BridgeSamplingInfo(accept.to(x).mean(-1))

    def estimate(self, state: BridgeSamplingState) -> BridgeEstimate:
        """Return log Ẑ from all draws and all states of the chains; see `bridge_estimate`."""
        return bridge_estimate(state.log_r_draws, state.log_r_chains)

    def n_evaluations(self, n_transitions: int) -> int:
        """Return how many particles of a problem p̄, its score, or both are asked for at."""
        return self.n_draws + n_transitions * self.n_chains * self.n_leapfrog


def bridge_estimate(log_r_draws: Tensor, log_r_chains: Tensor) -> BridgeEstimate:
    """Return the bridge estimate from log p̄ - log q at draws of q and at chains on p.

    Parameters
    ----------
    log_r_draws
        ``(*batch, n)``, independent; -inf is a draw where p̄ is zero.
    log_r_chains
        ``(*batch, chains, t)``, chains independent; finite.

    Raises
    ------
    ValueError
        If shapes do not fit, there are fewer than two draws or chains, or chains have no states.
    FloatingPointError
        If a number is NaN or infinite (log_r_draws: but for -inf), or p̄ is zero at all draws.
    """
    fit = log_r_draws.ndim > 0 and log_r_chains.ndim == log_r_draws.ndim + 1
    if not fit or log_r_chains.shape[:-2] != log_r_draws.shape[:-1]:
        shapes = f"{tuple(log_r_draws.shape)} and {tuple(log_r_chains.shape)}"
        raise ValueError(f"expected draws (*batch, n) and chains (*batch, chains, t), got {shapes}")
    n, (n_chains, t) = log_r_draws.shape[-1], log_r_chains.shape[-2:]
    if n < 2 or n_chains < 2 or t < 1:
        raise ValueError(
            "the bridge estimate needs at least 2 draws, and 2 chains with 1 state; got "
            f"{n} draws, and {n_chains} chains with {t}: run some transitions first"
        )
    check_log_density(log_r_draws, "log r of the draws")
    check_finite(log_r_chains, "log r of a chain")
    best = log_r_draws.amax(-1)
    if bool((best == -torch.inf).any()):
        raise FloatingPointError(
            "log r is -inf at all draws of a problem, where p̄ is zero: move q towards p̄'s support"
        )
    visited = log_r_chains.flatten(-2)
    odds, room = math.log(visited.shape[-1] / n), math.log(visited.shape[-1] + n)

    low = torch.minimum(visited.amin(-1), best) + odds - room
    high = torch.maximum(visited.amax(-1), best) + odds + room
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        from_q = torch.sigmoid(log_r_draws + (odds - middle).unsqueeze(-1)).sum(-1)
        from_p = torch.sigmoid((middle - odds).unsqueeze(-1) - visited).sum(-1)
        low = torch.where(from_q > from_p, middle, low)
        high = torch.where(from_q > from_p, high, middle)
    log_z = (low + high) / 2

    at_q = torch.sigmoid(log_r_draws + (odds - log_z).unsqueeze(-1))
    at_p = torch.sigmoid((log_z - odds)[..., None, None] - log_r_chains).mean(-1)
    variance = at_q.var(-1) / n / at_q.mean(-1) ** 2
    variance = variance + at_p.var(-1) / n_chains / at_p.mean(-1) ** 2
    overlap = (1 + n / visited.shape[-1]) * at_q.mean(-1)
    return BridgeEstimate(log_z, variance.sqrt(), overlap)


def _take(values: Tensor, index: Tensor) -> Tensor:
    """Return the chosen particles of ``(*batch, n, d)`` or ``(*batch, n)``."""
    if values.ndim == index.ndim:
        return values.gather(-1, index)
    return values.gather(-2, index.unsqueeze(-1).expand(*index.shape, values.shape[-1]))
