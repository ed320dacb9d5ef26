"""Named parameters with constraints, and their coordinates u in R^d.

A parameter is real, positive, in an interval, a simplex, ordered, or the Cholesky factor of a
correlation matrix. `Parameters` cuts a point u into pieces, and transforms each by PyTorch's
`biject_to`, which also gives the log of the Jacobian determinant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import biject_to, constraints
from torch.distributions.constraints import Constraint
from torch.distributions.transforms import Transform


class OrderedTransform(Transform):
    """u ↦ (u₁, u₁ + e^u₂, u₁ + e^u₂ + e^u₃, …), which rises."""

    domain = constraints.real_vector
    codomain = constraints.real_vector
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        return torch.cat([x[..., :1], x[..., 1:].exp()], -1).cumsum(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return torch.cat([y[..., :1], y.diff(dim=-1).log()], -1)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the sum of u₂, u₃, …."""
        return x[..., 1:].sum(-1)


KINDS: dict[str, Constraint] = {
    "real": constraints.real,
    "positive": constraints.positive,
    "unit interval": constraints.unit_interval,
    "simplex": constraints.simplex,
    "correlation": constraints.corr_cholesky,
}
"""Constraints by name; "ordered" has a transform of its own, since PyTorch has none."""
NEEDS_SHAPE = ("simplex", "ordered", "correlation")
NAMES = ", ".join(f'"{name}"' for name in (*KINDS, "ordered"))
EXPECTED = (
    f"expected one of {NAMES}, a pair of bounds such as (0, 10) or (0, math.inf), a constraint of "
    'torch.distributions, or a pair of one of these and a shape, such as ("positive", 3)'
)


@dataclass(frozen=True)
class _Part:
    """A parameter: the shapes of its value and of its piece of u, and the way between them."""

    shape: torch.Size
    free_shape: torch.Size
    transform: Transform


class Parameters:
    """Parameters by name, and their coordinates u ``(*batch, d)``.

    Parameters
    ----------
    spec
        Name → constraint; see `estimate_log_z`.

    Raises
    ------
    ValueError
        If a constraint is none that is known, or lacks its shape.
    """

    def __init__(self, spec: Mapping[str, object]) -> None:
        if not spec:
            raise ValueError('parameters is empty: name each one, as in {"sigma": "positive"}')
        self._parts = {name: _part(name, wanted) for name, wanted in spec.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(self._parts)

    @property
    def dim(self) -> int:
        """The dimension d of u."""
        return sum(part.free_shape.numel() for part in self._parts.values())

    def constrain(self, u: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Return values ``(*batch, *shape)`` by name, and log |det J| ``(*batch,)``, of u."""
        batch = u.shape[:-1]
        log_det = u.new_zeros(batch)
        values = {}
        pieces = u.split([part.free_shape.numel() for part in self._parts.values()], -1)
        for (name, part), piece in zip(self._parts.items(), pieces, strict=True):
            free = piece.reshape(batch + part.free_shape)
            values[name] = part.transform(free)
            terms = part.transform.log_abs_det_jacobian(free, values[name])
            log_det = log_det + terms.reshape(*batch, -1).sum(-1)
        return values, log_det

    def unconstrain(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return u ``(n, d)`` of values ``(n, *shape)``.

        Raises
        ------
        ValueError
            If a name is missing or unknown, a shape is wrong, or a value outside its constraint.
        """
        self.check_names(values)
        pieces = []
        for name, part in self._parts.items():
            value = values[name]
            if value.shape[1:] != part.shape:
                raise ValueError(
                    f"{name} must have the shape (n, {', '.join(map(str, part.shape))}), got "
                    f"{tuple(value.shape)}"
                )
            piece = part.transform.inv(value)
            if not bool(torch.isfinite(piece).all()):
                raise ValueError(f"{name} has values at or beyond the bounds of its constraint")
            pieces.append(piece.reshape(len(value), -1))
        return torch.cat(pieces, -1)

    def check_names(self, given: Iterable[str]) -> None:
        """Refuse names that are not exactly those of the parameters."""
        if set(given) != set(self.names):
            raise ValueError(f"expected the names {', '.join(self.names)}, got {', '.join(given)}")

    def name_at(self, i: int) -> str:
        """Return the name of the parameter that the coordinate u_i belongs to."""
        owners = [name for name, p in self._parts.items() for _ in range(p.free_shape.numel())]
        return owners[i]

    def labels(self) -> list[str]:
        """Return the name of each number of each parameter: "sigma", "mix[0]", "corr[0,1]"."""
        return [
            f"{name}[{','.join(map(str, index))}]" if index else name
            for name, part in self._parts.items()
            for index in _indices(part.shape)
        ]


def _indices(shape: torch.Size) -> list[tuple[int, ...]]:
    grid = torch.ones(shape).nonzero() if shape else torch.zeros(1, 0, dtype=torch.long)
    return [tuple(row) for row in grid.tolist()]


def _part(name: str, wanted: object) -> _Part:
    """Return what a constraint, or a pair of a constraint and a shape, asks for."""
    given: object = None
    if isinstance(wanted, tuple) and len(wanted) == 2 and not _is_bounds(wanted):
        wanted, given = wanted
    shape = _shape(name, wanted, given)
    transform = OrderedTransform() if wanted == "ordered" else biject_to(_constraint(name, wanted))
    if len(shape) < transform.codomain.event_dim:
        raise ValueError(f"parameters[{name!r}] needs a shape: {EXPECTED}")
    return _Part(shape, torch.Size(transform.inverse_shape(shape)), transform)


def _constraint(name: str, wanted: object) -> Constraint:
    if isinstance(wanted, Constraint):
        return wanted
    if isinstance(wanted, str) and wanted in KINDS:
        return KINDS[wanted]
    if isinstance(wanted, tuple) and _is_bounds(wanted):
        low, high = map(float, wanted)
        if not low < high:
            raise ValueError(f"parameters[{name!r}]: {low} is not below {high}")
        if math.isinf(low) and math.isinf(high):
            return constraints.real
        if math.isinf(high):
            return constraints.greater_than(low)
        return constraints.less_than(high) if math.isinf(low) else constraints.interval(low, high)
    raise ValueError(f"parameters[{name!r}] is {wanted!r}: {EXPECTED}")


def _shape(name: str, wanted: object, given: object) -> torch.Size:
    """Return the shape of a value; a number K is (K,), or (K, K) for a correlation matrix."""
    if given is None:
        if wanted in NEEDS_SHAPE:
            raise ValueError(f'parameters[{name!r}] needs a size: write ("{wanted}", 3)')
        return torch.Size()
    if isinstance(given, int):
        return torch.Size((given, given) if wanted == "correlation" else (given,))
    if isinstance(given, tuple) and all(isinstance(size, int) for size in given):
        return torch.Size(given)
    raise ValueError(f"parameters[{name!r}] has the shape {given!r}: {EXPECTED}")


def _is_bounds(wanted: tuple[object, ...]) -> bool:
    return len(wanted) == 2 and all(
        isinstance(bound, int | float) and not isinstance(bound, bool) for bound in wanted
    )
