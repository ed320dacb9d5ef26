"""How `estimate_log_z` finds draws of a density, and how far it trusts them.

Two independent runs each

1. fit a mixture of Gaussians at the modes that explorers find (`fit_modes`), and give a fifth of
   its weight to wider copies of them: fits by KL(q‖p) are too narrow for what is not Gaussian;
2. weigh some draws of the mixture, which are then thrown away. If their ESS is half of them, the
   mixture is the proposal;
3. otherwise, in few dimensions, move draws of the mixture by SteinIS that is steered by held-out
   particles (`HeldOutSteinIS`), and look at the weights of those again;
4. otherwise anneal from the mixture to p̄ by HAIS, in coordinates in which the mixture is round,
   with as many transitions as it takes for an ESS of half.

All choices are made on pilot draws. The draws that are weighed in the end are new, so that Ẑ is
unbiased whatever was chosen. A mode that no explorer reached is not detected, and both runs may
miss the same one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from steinis_lib.estimate.doubts import Doubt
from steinis_lib.estimate.routes import ENOUGH, N_PILOT, by_annealing, by_maps, good
from steinis_lib.extensions.mode_fits import fit_modes
from steinis_lib.importance import ImportanceSample, importance_sampling
from steinis_lib.targets.base import Gaussian, Target
from steinis_lib.targets.mixtures import FullCovarianceMixture

EXPLORERS, EXPLORING = 100, 200
"""Explorers, and their transitions."""
MODES, FLOW, SETTLING = 12, 20, 5
"""The most modes that are fitted, transitions of each fit, and more transitions of the best one, to
see whether it has settled."""
WEIGHINGS = 5
"""Steps that find the components' weights."""
WIDE_SHARE, WIDE = 0.2, 2.0
"""The share of the wider components, and the factor on their standard deviations."""
FEW_DIMENSIONS = 5
"""RBF maps are tried up to here: in more dimensions, an untuned kernel moves too little."""

Report = Callable[[str, ImportanceSample | None], None]
"""Is told each stage, and the best weighted sample so far."""


@dataclass(frozen=True)
class Found:
    """What `find` found.

    Parameters
    ----------
    samples
        Two independent samples of half of the draws each.
    doubts
        Reasons not to trust them.
    route
        What each run's proposal was.
    """

    samples: tuple[ImportanceSample, ImportanceSample]
    doubts: tuple[Doubt, ...]
    route: tuple[str, ...]


def find(
    target: Target, q0: Gaussian, n_samples: int, generator: torch.Generator, report: Report
) -> Found:
    """Return two weighted samples of p with `n_samples` draws together, and doubts about them."""
    q0.sample((2,), generator)  # keeps the random numbers, and so the results, of earlier versions
    with torch.no_grad():  # log_prob may have parameters that ask for gradients of their own
        first = _run(target, q0, n_samples // 2, generator, report)
        report("the second run", first[0])
        second = _run(target, q0, n_samples // 2, generator, lambda _stage, _sample: None)
    samples = (first[0], second[0])
    doubts = (*first[2], *second[2], *weight_doubts(samples))
    unique = {doubt.message: doubt for doubt in doubts}
    return Found(samples, tuple(unique.values()), (first[1], second[1]))


def _run(
    target: Target, q0: Gaussian, n: int, generator: torch.Generator, report: Report
) -> tuple[ImportanceSample, str, list[Doubt]]:
    """Return the weighted draws of one run, its route, and its doubts."""
    report("fitting a mixture", None)
    mixture, doubts = _mixture(target, q0, generator)
    pilot = importance_sampling(target, mixture, (N_PILOT,), generator)
    report("weighing a mixture", pilot)
    if good(pilot):
        return importance_sampling(target, mixture, (n,), generator), "mixture", doubts
    if q0.dim <= FEW_DIMENSIONS:
        report("moving draws by maps", pilot)
        sample, more = by_maps(target, mixture, n, generator)
        if sample is not None:
            return sample, "maps", doubts + more
    report("annealing", pilot)
    sample, more = by_annealing(target, mixture, n, generator)
    return sample, "annealing", doubts + more


def _mixture(
    target: Target, q0: Gaussian, generator: torch.Generator
) -> tuple[FullCovarianceMixture, list[Doubt]]:
    """Fit the mixture and widen it; doubt it if fits have not settled, or are too few."""
    found = fit_modes(
        target,
        q0,
        generator,
        n_explorers=EXPLORERS,
        n_exploring=EXPLORING,
        n_modes=MODES,
        n_leaders=max(60, q0.dim + 20),
        n_transitions=FLOW,
        n_draws=N_PILOT,
        n_weighings=WEIGHINGS,
        n_settling=SETTLING,
    )
    doubts = []
    if not found.settled:
        doubts.append(
            Doubt(
                "unsettled",
                "the best Gaussian fit had not settled: give the density coordinates in which its "
                "scales are more alike, or a q0 that is nearer to it",
                math.inf,
            )
        )
    if len(found.elbo) == MODES:
        doubts.append(
            Doubt(
                "modes",
                f"there are {MODES} modes or more, and only the highest {MODES} were fitted: some "
                "mass may be missing",
                math.inf,
            )
        )
    return _widened(found.mixture), doubts


def _widened(q: FullCovarianceMixture) -> FullCovarianceMixture:
    """Return q mixed with q of wider components, by `WIDE_SHARE` (Hesterberg 1995)."""
    shares = q.log_weights.new_tensor([1 - WIDE_SHARE, WIDE_SHARE]).log()
    return FullCovarianceMixture(
        torch.cat([q.log_weights + share for share in shares]),
        torch.cat([q.means, q.means]),
        torch.cat([q.scale_trils, WIDE * q.scale_trils]),
    )


def weight_doubts(runs: tuple[ImportanceSample, ImportanceSample]) -> list[Doubt]:
    """Return what the weights of two runs, alone and together, say against the result."""
    first, second = runs
    both = ImportanceSample(
        torch.cat([s.particles for s in runs]), torch.cat([s.log_w for s in runs])
    )
    doubts = []
    if (k := max(float(s.pareto_k) for s in (both, *runs))) > 0.7:
        doubts.append(
            Doubt(
                "tail",
                f"Pareto-k̂ is {k:.2f}, above 0.7: a few weights carry the estimate, and neither it "
                "nor its standard error can be trusted",
                math.inf,
            )
        )
    if (ess := float(both.ess)) < 100:
        doubts.append(
            Doubt(
                "few draws",
                f"the effective sample size is {ess:.0f}, below 100: raise n_samples",
                4 / math.sqrt(ess),
            )
        )
    if (share := min(float(s.ess / s.n) for s in runs)) < ENOUGH / 2:
        doubts.append(
            Doubt(
                "rare weights",
                f"the effective sample size of a run is {share:.0%} of its draws, where pilots had "
                f"{ENOUGH:.0%}: large weights are rare, and more may be unseen; raise n_samples",
                math.inf,
            )
        )
    apart = float((first.log_z - second.log_z).abs())
    se = math.hypot(float(first.log_z_se), float(second.log_z_se))
    if apart > 4 * se + 1e-9:
        doubts.append(
            Doubt(
                "disagreement",
                f"two independent runs disagree: log Z is {float(first.log_z):.4g} and "
                f"{float(second.log_z):.4g}, {apart / max(se, 1e-300):.1f} standard errors apart; "
                "they may have found different modes: try a wider q0",
                apart,
            )
        )
    return doubts
