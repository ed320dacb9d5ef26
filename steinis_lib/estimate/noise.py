"""Rounding noise in log p̄, measured in nats.

Along a short line, a smooth log-density is a polynomial of low degree almost exactly. What a fitted
polynomial leaves is noise: of sums in single precision, of cancellation, of large constants. Lines
of two lengths are tried, neither very short, so that also noise that is constant over many
neighbouring floats shows. What is no noise, but a density that is no polynomial, shrinks with the
length; so the smaller of the two counts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from steinis_lib.estimate.space import Space

LINES, POINTS, LENGTHS, DEGREE = 12, 17, (0.1, 0.02), 4
"""Lines, points on each, halves of their lengths in deviations, and the polynomial's degree."""


def rounding_noise(space: Space, u: Tensor, w: Tensor, generator: torch.Generator) -> float:
    """Return the standard deviation of the noise of log p̄ where draws ``(n, d)`` have weight.

    It is the median over lines, so that a few with a kink or an edge on them do not count.

    Parameters
    ----------
    u, w
        Draws and their normalised weights; they choose the lines and their lengths.
    """
    chosen = torch.multinomial(w, 2 * LINES, True, generator=generator)
    ordered, order = u.sort(0)
    cumulative = w[order].cumsum(0)
    quartiles = [
        ordered.gather(0, (cumulative < part).sum(0, keepdim=True).clamp(max=len(u) - 1))[0]
        for part in (0.25, 0.75)
    ]
    signs = torch.randn(LINES, u.shape[-1], generator=generator, dtype=u.dtype, device=u.device)
    along = (quartiles[1] - quartiles[0]) / 1.35 * signs / u.shape[-1] ** 0.5
    return min(_left(space, u[chosen[:LINES]], length * along) for length in LENGTHS)


def _left(space: Space, u: Tensor, along: Tensor) -> float:
    """Return the median of what polynomials leave on lines u ± along."""
    t = torch.linspace(-1, 1, POINTS, dtype=u.dtype, device=u.device)
    lines = u[:, None] + t[:, None] * along[:, None]
    log_p = space.log_prob(lines.flatten(0, 1)).unflatten(0, lines.shape[:2])
    log_p = log_p[torch.isfinite(log_p).all(-1)]
    if not len(log_p):
        return 0.0
    basis = torch.linalg.qr(t.unsqueeze(-1) ** torch.arange(DEGREE + 1, device=u.device)).Q
    centred = log_p - log_p.mean(-1, keepdim=True)
    rest = centred - centred @ basis @ basis.mT
    return float((rest.square().sum(-1) / (POINTS - DEGREE - 1)).sqrt().median())
