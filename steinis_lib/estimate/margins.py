"""Monotone maps of single coordinates to normal ones: skewness and tails by sinh and arcsinh.

z = sinh(δ arcsinh((r - ξ)/η) - ε): ε is skewness, δ < 1 are heavy tails, δ > 1 light ones (Jones &
Pewsey 2009). All four numbers of each coordinate are its likeliest ones, by L-BFGS, slightly drawn
to those of the identity.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

RIDGE = 2.0
"""How strongly parameters are drawn to the identity's, in draws that say so."""
STEPS = 30
LIMITS = (0.6, 2.0)
"""Of δ."""


@dataclass(frozen=True)
class Margins:
    """ξ, η, ε and δ of each coordinate, ``(d,)``."""

    shift: Tensor
    scale: Tensor
    skew: Tensor
    tail: Tensor

    def to_z(self, r: Tensor) -> tuple[Tensor, Tensor]:
        """Return z of r ``(n, d)``, and log dz/dr of each coordinate ``(n, d)``."""
        y = (r - self.shift) / self.scale
        inner = self.tail * torch.asinh(y) - self.skew
        slope = _log_cosh(inner) + (self.tail / self.scale).log() - 0.5 * y.square().log1p()
        return torch.sinh(inner.clamp(-500, 500)), slope

    def to_r(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return r of z ``(n, d)``, and log dz/dr of each coordinate ``(n, d)``."""
        inner = torch.asinh(z)
        outer = (inner + self.skew) / self.tail
        slope = _log_cosh(inner) + (self.tail / self.scale).log() - _log_cosh(outer)
        return self.shift + self.scale * torch.sinh(outer.clamp(-500, 500)), slope

    @classmethod
    def fitted(cls, r: Tensor, w: Tensor) -> Margins:
        """Return the likeliest maps for draws ``(n, d)`` with normalised weights ``(n,)``."""
        ridge = RIDGE * float(w.square().sum())
        start = torch.zeros(4, r.shape[-1], dtype=r.dtype, device=r.device)
        parameters = start.clone().requires_grad_(True)
        optimiser = torch.optim.LBFGS([parameters], max_iter=STEPS, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            z, slope = cls.of(parameters).to_z(r)
            value = (w @ (0.5 * z.square().clamp(max=100.0) - slope)).sum()
            value = value + ridge * parameters.square().sum()
            (parameters.grad,) = torch.autograd.grad(value, parameters)
            return value

        with torch.enable_grad():
            optimiser.step(loss)
        found = parameters.detach()
        return cls.of(torch.where(torch.isfinite(found).all(0), found, start))

    @classmethod
    def of(cls, parameters: Tensor) -> Margins:
        """Return maps of four unbounded numbers each ``(4, d)``; zeros give the identity."""
        shift, log_scale, skew, log_tail = parameters
        return cls(shift, log_scale.clamp(-10, 10).exp(), skew, log_tail.exp().clamp(*LIMITS))


def _log_cosh(x: Tensor) -> Tensor:
    return x.abs() + torch.log1p((-2 * x.abs()).exp()) - 0.6931471805599453
