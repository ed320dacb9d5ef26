"""How the cost of a transition of SteinIS grows, against the formula of section 3.

The paper: O(|A|α(d) + |A|²β(d) + |A||B|β(d) + |B|d³), for α(d) the cost of a score and β(d) that of
a kernel. The target is a Gaussian whose score costs next to nothing, so that kernels and
determinants are what is timed; one size is varied at a time. The decoder's α(d) is timed apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr

from steinis_lib.companion.methods import build_steinis
from steinis_lib.companion.problems.decoder import DecoderPosterior
from steinis_lib.companion.settings import Setting
from steinis_lib.companion.vae.networks import Decoder
from steinis_lib.stein.maps import Determinant
from steinis_lib.targets.base import Gaussian

HIDDEN, PIXELS, LATENTS = 500, 784, 1000
"""Of the decoder whose score is timed: the trained ones' sizes, and the points it is taken at."""


@dataclass(frozen=True)
class Growth:
    """What is varied, and what the other sizes are.

    Parameters
    ----------
    sizes
        The parameter of the experiment that lists the sizes.
    n_leaders, n_followers, dim
        |A|, |B| and d; None is the one that is varied.
    determinant
        As of `SteinIS`.
    """

    sizes: str
    n_leaders: int | None
    n_followers: int | None
    dim: int | None
    determinant: Determinant = "first-order"

    def at(self, size: int) -> tuple[int, int, int]:
        """Return |A|, |B| and d."""
        a, b, d = self.n_leaders, self.n_followers, self.dim
        return a or size, b or size, d or size


GROWTH = {
    "growth-leaders": Growth("leader_counts", None, 10, 20),
    "growth-followers": Growth("follower_counts", 50, None, 20),
    "growth-dim": Growth("dims", 300, 300, None),
    "growth-exact": Growth("exact_dims", 16, 32, None, "exact"),
}
"""At the large end of each, one term of the formula leads: |A|²β(d) where |A| ≫ |B|; |A||B|β(d)
where |B| ≫ |A|; β(d) where both are fixed; and |B|d³ where d² ≫ |A| + |A|²/|B|. The last also has
d ≫ |A|, because making the Jacobians takes O(|A||B|d²), which the formula leaves out."""


def over_sizes(
    sizes: Sequence[int], n: int, timed: Callable[[int], tuple[float, float]]
) -> xr.Dataset:
    """Time each size once after a warm-up.

    Parameters
    ----------
    timed
        Size → seconds for `n` transitions or scores, and a mean of what these computed.
    """
    values = np.array([(timed(size), timed(size))[1] for size in sizes])
    return xr.Dataset(
        {"seconds": ("size", values[:, 0] / n, {"units": "s"}), "outcome": ("size", values[:, 1])},
        coords={"size": list(sizes)},
    )


def time_transitions(
    growth: Growth, size: int, n: int, generator: torch.Generator
) -> tuple[float, float]:
    """Return seconds for n transitions from N(0, I) to N(1, I), in 64 bits, and the mean log q."""
    n_leaders, n_followers, d = growth.at(size)
    q0, target = (Gaussian.isotropic(torch.full((d,), c, dtype=torch.float64)) for c in (0.0, 1.0))
    sampler = build_steinis(
        target, q0, Setting(0.05), n_leaders=n_leaders, n_followers=n_followers,
        determinant=growth.determinant,
    )  # fmt: skip
    state = sampler.init(generator)
    start = time.perf_counter()
    state = sampler.run(state, n)
    return time.perf_counter() - start, float(state.log_q.mean())


def time_scores(d: int, n: int, generator: torch.Generator) -> tuple[float, float]:
    """Return seconds for n times the score of a random decoder, in 32 bits, and its mean."""
    shapes = ((d, HIDDEN), (HIDDEN,), (HIDDEN, PIXELS), (PIXELS,))
    like = torch.float32
    weights = [0.1 * torch.randn(shape, generator=generator, dtype=like) for shape in shapes]
    target = DecoderPosterior(Decoder(*weights), torch.zeros(PIXELS, dtype=like))
    z = torch.randn(LATENTS, d, generator=generator, dtype=like)
    start = time.perf_counter()
    for _ in range(n):
        score = target.score(z)
    return time.perf_counter() - start, float(score.mean())
