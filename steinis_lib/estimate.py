"""log Z of a density of one's own, with nothing to tune: `estimate_log_z`.

Two independent runs each

1. fit a mixture of Gaussians at the modes that explorers find (`local_fits`), and give a fifth of
   its draws to wider ones: fits by KL(q‖p) are too narrow for what is not Gaussian;
2. look at the mixture's weights on draws that are then thrown away. If their ESS is half of them,
   the mixture is the proposal;
3. else, in few dimensions, move its draws on by SteinIS that is steered by held-out particles
   (`held_out`), and look again;
4. else anneal from the mixture to p̄ by HAIS, in coordinates in which the mixture is round, with as
   many transitions as it takes for an ESS of half.

All choices are made on pilot draws; the draws that are weighed in the end are new, so that Ẑ is
unbiased whatever was chosen. What no explorer met stays unseen, and two runs may miss the same.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from steinis_lib.baselines.annealing import linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.evidence import ENOUGH, Evidence, doubts_about
from steinis_lib.extensions import mode_fits as local_fits
from steinis_lib.extensions.gaussian_flow import GaussianFlow, standardise
from steinis_lib.extensions.held_out import HeldOutSteinIS
from steinis_lib.importance import ImportanceSample
from steinis_lib.stein.kernels import RBF
from steinis_lib.targets.base import Gaussian, LogProb, ScoredProposal, Target
from steinis_lib.targets.mixtures import FullCovarianceMixture
from steinis_lib.targets.whitened import WhitenedTarget

FARTHEST_UP = 1e9
"""Above this log p̄, a climb of sixty steps has met no mode."""
N_PILOT = 500
FEW_DIMENSIONS = 5
"""Up to here RBF maps are tried: further up, a kernel that is not tuned moves next to nothing."""
EXPLORERS, EXPLORING, MODES, FLOW, MORE = 100, 200, 12, 20, 5
"""Explorers, their transitions, the most modes that are fitted, transitions of each fit, and more
transitions of the best one, to see whether it has settled."""
WIDE_SHARE, WIDE = 0.2, 2.0
"""The share of the wider components, and the factor on their standard deviations."""
LENGTHS, STEPS, LEAPFROGS = (10, 40, 160, 640), (0.15, 0.3, 0.6), 5
"""HAIS: transitions that are tried in turn, leapfrog steps ε, and how many of them."""
REFINE, FALLING = 60, 0.05
"""The most transitions of held-out SteinIS, and nats that the last quarter should not gain."""


def estimate_log_z(
    log_prob: Callable[[Tensor], Tensor],
    dim: int,
    *,
    q0: Gaussian | None = None,
    n_samples: int = 4000,
    seed: int = 0,
) -> Evidence:
    """Estimate log ∫ exp(log_prob), with draws of the density and reasons to doubt them.

    Exploring and fitting took 60 000 to 90 000 calls of log_prob at a particle where we looked;
    annealing takes up to 3200 · `n_samples` and a pilot's. `Evidence.n_evaluations` says how many.

    Parameters
    ----------
    log_prob
        log p̄, ``(n, d)`` → ``(n,)``: any PyTorch function that autograd can follow, finite on all
        of R^d. Bounded parameters need a change of variables first.
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
        If log_prob is NaN, infinite, or without a finite gradient where explorers or draws of a
        proposal are.
    """
    if dim < 1:
        raise ValueError(f"dim must be at least 1, got {dim}")
    if n_samples < 200 or n_samples % 2:
        raise ValueError(f"n_samples must be even and at least 200, got {n_samples}")
    if q0 is None:
        q0 = Gaussian.isotropic(torch.zeros(dim, dtype=torch.float64))
    if q0.mean.shape != (dim,) or q0.scale_tril.shape != (dim, dim):
        raise ValueError(
            f"q0 must have a mean ({dim},) and a scale_tril ({dim}, {dim}), got "
            f"{tuple(q0.mean.shape)} and {tuple(q0.scale_tril.shape)}"
        )
    counted = _Counted(log_prob)
    generator = torch.Generator(q0.mean.device).manual_seed(seed)
    target = LogProb(counted, dim)
    target.log_prob_and_score(q0.sample((2,), generator))  # refuses what is no density, and says so
    with torch.no_grad():  # log_prob may have parameters that ask for gradients of their own
        runs = [_run(target, q0, n_samples // 2, generator) for _ in range(2)]
    samples = [sample for sample, _, _ in runs]
    both = ImportanceSample(
        torch.cat([s.particles for s in samples]), torch.cat([s.log_w for s in samples])
    )
    doubts = [doubt for _, _, found in runs for doubt in found]
    doubts += doubts_about(both, samples)
    return Evidence(
        both,
        torch.stack([s.log_z for s in samples]),
        tuple(dict.fromkeys(doubts)),
        (runs[0][1], runs[1][1]),
        counted.n,
    )


class _Counted:
    """log_prob, counting particles, and spared those that a proposal moved to no number."""

    def __init__(self, log_prob: Callable[[Tensor], Tensor]) -> None:
        self.log_prob, self.n = log_prob, 0

    def __call__(self, x: Tensor) -> Tensor:
        """Return log_prob, and NaN, which samplers reject, where x is not finite."""
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
        gains: list[float] = []
        state = sampler.init(mixture, 2000, n, N_PILOT, generator)
        state = sampler.run(state, REFINE, lambda _, info: gains.append(float(info.gain)))
        sample = sampler.importance_sample(state)
        held_out = ImportanceSample(
            state.held_out, target.log_prob(state.held_out) - state.log_q_held_out
        )
        if _good(held_out):
            if int(state.n_folds):
                doubts.append("some map of SteinIS is not one-to-one: Ẑ may be too large")
            if (late := sum(gains[-REFINE // 4 :])) > FALLING:
                doubts.append(f"the held-out KL was still falling, by {late:.2f} nats at the end")
            return sample, "maps", doubts
    round_ = _round(mixture)
    base, inside = _in_coordinates(mixture, round_), WhitenedTarget(target, round_)
    chain = _chain(inside, base, generator)
    if chain.gradients > LENGTHS[-1] * LEAPFROGS:
        doubts.append(
            f"annealing took its longest path, {LENGTHS[-1]} transitions, as shorter ones were not "
            "enough: mass in narrow or far places may be missing"
        )
    sample = chain.importance_sample(chain.run(chain.init(n, generator)))
    return ImportanceSample(inside.to_x(sample.particles), sample.log_w), "annealing", doubts


def _mixture(
    target: Target, q0: Gaussian, generator: torch.Generator
) -> tuple[FullCovarianceMixture, list[str]]:
    """Fit the mixture; doubt it if its fits have not settled."""
    m = max(60, q0.dim + 20)
    ends = local_fits.explore(target, q0, EXPLORERS, EXPLORING, generator, n_leapfrog=1)
    _refuse_zero(target.log_prob(ends))
    x, log_p, epsilon = local_fits.climb(target, ends)
    if bool((log_p > FARTHEST_UP).any()):
        raise FloatingPointError(
            "log_prob rises without end uphill of q0, so that its integral is infinite; expected a "
            "density that falls off in all directions: check its sign"
        )
    chosen = local_fits.distinct(x, log_p, epsilon, MODES)
    scales = epsilon[chosen].sqrt()
    fits, elbo = local_fits.fit(target, x[chosen], scales, m, FLOW, generator)
    _refuse_zero(elbo)
    doubts = []
    if _still_rises(target, Gaussian(fits.mean[0], fits.scale_tril[0]), m, generator):
        doubts.append(
            "the best Gaussian fit had not settled: give the density coordinates in which its "
            "scales are more alike, or a q0 that is nearer to it"
        )
    if len(elbo) == MODES:
        doubts.append(
            f"there are {MODES} modes or more, and only the highest {MODES} were fitted: some mass "
            "may be missing"
        )
    return _widened(local_fits.weigh(target, fits, elbo, N_PILOT, 5, generator)), doubts


def _widened(q: FullCovarianceMixture) -> FullCovarianceMixture:
    """q and, with `WIDE_SHARE` of its weight, q with wider components (Hesterberg 1995)."""
    shares = q.log_weights.new_tensor([1 - WIDE_SHARE, WIDE_SHARE]).log()
    return FullCovarianceMixture(
        torch.cat([q.log_weights + share for share in shares]),
        torch.cat([q.means, q.means]),
        torch.cat([q.scale_trils, WIDE * q.scale_trils]),
    )


def _refuse_zero(log_p: Tensor) -> None:
    """Refuse a density of zero where explorers end, or a fit has mass."""
    if bool((log_p == -torch.inf).any()):
        raise FloatingPointError(
            "log_prob is -inf near its modes: estimate_log_z needs a density that is positive on "
            "all of R^d; change variables first, such as to the log of a positive parameter, and "
            "add the log of the Jacobian determinant to log_prob"
        )


def _still_rises(target: Target, fit: Gaussian, m: int, generator: torch.Generator) -> bool:
    """Whether a few more transitions raise the ELBO of a fit by more than 1, beyond noise.

    The two ELBOs are compared on the same standard normal draws, which takes out most of the noise.
    """
    flow = GaussianFlow(target, m)
    further = flow.proposal(flow.run(flow.init(fit, generator), MORE))
    u = standardise(Gaussian.isotropic(torch.zeros_like(fit.mean)).sample((m,), generator))
    elbo = []
    for q in (fit, further):
        x = q.mean + u @ q.scale_tril.mT
        elbo.append(target.log_prob(x) - q.log_prob(x))
    rise = elbo[1] - elbo[0]
    return bool(rise.mean() > 1 + 2 * rise.std() / m**0.5)


def _weigh(
    target: Target, q: FullCovarianceMixture, n: int, generator: torch.Generator
) -> ImportanceSample:
    x = q.sample((n,), generator)
    return ImportanceSample(x, target.log_prob(x) - q.log_prob(x))


def _good(sample: ImportanceSample) -> bool:
    return bool(sample.ess >= ENOUGH * sample.n) and bool(sample.pareto_k < 0.7)


def _round(mixture: FullCovarianceMixture) -> Gaussian:
    """N(0, C) with C the mean covariance within components."""
    share = mixture.log_weights.exp()[:, None, None]
    within = (share * mixture.scale_trils @ mixture.scale_trils.mT).sum(0)
    return Gaussian(torch.zeros_like(mixture.means[0]), torch.linalg.cholesky(within))


def _in_coordinates(mixture: FullCovarianceMixture, coordinates: Gaussian) -> FullCovarianceMixture:
    """The mixture as a density of u = L⁻¹x."""
    scale = coordinates.scale_tril
    means = torch.linalg.solve_triangular(scale, mixture.means.mT, upper=False).mT
    trils = torch.linalg.solve_triangular(scale, mixture.scale_trils, upper=False).tril()
    return FullCovarianceMixture(mixture.log_weights, means, trils)


def _chain(target: Target, base: ScoredProposal, generator: torch.Generator) -> HAIS:
    """HAIS with the best step on the shortest pilot, as long as a pilot's ESS asks for."""
    merits = {}
    for step in STEPS:
        chain = HAIS(target, base, linear_schedule(LENGTHS[0]), step, LEAPFROGS)
        pilot = chain.importance_sample(chain.run(chain.init(N_PILOT, generator)))
        merits[step] = float(pilot.log_w.mean())
    step = max(STEPS, key=lambda s: merits[s])
    for length in LENGTHS:
        chain = HAIS(target, base, linear_schedule(length), step, LEAPFROGS)
        if length == LENGTHS[-1]:
            break
        if _good(chain.importance_sample(chain.run(chain.init(N_PILOT, generator)))):
            break
    return chain
