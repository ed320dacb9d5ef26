"""What AIS and HAIS share: the geometric path from q_0 to p̄, its schedule, and the random stream.

The path is log f_β = (1 - β) log q_0 + β log p̄, from f_0 = q_0 to f_1 = p̄. Transition t = 1, …, T
adds (β_t - β_{t-1})(log p̄ - log q_0) at the present particle to its log-weight, then moves the
particle by a Markov kernel that leaves f_{β_t} invariant (Neal 2001).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steinis_lib.core.checks import check_finite, check_log_density, check_particles
from steinis_lib.importance import ImportanceSample
from steinis_lib.targets.base import ScoredProposal, Target


def linear_schedule(n: int) -> Tensor:
    """Return β_t = t/n for t = 0, …, n, ``(n + 1,)``, float64: n transitions."""
    _check_transitions(n)
    return torch.linspace(0, 1, n + 1, dtype=torch.float64)


def sigmoidal_schedule(n: int, radius: float = 4.0) -> Tensor:
    """Return the schedule of Wu et al. (2016) for n transitions, ``(n + 1,)``, float64.

    β̃_t = σ(δ(2t/n - 1)) with δ = `radius`, then β_t = (β̃_t - β̃_0)/(β̃_n - β̃_0).
    """
    _check_transitions(n)
    if not radius > 0:
        raise ValueError(f"radius must be positive, got {radius}")
    s = torch.sigmoid(radius * (2 * linear_schedule(n) - 1))
    return (s - s[0]) / (s[-1] - s[0])


@dataclass(frozen=True)
class Evaluated:
    """Particles with all that was evaluated at them, so that no β asks the target twice.

    Parameters
    ----------
    particles, score_q0, score_p
        ``(*batch, n, d)``.
    log_q0, log_p
        ``(*batch, n)``.
    """

    particles: Tensor
    log_q0: Tensor
    score_q0: Tensor
    log_p: Tensor
    score_p: Tensor

    def log_prob(self, beta: float) -> Tensor:
        """Return log f_β, ``(*batch, n)``."""
        return (1 - beta) * self.log_q0 + beta * self.log_p

    def score(self, beta: float) -> Tensor:
        """Return ∇ log f_β, ``(*batch, n, d)``."""
        return (1 - beta) * self.score_q0 + beta * self.score_p

    def is_finite(self) -> Tensor:
        """Say for which particles every number is finite, ``(*batch, n)``."""
        total = (self.particles + self.score_q0 + self.score_p).sum(-1) + self.log_q0 + self.log_p
        return torch.isfinite(total)  # as a sum with a NaN or an infinity is not finite


def choose(take_new: Tensor, new: Evaluated, old: Evaluated) -> Evaluated:
    """Return `new` where `take_new` ``(*batch, n)``, else `old`; a NaN left behind stays there."""

    def pick(name: str) -> Tensor:
        a, b = getattr(new, name), getattr(old, name)
        return torch.where(take_new.unsqueeze(-1) if a.ndim > take_new.ndim else take_new, a, b)

    return Evaluated(**{name: pick(name) for name in Evaluated.__dataclass_fields__})


@dataclass(frozen=True)
class GeometricPath:
    """log f_β = (1 - β) log q_0 + β log p̄."""

    q0: ScoredProposal
    target: Target

    def __post_init__(self) -> None:
        if not hasattr(self.q0, "log_prob_and_score"):
            raise TypeError("annealing follows the score of q0: it needs log_prob_and_score")
        if self.q0.dim != self.target.dim:
            raise ValueError(f"q0 has d={self.q0.dim}, but the target has d={self.target.dim}")

    def evaluate(self, x: Tensor) -> Evaluated:
        """Evaluate q_0 and p̄ once each at particles ``(*batch, n, d)``."""
        return Evaluated(x, *self.q0.log_prob_and_score(x), *self.target.log_prob_and_score(x))

    def score(self, x: Tensor, beta: float) -> Tensor:
        """Return ∇ log f_β at particles ``(*batch, n, d)``, without any density."""
        return (1 - beta) * self.q0.score(x) + beta * self.target.score(x)

    def draw(
        self, n_particles: int, generator: torch.Generator, batch_shape: tuple[int, ...]
    ) -> Evaluated:
        """Draw from q_0; refuse NaN and +inf of log p̄, and a bad score where p̄ > 0."""
        x = self.q0.sample((*batch_shape, n_particles), generator)
        check_particles(x, "particles", self.target.dim)
        start = self.evaluate(x)
        check_log_density(start.log_p, "the target's log_prob")
        check_finite(
            start.score_p.masked_fill((start.log_p == -torch.inf).unsqueeze(-1), 0.0),
            "the target's score",
        )
        return start

    def at(self, beta: float) -> Tempered:
        """Return f_β as a target."""
        return Tempered(self, beta)


@dataclass(frozen=True)
class Tempered:
    """f_β of a path, as a `Target`."""

    path: GeometricPath
    beta: float

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.path.target.dim

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log f_β(x) of shape ``(*batch, n)``."""
        q0, target = self.path.q0, self.path.target
        return (1 - self.beta) * q0.log_prob(x) + self.beta * target.log_prob(x)

    def score(self, x: Tensor) -> Tensor:
        """Return ∇ log f_β(x) of shape ``(*batch, n, d)``."""
        return self.path.score(x, self.beta)

    def log_prob_and_score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return both from one call to q_0 and one to p̄."""
        point = self.path.evaluate(x)
        return point.log_prob(self.beta), point.score(self.beta)


@dataclass(frozen=True)
class AnnealedState(Evaluated):
    """Where an annealed run stands, beside what was evaluated at its particles.

    Parameters
    ----------
    log_w
        The log-weights so far, ``(*batch, n)``: of f_{β_t}, not of p̄, before the last transition.
    transition
        t, an int64 scalar.
    rng
        The state of the run's own random generator, uint8: `step` is a function of the state.
    """

    log_w: Tensor
    transition: Tensor
    rng: Tensor


@dataclass(frozen=True)
class AnnealedInfo:
    """What one transition did: β, and ε and the share of proposals accepted, ``(*batch,)``."""

    beta: float
    step_size: Tensor
    acceptance: Tensor


def per_problem(step_size: float | Tensor, particles: Tensor) -> Tensor:
    """Return ε of shape ``(*batch,)`` for particles ``(*batch, n, d)``."""
    values, batch = torch.as_tensor(step_size).to(particles), particles.shape[:-2]
    if values.ndim and values.shape != batch:
        raise ValueError(
            f"step_size must be a number or (*batch,) = {tuple(batch)}, got {tuple(values.shape)}"
        )
    return values.expand(batch)


def check_schedule(schedule: Tensor) -> None:
    """Refuse a schedule that is no ``(T + 1,)`` tensor rising from exactly 0 to exactly 1."""
    good = schedule.ndim == 1 and len(schedule) > 1 and bool((schedule.diff() > 0).all())
    if not (good and schedule[0] == 0 and schedule[-1] == 1):
        raise ValueError(
            "schedule must be a 1-D tensor that rises strictly from exactly 0 to exactly 1, "
            "such as linear_schedule(n) or sigmoidal_schedule(n)"
        )


def transitions_left(schedule: Tensor, state: AnnealedState, wanted: int | None = None) -> int:
    """Return `wanted`, or by default all that remain; refuse more than remain."""
    left = len(schedule) - 1 - int(state.transition)
    if wanted is not None and not 0 <= wanted <= left:
        raise ValueError(
            f"{wanted} transitions asked for, but {left} of the schedule's {len(schedule) - 1} "
            "remain; an annealed run cannot be extended: start one with a longer schedule"
        )
    return left if wanted is None else wanted


def betas(schedule: Tensor, state: AnnealedState) -> tuple[float, float]:
    """Return β_{t-1} and β_t of the coming transition."""
    transitions_left(schedule, state, 1)
    t = int(state.transition)
    before, beta = schedule[t : t + 2].tolist()
    return before, beta


def final_sample(schedule: Tensor, state: AnnealedState) -> ImportanceSample:
    """Return particles and weights of a complete run; they are weights of p̄ only at β = 1."""
    left = transitions_left(schedule, state)
    if left:
        beta = float(schedule[int(state.transition)])
        raise ValueError(
            f"the weights are those of p̄ only at β = 1: the run is at β = {beta:.4g} with {left} "
            "transitions to go; run(state) completes it"
        )
    return ImportanceSample(state.particles, state.log_w)


def _check_transitions(n: int) -> None:
    if n < 1:
        raise ValueError(f"a schedule needs at least 1 transition, got {n}")
