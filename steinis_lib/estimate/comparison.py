"""Models beside each other: Bayes factors and posterior probabilities from log Z."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from steinis_lib.core.generators import fork, resume
from steinis_lib.estimate.evidence import Evidence
from steinis_lib.estimate.text import table

Model = Evidence | Callable[[torch.Generator], Evidence]
"""What was found for a model, or a function that finds it with a generator of its own."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """Models by their evidence; it prints as a table, the best model first.

    Errors of different models are taken to be independent.

    Parameters
    ----------
    models
        Name → what was found.
    prior
        Name → prior probability.
    """

    models: Mapping[str, Evidence]
    prior: Mapping[str, float]

    def log_bayes_factor(self, model: str, against: str) -> tuple[float, float]:
        """Return log Z of a model less that of another one, and its standard error.

        Raises
        ------
        KeyError
            If there is no such model.
        """
        a, b = self._named(model), self._named(against)
        if model == against:
            return 0.0, 0.0
        return a.log_z - b.log_z, math.hypot(a.log_z_se, b.log_z_se)

    @property
    def probabilities(self) -> dict[str, float]:
        """Posterior probabilities of the models, which sum to 1."""
        return dict(zip(self.models, self._shares().tolist(), strict=True))

    @property
    def probability_errors(self) -> dict[str, float]:
        """Standard errors of `probabilities`, by the delta method from all errors of log Z."""
        p = self._shares()
        se = torch.tensor([m.log_z_se for m in self.models.values()], dtype=torch.float64)
        slopes = torch.diag(p) - p.unsqueeze(-1) * p  # ∂p_i / ∂ log Z_j
        errors = (slopes * se).square().sum(-1).sqrt()
        return dict(zip(self.models, errors.tolist(), strict=True))

    @property
    def best(self) -> str:
        """The model with the largest posterior probability."""
        return max(self.probabilities, key=self.probabilities.__getitem__)

    def _shares(self) -> Tensor:
        log_p = [m.log_z + math.log(self.prior[name]) for name, m in self.models.items()]
        return torch.tensor(log_p, dtype=torch.float64).softmax(0)

    def _named(self, name: str) -> Evidence:
        if name not in self.models:
            raise KeyError(f"there is no model {name!r}; there are {', '.join(self.models)}")
        return self.models[name]

    def __str__(self) -> str:
        p, errors, best = self.probabilities, self.probability_errors, self.best
        rows = []
        for name in sorted(p, key=p.__getitem__, reverse=True):
            found = self.models[name]
            factor, se = self.log_bayes_factor(name, best)
            rows.append(
                [
                    name,
                    f"{found.log_z:.3f} ± {found.log_z_se:.3f}",
                    "0" if name == best else f"{factor:.3f} ± {se:.3f}",
                    f"{p[name]:.4f} ± {errors[name]:.4f}",
                    found.verdict,
                ]
            )
        header = ["model", "log Z", "log factor", "probability", "verdict"]
        return f"{table(header, rows)}\nlog factor: log Bayes factor against {best}"

    __repr__ = __str__


def compare(
    models: Mapping[str, Model],
    prior: Mapping[str, float] | None = None,
    *,
    generator: torch.Generator | None = None,
) -> Comparison:
    """Compare models of the same data by log Z.

    Give each estimate a generator with a seed of its own, so that errors are independent; functions
    get one from here.

    Parameters
    ----------
    models
        Name → `Evidence`, or a function that takes a generator and returns `Evidence`, such as
        ``lambda g: estimate_log_z(log_prob, 3, generator=g)``.
    prior
        Name → prior weight, up to a common factor. Default: all alike.
    generator
        Seeds those of functions. Default: a new one, seeded with 0.

    Raises
    ------
    ValueError, TypeError
        If there is no model, a prior weight is missing or not positive, or a value is neither
        `Evidence` nor a function that returns it.
    """
    if not models:
        raise ValueError("there is no model to compare: pass a mapping from names to Evidence")
    weights = dict.fromkeys(models, 1.0) if prior is None else dict(prior)
    if set(weights) != set(models) or not all(weight > 0 for weight in weights.values()):
        raise ValueError(
            f"prior must have a positive weight for each of {', '.join(models)}; got {weights}"
        )
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    found = {name: _evidence(name, model, generator) for name, model in models.items()}
    total = sum(weights.values())
    return Comparison(found, {name: weight / total for name, weight in weights.items()})


def _evidence(name: str, model: Model, generator: torch.Generator) -> Evidence:
    own = resume(fork(generator), generator.device)
    found = model(own) if callable(model) else model
    if not isinstance(found, Evidence):
        raise TypeError(
            f"model {name!r} must be Evidence, or a function of a generator that returns it, such "
            "as lambda g: estimate_log_z(log_prob, dim, generator=g); got a "
            f"{type(found).__name__}"
        )
    return found
