"""The density of q_ℓ at any point, by inverting recorded maps one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steinis_lib.core.checks import check_at_least, check_finite, check_log_density, check_particles
from steinis_lib.stein.maps import StepMap
from steinis_lib.targets.base import Proposal


class NotInvertibleError(ArithmeticError):
    """A map is not one-to-one, or Newton's method could not invert it."""


@dataclass(frozen=True)
class PushForward:
    """q_ℓ: q_0 pushed through maps T_1, …, T_ℓ, as a `Proposal` with a density everywhere.

    A run of SteinIS shows its maps to `on_step`, as ``info.step_map``. Determinants here are
    exact, whatever that run used.

    Parameters
    ----------
    q0
        The initial distribution.
    maps
        T_1, …, T_ℓ, in the order of the run, with fitted kernels.
    """

    q0: Proposal
    maps: tuple[StepMap, ...]

    def __post_init__(self) -> None:
        for index, step_map in enumerate(self.maps):
            d = step_map.leaders.shape[-1]
            if d != self.q0.dim:
                raise ValueError(f"q0 has d={self.q0.dim}, but map {index} has d={d}")

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.q0.dim

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw ``(*batch, n, d)`` independent particles for ``shape = (*batch, n)``."""
        x = self.q0.sample(shape, generator)
        for step_map in self.maps:
            x = step_map(x)
        check_finite(x, "a sample")
        return x

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log q_ℓ(x) = log q_0(z) - log|det ∇T(z)|, ``(*batch, n)``, with T(z) = x.

        Raises
        ------
        NotInvertibleError
            If a map cannot be inverted; see `invert`.
        FloatingPointError
            If a point is not finite, or log q_0 is NaN or +inf.
        """
        z, log_abs_det = self.pull_back(x)
        log_q0 = self.q0.log_prob(z)
        check_log_density(log_q0, "q0's log_prob")
        return log_q0 - log_abs_det

    def pull_back(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return z, ``(*batch, n, d)``, with T(z) = x for T = T_ℓ ∘ … ∘ T_1, and log|det ∇T(z)|.

        Raises
        ------
        NotInvertibleError
            Naming the map by its index in `maps`; see `invert`.
        """
        check_particles(x, "x", self.dim)
        check_finite(x, "a point")
        log_abs_det = x.new_zeros(x.shape[:-1])
        shift = before = torch.zeros_like(x)  # by the last two maps; neighbours differ little
        for index in reversed(range(len(self.maps))):
            try:
                z, term = invert(self.maps[index], x, start=x + 2 * shift - before)
            except NotInvertibleError as error:
                raise NotInvertibleError(f"map {index} of {len(self.maps)}: {error}") from error
            before, shift, x, log_abs_det = shift, z - x, z, log_abs_det + term
        return x, log_abs_det


def invert(
    step_map: StepMap,
    y: Tensor,
    *,
    start: Tensor | None = None,
    tolerance: float | None = None,
    max_iterations: int = 50,
) -> tuple[Tensor, Tensor]:
    """Return x with T(x) = y, ``(*batch, n, d)``, and log|det ∇T(x)|, ``(*batch, n)``.

    Newton's method on x + ε φ(x) = y; a step that does not lower a point's residual is halved.
    Each iteration evaluates φ and ∇φ together, at the points that are left. A point is done when
    its residual is within the tolerance. Newton's next step from there is known by then, and is
    added: x is exact to about the square of the tolerance, log|det ∇T| to the tolerance times ε.

    Where φ is bounded, as for RBF and IMQ, T is one-to-one if det ∇T > 0 everywhere (Hadamard), and
    is not if det ∇T < 0 anywhere, as its degree is 1. The sign is checked at the leaders, about
    which maps fold first, and at all points that Newton's method visits. So every map that is
    refused folds; one that folds only elsewhere is not noticed. No map folds if ε sup‖∇φ‖ < 1.

    Parameters
    ----------
    y
        Points ``(*batch, n, d)``.
    start
        Where to start; default: y.
    tolerance
        Largest residual, relative to the spread of the leaders; default: the square root of the
        machine precision, 1.5e-8 in float64 and 3e-4 in float32. Round-off of y is allowed on top.
    max_iterations
        The most evaluations of φ at a point.

    Raises
    ------
    NotInvertibleError
        If a determinant that was met is not positive, or points are left in the end.
    FloatingPointError
        If a point is not finite.
    """
    leaders, d = step_map.leaders, step_map.leaders.shape[-1]
    check_particles(y, "y", d)
    check_finite(y, "a point")
    check_at_least(max_iterations, 1, "max_iterations")
    epsilon = torch.as_tensor(step_map.step_size, dtype=y.dtype, device=y.device)
    batch = torch.broadcast_shapes(y.shape[:-2], leaders.shape[:-2], epsilon.shape)
    y = y.expand(*batch, *y.shape[-2:])
    precision = torch.finfo(y.dtype).eps
    tolerance = precision**0.5 if tolerance is None else tolerance
    spread = (leaders - leaders.mean(-2, keepdim=True)).abs().amax((-2, -1), keepdim=True)
    enough = tolerance * spread + 16 * precision * y.abs().amax(-1, keepdim=True)

    _newton(step_map, epsilon, leaders, leaders)  # refuses a map that folds at a leader
    # The columns of a point: the best x so far, the step to try next, its residual, log|det|.
    best = torch.cat([y if start is None else start.expand_as(y), torch.zeros_like(y)], -1)
    best = torch.cat([best, torch.full_like(enough, torch.inf), torch.zeros_like(enough)], -1)
    rows = torch.arange(y.shape[-2], device=y.device).expand(y.shape[:-1])
    for _ in range(max_iterations):
        old, goal, small = (_take(t, rows) for t in (best, y, enough))
        x, step, residual, _ = old.split([d, d, 1, 1], -1)
        new = _newton(step_map, epsilon, x + step, goal)
        halved = torch.cat([x, step / 2, old[..., 2 * d :]], -1)
        new = torch.where(new[..., 2 * d, None] < residual, new, halved)  # NaN is no improvement
        new = torch.where(residual > small, new, old)  # rows filled up with points already done
        best = best.scatter(-2, rows.unsqueeze(-1).expand_as(new), new)
        left = (best[..., 2 * d, None] > enough).squeeze(-1)
        most = int(left.sum(-1).max())
        if most == 0:
            return best[..., :d] + best[..., d : 2 * d], best[..., -1]
        rows = left.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)[..., :most]
    raise NotInvertibleError(
        f"no inverse found at {int(left.sum())} of {left.numel()} points by {max_iterations} "
        "Newton steps; use a smaller step size"
    )


def _newton(step_map: StepMap, epsilon: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return x, Newton's step towards T(x) = y, max|T(x) - y| and log|det ∇T(x)| as columns."""
    phi, jacobian = step_map.kernel.field(x, step_map.leaders, step_map.scores, "full")
    assert jacobian is not None
    a = epsilon[..., None, None, None] * jacobian
    a.diagonal(dim1=-2, dim2=-1).add_(1)
    missing = y - x - epsilon[..., None, None] * phi
    step, sign, log_abs_det = _solve(a, missing)
    folds = int(((sign <= 0) & ~log_abs_det.isnan()).sum())
    if folds:
        raise NotInvertibleError(
            f"the map is not one-to-one: det ∇T is not positive at {folds} of the {sign.numel()} "
            "points or leaders looked at; use a smaller step size"
        )
    residual = missing.abs().amax(-1, keepdim=True)
    return torch.cat([x, step, residual, log_abs_det.unsqueeze(-1)], -1)


def _solve(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a⁻¹b, sign and log|det a|; closed forms for d ≤ 2, which are faster than LAPACK."""
    if a.shape[-1] > 2:
        sign, log_abs_det = torch.linalg.slogdet(a)
        return torch.linalg.solve_ex(a, b.unsqueeze(-1))[0].squeeze(-1), sign, log_abs_det
    det, cofactors = a[..., 0, 0], b
    if a.shape[-1] == 2:
        det = det * a[..., 1, 1] - a[..., 0, 1] * a[..., 1, 0]
        # a⁻¹b det a, by Cramer's rule
        swapped = torch.stack([a[..., 1, 1], a[..., 0, 0]], -1) * b
        cofactors = swapped - torch.stack([a[..., 0, 1], a[..., 1, 0]], -1) * b.flip(-1)
    return cofactors / det.unsqueeze(-1), det.sign(), det.abs().log()


def _take(t: Tensor, rows: Tensor) -> Tensor:
    """Return rows ``(*batch, k)`` of t ``(*batch, n, c)``."""
    return t.gather(-2, rows.unsqueeze(-1).expand(*rows.shape, t.shape[-1]))
