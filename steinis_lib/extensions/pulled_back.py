"""A target in the coordinates of q_0, through the maps of a SteinIS run; no map is inverted.

With T = T_K ∘ … ∘ T_1 and x = T(z), p̄ becomes p̄_z(z) = p̄(T(z)) |det ∇T(z)|, which has the same Z.
The log-weights log p̄_z - log q_0 are those of SteinIS, as q_K is the law of T(z) for z from q_0.
HAIS from q_0 on this target therefore anneals from q_K to p. It mixes well if the maps have made
p̄_z close to q_0. This is transport map MCMC (Parno & Marzouk 2018), called "NeuTra" where T is a
neural network (Hoffman et al. 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steinis_lib.core.checks import check_particles
from steinis_lib.stein.inverse import NotInvertibleError
from steinis_lib.stein.maps import StepMap
from steinis_lib.targets.base import Target

NUMBERS = 2**24
"""The most numbers of Jacobians of all maps at a time: 128 MB in 64 bits."""


@dataclass(frozen=True)
class PulledBack:
    """p̄ as a density of z = T⁻¹(x), with the same Z. Determinants are exact.

    A run of SteinIS gives its maps to `on_step`, as ``info.step_map``. They depend on leaders
    alone, so weights are valid for new draws from q_0 and for the followers, but not for leaders.

    A score costs K evaluations of φ and ∇φ with |A| leaders each, forward and backward by autograd,
    and one score of the target. Memory is that of all K maps at once, K (d² + |A|) numbers for a
    particle, up to a small factor. So particles are taken in pieces, of `NUMBERS` numbers each.

    Parameters
    ----------
    target
        p̄ of x; its own score is used, so it need not support autograd.
    maps
        T_1, …, T_K, in the order of the run, with fitted kernels.

    Raises
    ------
    ValueError
        If a map and the target have different dimensions.
    """

    target: Target
    maps: tuple[StepMap, ...]

    def __post_init__(self) -> None:
        for index, step_map in enumerate(self.maps):
            d = step_map.leaders.shape[-1]
            if d != self.target.dim:
                raise ValueError(f"the target has d={self.target.dim}, but map {index} has d={d}")

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.target.dim

    def to_x(self, z: Tensor) -> Tensor:
        """Return x = T(z), ``(*batch, n, d)``."""
        for step_map in self.maps:
            z = step_map(z)
        return z

    def log_prob(self, z: Tensor) -> Tensor:
        """Return log p̄(T(z)) + Σ_ℓ log|det ∇T_ℓ|, ``(*batch, n)``.

        Raises
        ------
        NotInvertibleError
            If a determinant is not positive at a particle, naming the map by its index. That map
            folds, so p̄_z is not the density of T⁻¹(x), and its Z is too large. A particle whose
            coordinates or determinants are NaN raises nothing: its density is NaN, and HAIS rejects
            such proposals.
        """
        x, log_abs_det = self._push(z)
        return self.target.log_prob(x) + log_abs_det

    def score(self, z: Tensor) -> Tensor:
        """Return ∇_z log p̄_z(z), ``(*batch, n, d)``; raises as `log_prob` does."""
        return self.log_prob_and_score(z)[1]

    def log_prob_and_score(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return both: ∇_z log p̄_z = ∇T(z)ᵀ s(T(z)) + ∇_z log|det ∇T(z)|, by one backward pass.

        Raises
        ------
        ValueError
            If the target has batch axes that neither z nor a map has.
        """
        z = self._expand(z)
        each = max(1, z[..., 0, 0].numel() * len(self.maps) * self.dim**2)
        parts = [self._both(part) for part in z.split(max(1, NUMBERS // each), -2)]
        log_p, score = zip(*parts, strict=True)
        return torch.cat(log_p, -1), torch.cat(score, -2)

    def _both(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return both for some of the particles, with the batch axes of all."""
        with torch.enable_grad():
            z = z.detach().requires_grad_(True)
            x, log_abs_det = self._push(z)
            log_p, score = self.target.log_prob_and_score(x.detach())
            if score.shape != z.shape:
                raise ValueError(
                    f"the target makes scores {tuple(score.shape)} of particles {tuple(z.shape)}; "
                    "expand z to its batch axes"
                )
            (gradient,) = torch.autograd.grad((x * score).sum() + log_abs_det.sum(), z)
        return log_p + log_abs_det.detach(), gradient

    def _push(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return T(z) and log|det ∇T(z)|."""
        z = self._expand(z)
        log_abs_det = z.new_zeros(z.shape[:-1])
        for index, step_map in enumerate(self.maps):
            z, term, kept = step_map.with_log_det(z)
            folds = int((~kept & ~term.isnan()).sum())
            if folds:
                raise NotInvertibleError(
                    f"map {index} of {len(self.maps)} is not one-to-one: det ∇T is not positive "
                    f"at {folds} of {kept.numel()} particles; record maps of a smaller step size"
                )
            log_abs_det = log_abs_det + term
        return z, log_abs_det

    def _expand(self, z: Tensor) -> Tensor:
        """Give z the batch axes of the maps, so that each problem has a gradient of its own."""
        check_particles(z, "z", self.dim)
        batches = [t.leaders.shape[:-2] for t in self.maps]
        batches += [torch.as_tensor(t.step_size).shape for t in self.maps]
        batch = torch.broadcast_shapes(z.shape[:-2], *batches)
        return z.expand(*batch, *z.shape[-2:])
