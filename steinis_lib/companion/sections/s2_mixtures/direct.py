"""Direct sampling from the target: "Direct" of section 5.1."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from steinis_lib.importance import ImportanceSample


@runtime_checkable
class Direct(Protocol):
    """A target that can be sampled. It may also offer ``log_z`` ``(*batch,)``."""

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw particles ``(*batch, n, d)`` for ``shape = (*batch, n)``."""
        ...


def direct_sampling(
    target: Direct, shape: tuple[int, ...], generator: torch.Generator
) -> ImportanceSample:
    """Draw ``shape = (*batch, n)`` particles from the target itself, with equal weights.

    The weights p̄/p of such particles all equal Z. If the target has `log_z`, log w is that number,
    and the sample's `log_z` is exact. If it has none, log w is 0: expectations are the same, but
    the sample's `log_z` means nothing.

    Raises
    ------
    TypeError
        If the target cannot be sampled.
    """
    if not isinstance(target, Direct):
        raise TypeError(f"{type(target).__name__} has no sample(shape, generator) to draw from")
    particles = target.sample(shape, generator)
    log_w = particles.new_zeros(particles.shape[:-1])
    log_z = getattr(target, "log_z", None)
    if log_z is not None:
        log_w = log_w + torch.as_tensor(log_z).to(log_w).unsqueeze(-1)
    return ImportanceSample(particles, log_w)
