"""The small examples of the book's page on foundations, computed with `steinis_lib`.

Each function returns numbers that the page quotes and that `examples.draw` plots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from steinis_lib.baselines.annealing import AnnealedInfo
from steinis_lib.baselines.geometric_path import GeometricPath, linear_schedule
from steinis_lib.baselines.hais import HAIS, HAISState
from steinis_lib.baselines.hamiltonian import leapfrog
from steinis_lib.companion.sections.s5_likelihood.bidirectional import bidirectional
from steinis_lib.importance import importance_sampling
from steinis_lib.targets.base import Gaussian
from steinis_lib.targets.mixtures import GaussianMixture

LOG_Z = 1.0
"""log Z of `TwoModes`."""

Q0_SCALE = 2.0
"""The standard deviation of q_0 where the target is `TwoModes`."""


@dataclass(frozen=True)
class TwoModes:
    """p̄ = e · [0.6 N(-1.5, 0.6²) + 0.4 N(1.5, 0.6²)] in x_1, times N(0, 0.6²) in x_2, …, x_d.

    Its log Z is 1, and exact draws are at hand.
    """

    dim: int = 1

    @property
    def mixture(self) -> GaussianMixture:
        """The normalised density p."""
        means = torch.zeros(2, self.dim, dtype=torch.float64)
        means[:, 0] = torch.tensor([-1.5, 1.5])
        weights = torch.tensor([0.6, 0.4], dtype=torch.float64)
        return GaussianMixture(weights.log(), means, torch.full_like(means, 0.6))

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log p̄(x)."""
        return self.mixture.log_prob(x) + LOG_Z

    def score(self, x: Tensor) -> Tensor:
        """Return ∇ log p̄(x)."""
        return self.mixture.score(x)

    def log_prob_and_score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return both."""
        log_p, score = self.mixture.log_prob_and_score(x)
        return log_p + LOG_Z, score


def normal(scale: float, dim: int = 1) -> Gaussian:
    """Return N(0, scale² I)."""
    return Gaussian.isotropic(torch.zeros(dim, dtype=torch.float64), scale)


def generator(seed: int) -> torch.Generator:
    """Return a generator with a seed."""
    return torch.Generator().manual_seed(seed)


# ---------------------------------------------------------------- Importance sampling


def chi_squared(sigma: float) -> float:
    """Return χ²(p ‖ q) for p = N(0, 1) and q = N(0, σ²): infinite where σ² ≤ 1/2."""
    if sigma**2 <= 0.5:
        return math.inf
    return sigma**2 / math.sqrt(2 * sigma**2 - 1) - 1


@dataclass(frozen=True)
class ImportanceRuns:
    """What many runs of importance sampling gave for one σ.

    Parameters
    ----------
    scaled_variance
        n Var(Ẑ)/Z² over the runs. The law says χ²(p ‖ q).
    ess_share
        The mean of ESS/n over the runs. The law says 1/(1 + χ²) for large n.
    """

    scaled_variance: float
    ess_share: float


@cache
def importance_runs(sigma: float, n_runs: int = 1000, n: int = 1000) -> ImportanceRuns:
    """Estimate Z of p = N(0, 1) with draws of N(0, σ²), `n_runs` times with n draws each."""
    sample = importance_sampling(normal(1.0), normal(sigma), (n_runs, n), generator(1))
    variance = n * sample.log_z.exp().var()
    return ImportanceRuns(float(variance), float(sample.ess.mean()) / n)


# ---------------------------------------------------------------- Annealed importance sampling


@cache
def jeffreys() -> float:
    """Return J = KL(p ‖ q_0) + KL(q_0 ‖ p) for `TwoModes` in one dimension, by quadrature."""
    x = torch.linspace(-20, 20, 40001, dtype=torch.float64).unsqueeze(-1)
    p, q0 = TwoModes().mixture, normal(Q0_SCALE)
    log_p, log_q0 = p.log_prob(x), q0.log_prob(x)
    return float(torch.trapezoid((log_p.exp() - log_q0.exp()) * (log_p - log_q0), x[:, 0]))


def path_density(x: Tensor, beta: float) -> Tensor:
    """Return the normalised density f_β/Z_β between q_0 and `TwoModes` on a grid ``(n,)``."""
    points = x.unsqueeze(-1)
    path = (1 - beta) * normal(Q0_SCALE).log_prob(points) + beta * TwoModes().log_prob(points)
    return path.exp() / torch.trapezoid(path.exp(), x)


@cache
def annealed_gap(
    n_transitions: int,
    *,
    dim: int = 1,
    n_leapfrog: int = 1,
    refresh: float = 1.0,
    step_size: float = 0.3,
    n: int = 1000,
) -> float:
    """Return log Z minus the mean log-weight of n particles that HAIS anneals to `TwoModes`."""
    sampler = HAIS(
        TwoModes(dim),
        normal(Q0_SCALE, dim),
        n_particles=n,
        schedule=linear_schedule(n_transitions),
        step_size=step_size,
        n_leapfrog=n_leapfrog,
        refresh=refresh,
    )
    state = sampler.run(sampler.init(generator(2)))
    return LOG_Z - float(sampler.importance_sample(state).log_w.mean())


def line_gap(n_transitions: int, n_leapfrog: int) -> float:
    """Return the gap in one dimension, with so many particles that one can see 0.01 nats."""
    return annealed_gap(n_transitions, n_leapfrog=n_leapfrog, n=8000)


# ---------------------------------------------------------------- Leapfrog


def orbit(step_size: float, n_steps: int) -> tuple[Tensor, Tensor]:
    """Return x and v, ``(n_steps + 1,)``, of leapfrog steps on N(0, 1) from x = 1, v = 0."""
    path = GeometricPath(normal(1.0), normal(1.0))
    state = path.evaluate(torch.ones(1, 1, dtype=torch.float64))
    velocity = torch.zeros(1, 1, dtype=torch.float64)
    epsilon = torch.tensor(step_size, dtype=torch.float64)
    positions, velocities = [state.particles], [velocity]
    for _ in range(n_steps):
        state, velocity = leapfrog(path, state, velocity, 1.0, epsilon, 1)
        positions.append(state.particles)
        velocities.append(velocity)
    return torch.stack(positions).flatten(), torch.stack(velocities).flatten()


def energy_error(step_size: float, time: float = 50.0) -> float:
    """Return the largest |H - H_0| of an `orbit` of that length in time."""
    x, v = orbit(step_size, round(time / step_size))
    energy = 0.5 * (x.square() + v.square())
    return float((energy - energy[0]).abs().max())


# ---------------------------------------------------------------- Refresh

WIDTH = 5.0
"""The standard deviation of the target of `walk`."""


@cache
def walk(refresh: float, step_size: float = 0.5, n_steps: int = 400, n: int = 500) -> Tensor:
    """Return positions ``(n_steps + 1, n)`` of HAIS-1L particles on N(0, 5²).

    q_0 is the target itself, so that nothing is annealed, all weights are equal, and particles are
    draws of the target at every step.
    """
    sampler = HAIS(
        normal(WIDTH),
        normal(WIDTH),
        n_particles=n,
        schedule=linear_schedule(n_steps),
        step_size=step_size,
        refresh=refresh,
    )
    state = sampler.init(generator(3))
    positions = [state.particles[:, 0]]

    def note(state: HAISState, _: AnnealedInfo) -> None:
        positions.append(state.particles[:, 0])

    sampler.run(state, on_step=note)
    return torch.stack(positions)


def half_of_variance(step_size: float) -> float:
    """Return γ = 1 - 2^(-ε), which replaces half of the velocity's variance in a unit of time."""
    return 1 - 2**-step_size


def squared_displacement(positions: Tensor, lag: int) -> float:
    """Return the mean of (x_{t + lag} - x_t)² over all t and particles."""
    return float((positions[lag:] - positions[:-lag]).square().mean())


def steps_to_forget(positions: Tensor) -> int:
    """Return the first lag at which the mean squared displacement is half of what it tends to."""
    lags = range(1, len(positions))
    return next(lag for lag in lags if squared_displacement(positions, lag) >= WIDTH**2)


# ---------------------------------------------------------------- Bidirectional bounds


@dataclass(frozen=True)
class BoundRuns:
    """Lower and upper bounds of log Z over many runs, ``(n_runs,)`` each."""

    lower: Tensor
    upper: Tensor


@cache
def bound_runs(n_transitions: int, n_runs: int = 400, dim: int = 10) -> BoundRuns:
    """Bound log Z of `TwoModes` from both sides, with two chains each way in every run."""
    target, source = TwoModes(dim), generator(4)
    exact = target.mixture.sample((n_runs,), source)
    bounds = bidirectional(
        target,
        normal(Q0_SCALE, dim),
        exact,
        source,
        n_chains=2,
        schedule=linear_schedule(n_transitions),
        step_size=0.3,
        n_leapfrog=5,
    )
    return BoundRuns(bounds.lower, bounds.upper)
