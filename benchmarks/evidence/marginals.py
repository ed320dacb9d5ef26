"""Densities of data after some parameters of a normal model are integrated out in closed form."""

from __future__ import annotations

import torch
from torch import Tensor

from evidence.densities import LOG_2PI


def regression(y: Tensor, design: Tensor, noise: Tensor, prior_sd: Tensor) -> Tensor:
    """log N(y; 0, noise² I + X diag(prior_sd²) Xᵀ) for each of ``(k,)`` noises.

    The covariance is diagonal in the eigenvectors of X diag(prior_sd²) Xᵀ.
    """
    left, singular, _ = torch.linalg.svd(design * prior_sd, full_matrices=False)
    inside = left.mT @ y
    outside = y.square().sum() - inside.square().sum()
    variances = noise[:, None].square() + singular.square()
    square = (inside.square() / variances).sum(-1) + outside / noise.square()
    log_det = variances.log().sum(-1) + 2 * (len(y) - len(singular)) * noise.log()
    return -0.5 * (square + log_det + len(y) * LOG_2PI)


def random_intercepts(
    y: Tensor, group: Tensor, design: Tensor, scales: Tensor, noise: Tensor, prior_sd: Tensor
) -> Tensor:
    """log density of y = Xβ + a[group] + ε, after a ~ N(0, scale²) and β ~ N(0, diag(prior_sd²)).

    Parameters
    ----------
    y, group, design
        Data ``(n,)``, the index of each one's group ``(n,)``, and X ``(n, p)``.
    scales, noise
        Standard deviations of a and ε, ``(k,)`` each.
    prior_sd
        Of β, ``(p,)``.
    """
    n_groups = int(group.max()) + 1
    columns = torch.cat([design * prior_sd, y[:, None]], -1)
    counts = torch.bincount(group, minlength=n_groups).to(y)
    sums = columns.new_zeros(n_groups, columns.shape[1]).index_add(0, group, columns)
    within = noise.square()[:, None] + counts * scales.square()[:, None]
    shrunk = scales.square()[:, None] / within
    inner = (columns.mT @ columns) - torch.einsum("kj,ja,jb->kab", shrunk, sums, sums)
    inner = inner / noise.square()[:, None, None]
    p = design.shape[1]
    precision = torch.eye(p).to(y) + inner[:, :p, :p]
    chol = torch.linalg.cholesky(precision)
    z = torch.linalg.solve_triangular(chol, inner[:, :p, p:], upper=False)[..., 0]
    square = inner[:, p, p] - z.square().sum(-1)
    log_det = 2 * (len(y) - n_groups) * noise.log() + within.log().sum(-1)
    log_det = log_det + 2 * chol.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return -0.5 * (square + log_det + len(y) * LOG_2PI)
