"""log Z of a density of one's own, with nothing to tune: `estimate_log_z`.

Two independent runs each

1. fit a mixture of Gaussians at the modes that explorers find (`local_fits`);
2. look at the mixture's weights on draws that are then thrown away. If their ESS is half of them, the
   mixture is the proposal;
3. else, in few dimensions, move its draws on by SteinIS that is steered by held-out particles
   (`held_out`), and look again;
4. else anneal from the mixture to p̄ by HAIS, in coordinates in which the mixture is round, with as
   many transitions as it takes for an ESS of half.

All choices are made on pilot draws; the draws that are weighed in the end are new, so that Ẑ is
unbiased whatever was chosen. What no explorer met stays unseen, and two runs may miss the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from steinis_lib import local_fits
from steinis_lib.annealing import ScoredProposal, linear
from steinis_lib.coordinates import InCoordinates
from steinis_lib.hais import HAIS
from steinis_lib.held_out import HeldOutSteinIS
from steinis_lib.importance import ImportanceSample
from steinis_lib.kernels import RBF
from steinis_lib.mixtures import FullMixture
from steinis_lib.targets import Gaussian, LogProb, Target

if TYPE_CHECKING:
    from arviz import InferenceData

ENOUGH = 0.5
"""The share of pilot draws that their ESS must reach."""
N_PILOT = 500
FEW_DIMENSIONS = 5
"""Up to here RBF maps are tried: further up, a kernel that is not tuned moves next to nothing."""
EXPLORERS, EXPLORING, MODES, FLOW = 100, 200, 12, 20
"""Explorers, their transitions, the most modes that are fitted, and transitions of each fit."""
LENGTHS, STEPS, LEAPFROGS = (10, 40, 160, 640), (0.15, 0.3, 0.6), 5
"""HAIS: transitions that are tried in turn, leapfrog steps ε, and how many of them."""
REFINE = 60
"""The most transitions of held-out SteinIS."""


@dataclass(frozen=True)
class Evidence:
    """What `estimate_log_z` found.

    Parameters
    ----------
    sample
        The weighted particles of both runs, ``(n, d)``, one run after the other.
    log_z_runs
        log Ẑ of the two runs, ``(2,)``.
    warnings
        Reasons not to trust the result, in words; empty if none was seen.
    route
        What each run's proposal was: "mixture", "maps" or "annealing".
    n_evaluations
        Calls of the density at one particle, with or without a gradient, in all.
    """

    sample: ImportanceSample
    log_z_runs: Tensor
    warnings: tuple[str, ...]
    route: tuple[str, str]
    n_evaluations: int

    @property
    def log_z(self) -> float:
        """log Ẑ; Ẑ is unbiased."""
        return float(self.sample.log_z)

    @property
    def log_z_se(self) -> float:
        """Standard error of log Ẑ; see `ImportanceSample.log_z_se` for when it is too small."""
        return float(self.sample.log_z_se)

    @property
    def ess(self) -> float:
        """Effective sample size of the weights."""
        return float(self.sample.ess)

    @property
    def pareto_k(self) -> float:
        """Pareto-k̂ of the weights; above 0.7 nothing here is to be trusted."""
        return float(self.sample.pareto_k)

    def expectation(self, f: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Return E_p[f] and its standard error; f maps ``(n, d)`` to ``(n, k)``."""
        return self.sample.expectation(f)

    def to_arviz(self) -> InferenceData:
        """Return draws of p for ArviZ: each run resampled by its weights to one chain.

        `posterior` has the variable x, ``(2, n/2, d)``, where particles of large weight repeat;
        `sample_stats` has their log-weights before resampling, and the attributes log Ẑ and k̂.
        """
        import arviz

        n, d = self.sample.particles.shape
        x = self.sample.particles.reshape(2, n // 2, d)
        log_w = self.sample.log_w.reshape(2, n // 2)
        place = (torch.arange(n // 2, dtype=log_w.dtype, device=log_w.device) + 0.5) / (n // 2)
        cumulative = log_w.softmax(-1).cumsum(-1)
        index = torch.searchsorted(cumulative, place.expand_as(log_w).contiguous())
        index = index.clamp(max=n // 2 - 1)
        drawn = x.gather(1, index.unsqueeze(-1).expand(-1, -1, d))
        return arviz.from_dict(
            posterior={"x": drawn.cpu().numpy()},
            sample_stats={"log_weight": log_w.gather(1, index).cpu().numpy()},
            sample_stats_attrs={
                "log_z": self.log_z,
                "log_z_se": self.log_z_se,
                "ess": self.ess,
                "pareto_k": self.pareto_k,
            },
        )


def estimate_log_z(
    log_prob: Callable[[Tensor], Tensor],
    dim: int,
    *,
    q0: Gaussian | None = None,
    n_samples: int = 4000,
    seed: int = 0,
) -> Evidence:
    """Estimate log ∫ exp(log_prob), with draws of the density and reasons to doubt them.

    Parameters
    ----------
    log_prob
        log p̄, ``(n, d)`` → ``(n,)``: any PyTorch function that autograd can follow.
    dim
        d.
    q0
        Where explorers start: it should be at least as wide as p. Default: N(0, I), in float64.
        Its dtype and device are those of everything.
    n_samples
        Weighted particles in the end, an even number, at least 200.
    seed
        Of all random draws.

    Raises
    ------
    ValueError
        If sizes are wrong, or log_prob does not return one number for each particle.
    FloatingPointError
        If log_prob is NaN or +inf at a draw of q0, or no draw has a finite one.
    """
    if dim < 1:
        raise ValueError(f"dim must be at least 1, got {dim}")
    if n_samples < 200 or n_samples % 2:
        raise ValueError(f"n_samples must be even and at least 200, got {n_samples}")
    if q0 is None:
        q0 = Gaussian.isotropic(torch.zeros(dim, dtype=torch.float64))
    if q0.dim != dim:
        raise ValueError(f"q0 has d={q0.dim}, but dim is {dim}")
    counted = _Counted(log_prob)
    generator = torch.Generator(q0.mean.device).manual_seed(seed)
    target = LogProb(counted, dim)
    target.log_prob_and_score(q0.sample((2,), generator))  # refuses what is no density, and says so
    runs = [_run(target, q0, n_samples // 2, generator) for _ in range(2)]
    samples = [sample for sample, _, _ in runs]
    both = ImportanceSample(
        torch.cat([s.particles for s in samples]), torch.cat([s.log_w for s in samples])
    )
    doubts = [doubt for _, _, found in runs for doubt in found]
    doubts += _doubts(both, samples)
    return Evidence(
        both,
        torch.stack([s.log_z for s in samples]),
        tuple(dict.fromkeys(doubts)),
        (runs[0][1], runs[1][1]),
        counted.n,
    )


class _Counted:
    """log_prob, counting particles and refusing a wrong shape."""

    def __init__(self, log_prob: Callable[[Tensor], Tensor]) -> None:
        self.log_prob, self.n = log_prob, 0

    def __call__(self, x: Tensor) -> Tensor:
        """Return log_prob, and NaN, which samplers reject, where a proposal left all numbers."""
        self.n += len(x)
        finite = torch.isfinite(x).all(-1)
        if bool(finite.all()):
            return self.log_prob(x)
        value = self.log_prob(torch.where(finite.unsqueeze(-1), x, torch.zeros_like(x)))
        return torch.where(finite, value, torch.nan)


def _run(
    target: Target, q0: Gaussian, n: int, generator: torch.Generator
) -> tuple[ImportanceSample, str, list[str]]:
    """One run: its weighted draws, its route, and doubts that only it can have."""
    mixture, doubts = _mixture(target, q0, generator)
    if _good(_weigh(target, mixture, N_PILOT, generator)):
        return _weigh(target, mixture, n, generator), "mixture", doubts
    if q0.dim <= FEW_DIMENSIONS:
        sampler = HeldOutSteinIS(target, RBF(multiplier=4.0), leaders_per_step=200)
        state = sampler.run(sampler.init(mixture, 2000, n, N_PILOT, generator), REFINE)
        sample = sampler.importance_sample(state)
        held_out = ImportanceSample(
            state.held_out, target.log_prob(state.held_out) - state.log_q_held_out
        )
        if _good(held_out):
            if int(state.n_folds):
                doubts.append("some map of SteinIS is not one-to-one: Ẑ may be too large")
            return sample, "maps", doubts
    round_ = _round(mixture)
    base, inside = _in_coordinates(mixture, round_), InCoordinates(target, round_)
    chain = _chain(inside, base, generator)
    sample = chain.importance_sample(chain.run(chain.init(n, generator)))
    return ImportanceSample(inside.to_x(sample.particles), sample.log_w), "annealing", doubts


def _mixture(
    target: Target, q0: Gaussian, generator: torch.Generator
) -> tuple[FullMixture, list[str]]:
    """Fit the mixture; doubt it if its fits have not settled."""
    m = max(60, q0.dim + 20)
    ends = local_fits.explore(target, q0, EXPLORERS, EXPLORING, generator, n_leapfrog=1)
    x, log_p, epsilon = local_fits.climb(target, ends)
    chosen = local_fits.distinct(x, log_p, epsilon, MODES)
    scales = epsilon[chosen].sqrt()
    fits, elbo = local_fits.fit(target, x[chosen], scales, m, FLOW, generator)
    width = fits.scale_tril[0].diagonal().mean().expand(1)
    _, better = local_fits.fit(target, fits.mean[:1], width, m, 2 * FLOW, generator)
    doubts = []
    if float(better[0] - elbo[0]) > 1:
        doubts.append(
            "the held-out KL of the best Gaussian fit is still falling: start from a q0 that is "
            "nearer to the density in place and scale"
        )
    if len(elbo) == MODES:
        doubts.append(
            f"there are {MODES} modes or more, and only the highest {MODES} were fitted: some mass "
            "may be missing"
        )
    return local_fits.weigh(target, fits, elbo, N_PILOT, 5, generator), doubts


def _weigh(target: Target, q: FullMixture, n: int, generator: torch.Generator) -> ImportanceSample:
    x = q.sample((n,), generator)
    return ImportanceSample(x, target.log_prob(x) - q.log_prob(x))


def _good(sample: ImportanceSample) -> bool:
    return bool(sample.ess >= ENOUGH * sample.n) and bool(sample.pareto_k < 0.7)


def _round(mixture: FullMixture) -> Gaussian:
    """N(0, C) with C the mean covariance within components."""
    share = mixture.log_weights.exp()[:, None, None]
    within = (share * mixture.scale_trils @ mixture.scale_trils.mT).sum(0)
    return Gaussian(torch.zeros_like(mixture.means[0]), torch.linalg.cholesky(within))


def _in_coordinates(mixture: FullMixture, coordinates: Gaussian) -> FullMixture:
    """The mixture as a density of u = L⁻¹x."""
    scale = coordinates.scale_tril
    means = torch.linalg.solve_triangular(scale, mixture.means.mT, upper=False).mT
    trils = torch.linalg.solve_triangular(scale, mixture.scale_trils, upper=False).tril()
    return FullMixture(mixture.log_weights, means, trils)


def _chain(target: Target, base: ScoredProposal, generator: torch.Generator) -> HAIS:
    """HAIS with the best step on the shortest pilot, as long as a pilot's ESS asks for."""
    merits = {}
    for step in STEPS:
        chain = HAIS(target, base, linear(LENGTHS[0]), step, LEAPFROGS)
        pilot = chain.importance_sample(chain.run(chain.init(N_PILOT, generator)))
        merits[step] = float(pilot.log_w.mean())
    step = max(STEPS, key=lambda s: merits[s])
    for length in LENGTHS:
        chain = HAIS(target, base, linear(length), step, LEAPFROGS)
        if length == LENGTHS[-1]:
            break
        if _good(chain.importance_sample(chain.run(chain.init(N_PILOT, generator)))):
            break
    return chain


def _doubts(both: ImportanceSample, runs: list[ImportanceSample]) -> list[str]:
    """What the weights say against the result."""
    doubts = []
    if (k := float(both.pareto_k)) > 0.7:
        doubts.append(
            f"Pareto-k̂ is {k:.2f}, above 0.7: a few weights carry the estimate, and neither it nor "
            "its standard error can be trusted"
        )
    if (ess := float(both.ess)) < 100:
        doubts.append(f"the effective sample size is {ess:.0f}, below 100: raise n_samples")
    first, second = runs
    apart = float((first.log_z - second.log_z).abs())
    se = math.hypot(float(first.log_z_se), float(second.log_z_se))
    if apart > 4 * se + 1e-9:
        doubts.append(
            f"two independent runs disagree: log Z is {float(first.log_z):.4g} and "
            f"{float(second.log_z):.4g}, {apart / max(se, 1e-300):.1f} standard errors apart; they "
            "may have found different modes: try a wider q0"
        )
    return doubts
