"""Resampling of weighted particles."""

from __future__ import annotations

import torch
from torch import Tensor


def systematic(log_w: Tensor, k: int, generator: torch.Generator | None) -> Tensor:
    """Draw k indices by their weights, evenly spread (systematic resampling).

    Index i comes k w̃_i times, rounded up or down, with w̃ the normalised weights. The k points
    (u + j)/k, j = 0, …, k - 1, share one u in [0, 1) for each problem.

    Parameters
    ----------
    log_w
        ``(*batch, n)``; -inf is a zero weight, and is never drawn.
    generator
        Draws u; index i is then drawn k w̃_i times in expectation. With None u is 1/2, and the
        result follows from the weights alone.

    Returns
    -------
    index
        ``(*batch, k)``, int64, in ascending order.
    """
    shape = (*log_w.shape[:-1], 1)
    if generator is None:
        u = log_w.new_full(shape, 0.5)
    else:
        u = torch.rand(shape, generator=generator, dtype=log_w.dtype, device=log_w.device)
    cumulative = log_w.softmax(-1).cumsum(-1)
    place = (u + torch.arange(k, dtype=log_w.dtype, device=log_w.device)) / k
    last = cumulative[..., -1:]
    return torch.searchsorted(cumulative, place * last).clamp(max=log_w.shape[-1] - 1)
