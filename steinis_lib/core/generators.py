"""Random generators that are part of a state, and random batches of particles."""

from __future__ import annotations

import torch
from torch import Tensor


def fork(generator: torch.Generator) -> Tensor:
    """Return the state of a new generator seeded from `generator`, which moves on by one draw."""
    seed = torch.randint(2**62, (), generator=generator, device=generator.device)
    return torch.Generator(generator.device).manual_seed(int(seed)).get_state()


def resume(rng: Tensor, device: torch.device) -> torch.Generator:
    """Return a generator that continues from a state that `fork` or ``get_state`` returned."""
    return torch.Generator(device).set_state(rng)


def random_batch(x: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Return k of the particles ``(*batch, n, d)``, drawn without replacement in each problem.

    The choice depends on the generator alone, not on the dtype of the particles.
    """
    u = torch.rand(x.shape[:-1], generator=generator, dtype=torch.float64, device=x.device)
    index = u.argsort(-1)[..., :k, None]
    return x.gather(-2, index.expand(*index.shape[:-1], x.shape[-1]))
