"""What `estimate_log_z` returns: an estimate of log Z, draws, and reasons to doubt them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from steinis_lib.core.optional import needs
from steinis_lib.core.resampling import systematic
from steinis_lib.importance import ImportanceSample

if TYPE_CHECKING:
    from arviz import InferenceData

ENOUGH = 0.5
"""A proposal is good enough if the ESS of pilot draws is this share of their number."""


@dataclass(frozen=True)
class Evidence:
    """What `estimate_log_z` found.

    Parameters
    ----------
    sample
        The weighted particles of both runs, ``(n, d)``, as many of each, one run after the other.
    log_z_runs
        log Ẑ of the two runs, ``(2,)``.
    warnings
        Reasons not to trust the result, in words; empty if none was seen.
    route
        What the proposal was: "mixture", or "map", a mixture behind a triangular map.
    n_evaluations
        The number of particles at which the density was evaluated, with or without a gradient.
    """

    sample: ImportanceSample
    log_z_runs: Tensor
    warnings: tuple[str, ...]
    route: tuple[str, ...]
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
        """Pareto-k̂ of all weights; if it is above 0.7, do not trust the other numbers."""
        return float(self.sample.pareto_k)

    def expectation(self, f: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Return E_p[f] and its standard error; f maps ``(n, d)`` to ``(n, k)``."""
        return self.sample.expectation(f)

    def to_arviz(self) -> InferenceData:
        """Return draws of p for ArviZ: each run resampled by its weights to one chain.

        `posterior` has the variable x, ``(2, n/2, d)``, where particles of large weight repeat, one
        after the other. `sample_stats` has their log-weights before resampling, and `log_z`,
        `log_z_se`, `ess` and `pareto_k` as attributes. Standard errors from ArviZ ignore the
        weights; those of `expectation` do not.

        Raises
        ------
        ImportError
            If ArviZ is not installed.
        """
        arviz = needs("arviz", "Evidence.to_arviz", "arviz")

        n, d = self.sample.particles.shape
        x = self.sample.particles.reshape(2, n // 2, d)
        log_w = self.sample.log_w.reshape(2, n // 2)
        index = systematic(log_w, n // 2, None)
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


def weight_warnings(both: ImportanceSample, runs: list[ImportanceSample]) -> list[str]:
    """Return what the weights of two runs, alone and together, say against the result."""
    warnings = []
    if (k := max(float(s.pareto_k) for s in (both, *runs))) > 0.7:
        warnings.append(
            f"Pareto-k̂ is {k:.2f}, above 0.7: a few weights carry the estimate, and neither it nor "
            "its standard error can be trusted"
        )
    if (ess := float(both.ess)) < 100:
        warnings.append(f"the effective sample size is {ess:.0f}, below 100: raise n_samples")
    if (share := min(float(s.ess / s.n) for s in runs)) < ENOUGH / 2:
        warnings.append(
            f"the effective sample size of a run is {share:.0%} of its draws, where pilots had "
            f"{ENOUGH:.0%}: large weights are rare, and more may be unseen; raise n_samples"
        )
    first, second = runs
    apart = float((first.log_z - second.log_z).abs())
    se = math.hypot(float(first.log_z_se), float(second.log_z_se))
    if apart > 4 * se + 1e-9:
        warnings.append(
            f"two independent runs disagree: log Z is {float(first.log_z):.4g} and "
            f"{float(second.log_z):.4g}, {apart / max(se, 1e-300):.1f} standard errors apart; they "
            "may have found different modes: try a wider q0"
        )
    return warnings
