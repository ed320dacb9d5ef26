"""log Z of any density, without settings to tune: `estimate_log_z`.

`find` says how it is done.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from steinis_lib.estimate.evidence import Evidence
from steinis_lib.estimate.find import find
from steinis_lib.importance import ImportanceSample
from steinis_lib.targets.base import Gaussian, LogProb


def estimate_log_z(
    log_prob: Callable[[Tensor], Tensor],
    dim: int,
    *,
    q0: Gaussian | None = None,
    n_samples: int = 4000,
    generator: torch.Generator | None = None,
) -> Evidence:
    """Estimate log ∫ exp(log_prob), with draws of the density and reasons to doubt them.

    Simple densities are asked for at 8 000 to 12 000 particles with the default `n_samples`,
    crooked ones at up to 200 000. `Evidence.n_evaluations` has the sum.

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
    generator
        Makes all random draws; on the device of `q0`. Default: a new one, seeded with 0.

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
    if generator is None:
        generator = torch.Generator(q0.mean.device).manual_seed(0)
    target = LogProb(counted, dim)
    target.log_prob_and_score(q0.sample((2,), generator))  # refuses what is no density, and says so
    with torch.no_grad():  # log_prob may have parameters that ask for gradients of their own
        found = find(target, q0, n_samples, generator, lambda stage, sample: None)
    both = ImportanceSample(
        torch.cat([s.particles for s in found.samples]), torch.cat([s.log_w for s in found.samples])
    )
    return Evidence(
        sample=both,
        log_z_runs=torch.stack([s.log_z for s in found.samples]),
        warnings=tuple(doubt.message for doubt in found.doubts),
        route=found.route,
        n_evaluations=counted.n,
    )


class _Counted:
    """log_prob with a count of particles; it is not called at particles that are not finite."""

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
