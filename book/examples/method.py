"""The small examples of the book's method page, computed with `steinis_lib`.

Each function returns numbers that the page quotes and that `examples.draw` plots.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from examples.foundations import TwoModes, generator, normal
from steinis_lib.stein.kernels import RBF
from steinis_lib.stein.maps import StepMap, build
from steinis_lib.steinis import SteinIS, SteinISInfo, SteinISState
from steinis_lib.targets.base import LogProb, Proposal, Target

# ---------------------------------------------------------------- One leader, one follower

HALF_SQUARE = LogProb(lambda x: -0.5 * x[:, 0].square(), 1)
"""p̄(x) = exp(-x²/2): the target of the worked example, with log Z = ½ log 2π."""


def column(*values: float) -> Tensor:
    """Return values as particles ``(n, 1)``."""
    return torch.tensor(values, dtype=torch.float64).unsqueeze(-1)


def one_leader(epsilon: float) -> StepMap:
    """Return the map of the worked example: one leader at 1, h = 1."""
    p = normal(1.0)  # p̄ has the same score
    return build(p, column(1.0), RBF(bandwidth=1.0), epsilon)


def field(y: Tensor) -> tuple[Tensor, Tensor]:
    """Return φ and φ' of the worked example at points ``(n,)``."""
    step_map = one_leader(1.0)
    phi, jacobian = step_map.kernel.field(
        y.unsqueeze(-1), step_map.leaders, step_map.scores, "diagonal"
    )
    assert jacobian is not None
    return phi[:, 0], jacobian[:, 0]


@dataclass(frozen=True)
class Worked:
    """One step of the worked example for a follower at 0.

    Parameters
    ----------
    phi, slope
        φ(0) and φ'(0).
    moved
        Where the follower goes.
    determinant
        1 + ε φ'(0).
    log_q_before, log_q_after
        log q_0 at 0, and log q_1 at `moved`.
    log_w_before, log_w_after
        The follower's log-weight before and after.
    """

    phi: float
    slope: float
    moved: float
    determinant: float
    log_q_before: float
    log_q_after: float
    log_w_before: float
    log_w_after: float


def worked_step(epsilon: float = 0.1) -> Worked:
    """Take the worked example's step: p = q_0 = N(0, 1), a follower at 0."""
    y = column(0.0)
    phi, slope = field(y[:, 0])
    moved, log_det, _ = one_leader(epsilon).with_log_det(y)
    log_q = normal(1.0).log_prob(y)
    return Worked(
        float(phi),
        float(slope),
        float(moved),
        float(log_det.exp()),
        float(log_q),
        float(log_q - log_det),
        float(HALF_SQUARE.log_prob(y) - log_q),
        float(HALF_SQUARE.log_prob(moved) - log_q + log_det),
    )


GRID = torch.linspace(-9, 9, 36001, dtype=torch.float64)


def steepest() -> tuple[float, float]:
    """Return where φ' of the worked example is least, and that slope."""
    slopes = field(GRID)[1]
    at = int(slopes.argmin())
    return float(GRID[at]), float(slopes[at])


def worked_kl(epsilon: float = 0.1) -> float:
    """Return KL(q_1 ‖ p) of the worked example, by quadrature over q_0."""
    y = GRID.unsqueeze(-1)
    moved, log_det, _ = one_leader(epsilon).with_log_det(y)
    q0, p = normal(1.0), normal(1.0)
    log_q0 = q0.log_prob(y)
    return float(torch.trapezoid(log_q0.exp() * (log_q0 - log_det - p.log_prob(moved)), GRID))


@dataclass(frozen=True)
class Fold:
    """What a step of the worked example does if it folds.

    Parameters
    ----------
    low, high
        The determinant is negative between these points.
    mass
        The share of followers that start there.
    bias
        E[Ẑ]/Z. Weights of a map without a fold give 1.
    """

    low: float
    high: float
    mass: float
    bias: float


def fold(epsilon: float) -> Fold:
    """Return what a step of that size does; it must fold."""
    y = GRID.unsqueeze(-1)
    moved, log_det, positive = one_leader(epsilon).with_log_det(y)
    inside = GRID[~positive]
    low, high = float(inside[0]), float(inside[-1])
    mass = normal(1.0).log_prob(y).exp()[~positive].sum() * (GRID[1] - GRID[0])
    bias = torch.trapezoid((normal(1.0).log_prob(moved) + log_det).exp(), GRID)
    return Fold(low, high, float(mass), float(bias))


# ---------------------------------------------------------------- Runs with many particles


@dataclass(frozen=True)
class ExactRun:
    """A run in one dimension whose q_ℓ is known exactly, from a grid that is pushed along.

    Parameters
    ----------
    times
        t = ε ℓ, ``(K + 1,)``.
    kl
        KL(q_ℓ ‖ p), ``(K + 1,)``.
    leaders
        Where the leaders end, ``(m,)``.
    grid, density
        The grid at the end, and q_K there.
    """

    times: Tensor
    kl: Tensor
    leaders: Tensor
    grid: Tensor
    density: Tensor


def exact_run(
    target: Target,
    q0: Proposal,
    leaders: Tensor,
    *,
    n_transitions: int = 200,
    epsilon: float = 0.1,
    n_grid: int = 601,
) -> ExactRun:
    """Run SteinIS to a normalised target, with a grid as followers: integrals are exact."""
    start = torch.linspace(-8, 8, n_grid, dtype=torch.float64)
    log_q0 = q0.log_prob(start.unsqueeze(-1))
    weights = log_q0.exp() * (start[1] - start[0])
    sampler = SteinIS(target, q0, step_size=epsilon)
    state = sampler.start(leaders, start.unsqueeze(-1), log_q0)

    def kl(state: SteinISState) -> Tensor:
        return (weights * (state.log_q - target.log_prob(state.followers))).sum()

    kls = [kl(state)]

    def note(state: SteinISState, _: SteinISInfo) -> None:
        kls.append(kl(state))

    state = sampler.run(state, n_transitions, on_step=note)
    times = epsilon * torch.arange(n_transitions + 1, dtype=torch.float64)
    ends = state.followers[:, 0]
    return ExactRun(times, torch.stack(kls), state.leaders[:, 0], ends, state.log_q.exp())


START_SCALE = 1.0
"""The standard deviation of q_0 in `towards_two_modes`."""


@cache
def towards_two_modes(m: int) -> ExactRun:
    """Run from N(0, 1) to the two modes with m random leaders."""
    target, q0 = TwoModes().mixture, normal(START_SCALE)
    return exact_run(target, q0, q0.sample((m,), generator(5)))


@cache
def mean_field(m: int = 300) -> ExactRun:
    """Run from N(0, 1) to the two modes with leaders at m quantiles of q_0."""
    levels = (torch.arange(m, dtype=torch.float64) + 0.5) / m
    leaders = START_SCALE * torch.special.ndtri(levels).unsqueeze(-1)
    return exact_run(TwoModes().mixture, normal(START_SCALE), leaders)


@cache
def from_the_answer(m: int) -> ExactRun:
    """Run from q_0 = p = N(0, 1) with m random leaders."""
    p = normal(1.0)
    return exact_run(p, p, p.sample((m,), generator(6)))
