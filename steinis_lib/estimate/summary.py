"""Means, standard deviations and quantiles of parameters, from weighted draws."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steinis_lib.estimate.text import table

LEVELS = (0.05, 0.5, 0.95)
COLUMNS = ("mean", "se", "sd", *(f"{level:.0%}" for level in LEVELS))


@dataclass(frozen=True)
class Summary:
    """Numbers about each parameter; it prints as a table.

    Parameters
    ----------
    names
        Of the parameters' numbers, k of them: "sigma", "mix[0]".
    values
        ``(k, 6)``: the mean under p, its standard error, the standard deviation, and the quantiles
        of 5, 50 and 95 %.
    """

    names: tuple[str, ...]
    values: Tensor

    def __getitem__(self, name: str) -> dict[str, float]:
        """Return the numbers about one parameter, by their names in the table's header."""
        if name not in self.names:
            raise KeyError(f"{name}: there are {', '.join(self.names)}")
        return dict(zip(COLUMNS, self.values[self.names.index(name)].tolist(), strict=True))

    def __str__(self) -> str:
        rows = [
            [name, *(f"{value:.4g}" for value in row)]
            for name, row in zip(self.names, self.values.tolist(), strict=True)
        ]
        return table(["", *COLUMNS], rows)

    __repr__ = __str__


def summarise(names: list[str], x: Tensor, log_w: Tensor) -> Summary:
    """Return the summary of draws ``(n, k)`` with log-weights ``(n,)``."""
    w = log_w.softmax(0).unsqueeze(-1)
    mean = (w * x).sum(0)
    centred = x - mean
    sd = (w * centred.square()).sum(0).sqrt()
    se = (w * centred).square().sum(0).sqrt()
    levels = [weighted_quantile(x, w, level) for level in LEVELS]
    return Summary(tuple(names), torch.stack([mean, se, sd, *levels], -1))


def weighted_quantile(x: Tensor, w: Tensor, level: float) -> Tensor:
    """Return the least of draws ``(n, k)`` below which weights ``(n, 1)`` sum to a level."""
    order = x.argsort(0)
    below = w.expand_as(x).gather(0, order).cumsum(0)
    index = (below < level).sum(0, keepdim=True).clamp(max=len(x) - 1)
    return x.gather(0, order.gather(0, index)).squeeze(0)
