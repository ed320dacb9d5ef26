"""A triangular map fitted to weighted draws: it unbends curved densities and opens funnels.

In some order of the coordinates, each is normal given those before it, with a mean that is
quadratic in them and a log-deviation that is, too:

    y_i = m_i(y_<i) + exp(ℓ_i(y_<i)) h_i(z_i),     m_i, ℓ_i linear in (1, y_j, y_j²), j < i,

with a monotone h_i for skewness and tails (`Margins`). z is easier to fit a mixture to than y; the
determinant is known, so that weights stay exact.
Coordinates that decide over the mean and width of others come first (`driving_order`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steinis_lib.estimate.margins import Margins
from steinis_lib.estimate.student import StudentMixture

ALTERNATIONS = 10
"""Turns of fitting means and log-deviations."""
LINEAR, BENT = 0.1, 3.0
"""How strongly coefficients of y and of other terms are drawn to 0, in draws that say so."""
FARTHEST = 8.0
"""The largest |ℓ|."""
FARTHEST_OUT = 30.0
"""Terms no longer change beyond so many standard deviations."""
DRIVERS = 12
"""Only so many coordinates, the first in order, have other than linear terms in means."""


@dataclass(frozen=True)
class Triangular:
    """The map; all fields are for the coordinates in their order.

    Parameters
    ----------
    order
        Which coordinate comes when, int64 ``(d,)``.
    shift, scale
        y = (u - shift) / scale, ``(d,)``.
    means, log_scales
        Coefficients of m and ℓ, ``(d, 1 + 2d)``; those of coordinates that come later are 0.
    """

    order: Tensor
    shift: Tensor
    scale: Tensor
    means: Tensor
    log_scales: Tensor
    margins: Margins

    def to_z(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return z of u ``(n, d)``, and log|∂u/∂z| there ``(n,)``."""
        y = (u[:, self.order] - self.shift) / self.scale
        terms = _terms(y)
        log_scale = _bounded(terms @ self.log_scales.mT)
        z, slope = self.margins.to_z((y - terms @ self.means.mT) * (-log_scale).exp())
        return z, log_scale.sum(-1) + self.scale.log().sum() - slope.sum(-1)

    def to_u(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return u of z ``(n, d)``, and log|∂u/∂z| there ``(n,)``."""
        n, d = z.shape
        r, slope = self.margins.to_r(z)
        y, log_det = z[:, :0], self.scale.log().sum() - slope.sum(-1)
        for i in range(d):
            terms = _terms(y)
            known = torch.cat([torch.arange(1 + i), torch.arange(1 + d, 1 + d + i)]).to(self.order)
            log_scale = _bounded(terms @ self.log_scales[i, known])
            value = terms @ self.means[i, known] + log_scale.exp() * r[:, i]
            y = torch.cat([y, value.unsqueeze(-1)], -1)
            log_det = log_det + log_scale
        u = self.shift + self.scale * y
        return u[:, self.order.argsort()], log_det


def _terms(y: Tensor) -> Tensor:
    y = y.clamp(-FARTHEST_OUT, FARTHEST_OUT)
    return torch.cat([y.new_ones(len(y), 1), y, y.square()], -1)


def _bounded(log_scale: Tensor) -> Tensor:
    return FARTHEST * torch.tanh(log_scale / FARTHEST)


def fitted(u: Tensor, w: Tensor) -> Triangular:
    """Return the map that draws ``(n, d)`` with normalised weights ``(n,)`` suggest."""
    n_eff = float(1 / w.square().sum())
    shift = w @ u
    scale = (w @ (u - shift).square()).sqrt().clamp(min=1e-300)
    y = (u - shift) / scale
    order = driving_order(y, w)
    y = y[:, order]
    n, d = y.shape
    terms, means, logs = _terms(y), y.new_zeros(d, 1 + 2 * d), y.new_zeros(d, 1 + 2 * d)
    for i in range(d):
        bent = torch.arange(1 + d, 1 + d + min(i, DRIVERS))
        columns = torch.cat([torch.arange(1 + i), bent])
        log_columns = torch.cat([torch.arange(1 + min(i, DRIVERS)), bent])
        m, c = _conditional(y[:, i], terms[:, columns], terms[:, log_columns], w, n_eff, 1 + i)
        means[i, columns], logs[i, log_columns] = m, c
    residuals = (y - terms @ means.mT) * (-_bounded(terms @ logs.mT)).exp()
    return Triangular(order, shift[order], scale[order], means, logs, Margins.fitted(residuals, w))


def _conditional(
    y: Tensor, terms: Tensor, log_terms: Tensor, w: Tensor, n_eff: float, n_linear: int
) -> tuple[Tensor, Tensor]:
    """Return coefficients of mean and log-deviation of y given terms: likelihood and ridge."""
    ridge = terms.new_full(terms.shape[-1:], BENT / n_eff)
    ridge[:n_linear] = LINEAR / n_eff
    ridge[0] = 1e-9
    log_ridge = log_terms.new_full(log_terms.shape[-1:], BENT / n_eff)
    log_ridge[0] = 1e-9
    c = log_terms.new_zeros(log_terms.shape[-1])
    m = terms.new_zeros(terms.shape[-1])
    for turn in range(ALTERNATIONS):
        precision = w * (-2 * _bounded(log_terms @ c)).exp()
        gram = (terms * precision.unsqueeze(-1)).mT @ terms + torch.diag(ridge)
        m = torch.linalg.solve(gram, (terms * precision.unsqueeze(-1)).mT @ y)
        r2 = (y - terms @ m).square()
        if turn == 0:
            c[0] = 0.5 * float((w @ r2).clamp(min=1e-12).log())
        relative = (r2 * (-2 * _bounded(log_terms @ c)).exp()).clamp(max=20.0)
        gradient = log_terms.mT @ (w * (relative - 1)) - log_ridge * c
        fisher = 2 * (log_terms * w.unsqueeze(-1)).mT @ log_terms + torch.diag(log_ridge)
        step = torch.linalg.solve(fisher, gradient)
        c = c + step * min(1.0, 2.0 / float((log_terms @ step).abs().max().clamp(min=1e-12)))
    return m, c


def driving_order(y: Tensor, w: Tensor) -> Tensor:
    """Return coordinates of standardised y ``(n, d)``: those that bend or scale others first.

    For each pair it is asked how much likelier y_i is with mean and log-variance bent by y_j, and
    the other way round.
    """
    d = y.shape[-1]
    gain = y.new_zeros(d, d)  # [j, i]: of y_i given y_j
    for j in range(d):
        basis = torch.stack([torch.ones_like(y[:, j]), y[:, j], y[:, j].square()], -1)
        line, curve = (
            y
            - basis[:, :k]
            @ torch.linalg.lstsq(
                (basis[:, :k] * w.sqrt().unsqueeze(-1)), y * w.sqrt().unsqueeze(-1)
            ).solution
            for k in (2, 3)
        )
        before, after = w @ line.square(), w @ curve.square()
        relative = (curve.square() / after.clamp(min=1e-12)).clamp(max=20.0)
        slope = (w * basis[:, 1]) @ (relative - 1)
        gain[j] = 0.5 * (before / after.clamp(min=1e-12)).log() + slope.square() / 4
    gain.fill_diagonal_(0.0)
    return (gain.sum(1) - gain.sum(0)).argsort(descending=True)


@dataclass(frozen=True)
class Warped:
    """The density of u = T(z) with z from a mixture.

    Parameters
    ----------
    q
        The mixture, of z.
    warp
        T; None is the identity.
    """

    q: StudentMixture
    warp: Triangular | None = None

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.q.dim

    def to_z(self, u: Tensor) -> Tensor:
        """Return T⁻¹(u), ``(n, d)``."""
        return u if self.warp is None else self.warp.to_z(u)[0]

    def log_prob(self, u: Tensor) -> Tensor:
        """Return log q(u), ``(n,)``."""
        if self.warp is None:
            return self.q.log_prob(u)
        z, log_det = self.warp.to_z(u)
        return self.q.log_prob(z) - log_det

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw ``(n, d)`` independent points for ``shape = (n,)``."""
        z = self.q.sample(shape, generator)
        return z if self.warp is None else self.warp.to_u(z)[0]
