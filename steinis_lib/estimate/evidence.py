"""What `estimate_log_z` returns: an estimate of log Z, draws, and reasons to doubt them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from steinis_lib.core.optional import needs
from steinis_lib.core.resampling import systematic
from steinis_lib.estimate.constraints import Parameters
from steinis_lib.estimate.doubts import Doubt, Verdict, verdict
from steinis_lib.estimate.summary import Summary, summarise
from steinis_lib.estimate.text import hanging, pairs
from steinis_lib.importance import ImportanceSample

if TYPE_CHECKING:
    from arviz import InferenceData


@dataclass(frozen=True, repr=False)
class Evidence:
    """What `estimate_log_z` found; it prints as a short table.

    Parameters
    ----------
    sample
        The weighted particles of both runs, ``(n, d)``, as many of each, one run after the other.
        With parameters, they are the unconstrained coordinates; `draws` has the parameters.
    log_z_runs
        log Ẑ of the two runs, ``(2,)``.
    doubts
        Reasons not to trust the result; empty if none was seen.
    route
        How the draws were proposed: "mixture"; or "map", a mixture behind a triangular map. If the
        search was stopped, the stage that it was in.
    n_evaluations
        The number of particles at which the density was evaluated, with or without a gradient.
    n_invalid
        At how many of them log_prob was "nan", raised an "exception", or was "-inf" or "+inf", and
        at how many its "gradient" was not finite where the value was. Kinds that did not occur are
        left out.
    parameters
        The parameters that were named, if any.
    """

    sample: ImportanceSample
    log_z_runs: Tensor
    doubts: tuple[Doubt, ...]
    route: tuple[str, ...]
    n_evaluations: int
    n_invalid: Mapping[str, int] = field(default_factory=dict)
    parameters: Parameters | None = None

    @property
    def log_z(self) -> float:
        """log Ẑ; Ẑ is unbiased."""
        return float(self.sample.log_z)

    @property
    def log_z_se(self) -> float:
        """Standard error of log Ẑ; see `ImportanceSample.log_z_se` for when it is too small."""
        return float(self.sample.log_z_se)

    @property
    def verdict(self) -> Verdict:
        """ "trusted" without a doubt, "failed" if a doubt is fatal, else "doubtful"."""
        return verdict(self.doubts)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The messages of `doubts`."""
        return tuple(doubt.message for doubt in self.doubts)

    @property
    def ess(self) -> float:
        """Effective sample size of the weights."""
        return float(self.sample.ess)

    @property
    def pareto_k(self) -> float:
        """Pareto-k̂ of all weights; if it is above 0.7, do not trust the other numbers."""
        return float(self.sample.pareto_k)

    @property
    def draws(self) -> dict[str, Tensor]:
        """Weighted draws by name, ``(n, *shape)``; without parameters, ``(n, d)`` as "x"."""
        if self.parameters is None:
            return {"x": self.sample.particles}
        return self.parameters.constrain(self.sample.particles)[0]

    def expectation(self, f: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
        """Return E_p[f] and its standard error.

        f maps all draws at once, ``(n, d)``, or with parameters a dict of tensors ``(n, *shape)``,
        to ``(n, k)`` or ``(n,)``. Both results are ``(k,)`` or numbers.
        """
        values = f(self.sample.particles if self.parameters is None else self.draws)
        single = values.ndim == 1
        column = values.unsqueeze(-1) if single else values
        mean, error = self.sample.expectation(lambda _: column)
        return (mean[0], error[0]) if single else (mean, error)

    def summary(self) -> Summary:
        """Return mean, standard error, standard deviation and quantiles of each parameter."""
        flat = torch.cat([value.reshape(self.sample.n, -1) for value in self.draws.values()], -1)
        if self.parameters is None:
            labels = [f"x[{i}]" for i in range(flat.shape[-1])]
        else:
            labels = self.parameters.labels()
        return summarise(labels, flat, self.sample.log_w)

    def to_arviz(self) -> InferenceData:
        """Return draws of p for ArviZ: each run resampled by its weights to one chain.

        `posterior` has the parameters by name, ``(2, n/2, *shape)``, or without parameters x,
        ``(2, n/2, d)``. Particles of large weight repeat, one after the other. `sample_stats` has
        their log-weights before resampling, and `log_z`, `log_z_se`, `ess` and `pareto_k` as
        attributes. Standard errors from ArviZ ignore the weights; those of `expectation` do not.

        Raises
        ------
        ImportError
            If ArviZ is not installed.
        """
        arviz = needs("arviz", "Evidence.to_arviz", "arviz")

        half = self.sample.n // 2
        log_w = self.sample.log_w.reshape(2, half)
        chosen = systematic(log_w, half, None)
        flat = (chosen + half * torch.arange(2, device=chosen.device).unsqueeze(-1)).flatten()

        def chains(value: Tensor) -> Any:
            return value[flat].reshape(2, half, *value.shape[1:]).cpu().numpy()

        return arviz.from_dict(
            posterior={name: chains(value) for name, value in self.draws.items()},
            sample_stats={"log_weight": chains(self.sample.log_w)},
            sample_stats_attrs={
                "log_z": self.log_z,
                "log_z_se": self.log_z_se,
                "ess": self.ess,
                "pareto_k": self.pareto_k,
            },
        )

    def __str__(self) -> str:
        n = self.sample.n
        rows = [
            ("log Z", f"{self.log_z:.4f} ± {self.log_z_se:.4f}"),
            ("verdict", self.verdict),
            ("ESS", f"{self.ess:.0f} of {n} draws ({self.ess / n:.0%})"),
            ("Pareto-k", f"{self.pareto_k:.2f}"),
            ("evaluations", f"{self.n_evaluations:,}"),
        ]
        if self.n_invalid:
            counts = ", ".join(f"{kind} {count:,}" for kind, count in self.n_invalid.items())
            rows.append(("no value at", counts))
        rows.append(("doubts", str(len(self.doubts) or "none")))
        told = [hanging("  - ", f"{doubt.cause}: {doubt.message}") for doubt in self.doubts]
        return "\n".join([pairs(rows), *told])

    __repr__ = __str__
