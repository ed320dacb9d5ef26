"""The methods that the sections compare: their settings, and how a sampler is built.

A method has the same axes of settings in all sections, and `tuning` searches them in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import xarray as xr
from torch import Tensor

from steinis_lib.baselines.ais import AIS, Langevin
from steinis_lib.baselines.geometric_path import linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.companion.adagrad import AdaGradSteinIS
from steinis_lib.companion.diverging import LossyRun
from steinis_lib.companion.leaders_weighed import LeadersWeighed
from steinis_lib.importance import ImportanceSample, importance_sampling
from steinis_lib.schedules import StepSize
from steinis_lib.stein.kernels import RBF
from steinis_lib.stein.maps import Determinant
from steinis_lib.steinis import SteinIS, SteinISInfo, SteinISState
from steinis_lib.targets.base import Proposal, ScoredProposal, Target

Sampler = SteinIS | AIS | HAIS

FAMILIES = ("steinis", "steinis-double", "steinis-wide", "steinis-adagrad")
"""SteinIS with the bandwidth rule as printed, with twice it, with a tuned multiple of it, and with
a tuned multiple and steps by AdaGrad."""
TUNED = (*FAMILIES, "steinis-leaders", "hais-1l", "hais-1l-partial", "hais-10l", "ais")
"""The tuned methods of sections 4 and 5. "steinis-leaders" is no valid estimate: a reading."""
METHODS = ("is", *TUNED, "ais-unadjusted")
"""All methods of sections 4 and 5."""


@dataclass(frozen=True)
class Setting:
    """One candidate of the tuning. What a method does not have is None.

    Parameters
    ----------
    alpha, beta
        Of SteinIS's steps α(1 + ℓ)^-β; α is also the leapfrog step of HAIS and the ε of AIS.
    multiplier
        Of the paper's bandwidth.
    refresh
        γ of HAIS.
    """

    alpha: float
    beta: float | None = None
    multiplier: float | None = None
    refresh: float | None = None


@dataclass(frozen=True)
class Axis:
    """A setting that is searched: the values of the first grid, and how to go on beyond them.

    Values form a lattice: place k has the first value times (or plus k times) the step k times.

    Parameters
    ----------
    name
        A field of `Setting`.
    start
        The values of the first grid, rising.
    step
        The next value beyond an end is `step` times the last (if additive: plus).
    additive
        Values are a step apart, not a factor.
    low, high
        Natural limits. A step beyond one of them ends at it.

    Raises
    ------
    ValueError
        If the values do not rise within the limits, or the step leads nowhere.
    """

    name: str
    start: tuple[float, ...]
    step: float
    additive: bool = False
    low: float = 0.0
    high: float = math.inf

    def __post_init__(self) -> None:
        inside = all(self.low <= value <= self.high for value in self.start)
        if not self.start or list(self.start) != sorted(set(self.start)) or not inside:
            raise ValueError(
                f"axis {self.name}: start must rise within {self.low} to {self.high}, "
                f"got {self.start}"
            )
        if not (self.step > 0 if self.additive else self.step > 1 and self.start[0] > 0):
            raise ValueError(
                f"axis {self.name}: expected a step above 0 if additive, or above 1 and positive "
                f"values if not, got step {self.step} from {self.start[0]}"
            )

    @property
    def fixed(self) -> bool:
        """Whether there is only one value, so that nothing is searched."""
        return self.low == self.high

    @property
    def places(self) -> tuple[float, ...]:
        """The places of the first grid."""
        first = self.start[0]
        if self.additive:
            return tuple((value - first) / self.step for value in self.start)
        return tuple(math.log(value / first) / math.log(self.step) for value in self.start)

    def at(self, place: float) -> float:
        """Return the value at a place, within the limits, to 6 significant digits."""
        first = self.start[0]
        value = first + self.step * place if self.additive else first * self.step**place
        return float(f"{min(max(value, self.low), self.high):.6g}")

    def steps_between(self, a: float, b: float) -> float:
        """Return how many steps apart two values are."""
        return (
            abs(a - b) / self.step if self.additive else abs(math.log(a / b) / math.log(self.step))
        )


MULTIPLIERS = {"steinis-double": 2.0}
"""Multipliers of the bandwidth that a method's name stands for, where that is not 1."""


def axes_of(method: str, smallest_step: float = 0.05) -> tuple[Axis, ...]:
    """Return the axes that are searched for a method, the same in all sections.

    Parameters
    ----------
    method
        A name of `FAMILIES`, "steinis-leaders", or a name that begins with "hais" (partial refresh
        if it ends in "partial") or is "ais".
    smallest_step
        The smallest leapfrog step ε of the first grid. AIS takes the Langevin step ε²/2 that HAIS
        at ε amounts to; the first α of SteinIS is twice `smallest_step`.

    Raises
    ------
    ValueError
        If there is no such method.
    """
    e = smallest_step
    alphas = tuple(_clean(e * factor) for factor in (2.0, 20.0, 200.0))
    beta = Axis("beta", (0.0, 0.3, 0.6), 0.3, additive=True, high=1.0)
    if method == "steinis-wide":
        wide = Axis("multiplier", (5.0, 20.0), 2.0)
        return (
            Axis("alpha", alphas[:2], 10**0.5),
            Axis("beta", (0.0, 0.6), 0.3, True, 0.0, 1.0),
            wide,
        )
    if method == "steinis-adagrad":
        return Axis("alpha", alphas, 10**0.5), Axis("multiplier", (1.0, 8.0), 2.0)
    if method in ("steinis", "steinis-double", "steinis-leaders"):
        m = MULTIPLIERS.get(method, 1.0)
        return Axis("alpha", alphas, 10**0.5), beta, Axis("multiplier", (m,), 2.0, low=m, high=m)
    if method == "ais":
        return (Axis("alpha", tuple(_clean(e**2 / 2 * 4.0**i) for i in range(6)), 4.0),)
    if method.startswith("hais") and method.endswith("partial"):
        steps = tuple(_clean(e * 4.0**i) for i in range(3))
        return Axis("alpha", steps, 2.0), Axis("refresh", (0.125, 0.5), 2.0, high=1.0)
    if method.startswith("hais"):
        return (Axis("alpha", tuple(_clean(e * 2.0**i) for i in range(6)), 2.0),)
    raise ValueError(
        f"there are no axes for {method!r}: expected one of {', '.join(TUNED)}, or a name that "
        "begins with 'hais'"
    )


def _clean(value: float) -> float:
    """Return a value to 6 significant digits, as in `Axis.at`."""
    return float(f"{value:.6g}")


def tuned_as(method: str) -> str:
    """Return the method whose setting this one takes: unadjusted AIS takes that of unbiased AIS."""
    return "ais" if method == "ais-unadjusted" else method


def build_sampler(
    method: str,
    target: Target,
    q0: ScoredProposal,
    setting: Setting,
    n_transitions: int,
    *,
    n_leaders: int,
    n_followers: int,
    determinant: Determinant = "exact",
) -> Sampler:
    """Return the sampler that a method's name stands for.

    Parameters
    ----------
    method
        "steinis…": see `build_steinis`. "hais…": HAIS, with ten leapfrog steps if the name ends
        in "10l". "ais-unadjusted": AIS with plain weights. Any other: AIS with weights that are
        ratios of kernels.
    n_transitions
        The length of the linear schedule of AIS and HAIS; SteinIS has none.
    n_leaders, determinant
        Of SteinIS.
    n_followers
        The weighted particles of each method.
    """
    if method.startswith("steinis"):
        return build_steinis(
            target, q0, setting, method=method, n_leaders=n_leaders, n_followers=n_followers,
            determinant=determinant,
        )  # fmt: skip
    schedule = linear_schedule(n_transitions)
    if method.startswith("hais"):
        return HAIS(
            target, q0, schedule=schedule, step_size=setting.alpha, n_particles=n_followers,
            n_leapfrog=10 if method.endswith("10l") else 1, refresh=setting.refresh or 1.0,
        )  # fmt: skip
    langevin: Langevin = "unadjusted" if method == "ais-unadjusted" else "kernel-ratio"
    return AIS(
        target, q0, schedule=schedule, step_size=setting.alpha, n_particles=n_followers,
        langevin=langevin,
    )  # fmt: skip


def build_steinis(
    target: Target,
    q0: Proposal,
    setting: Setting,
    *,
    method: str = "steinis",
    n_leaders: int,
    n_followers: int,
    determinant: Determinant = "exact",
) -> SteinIS:
    """Return SteinIS with the bandwidth rule times a multiplier.

    Parameters
    ----------
    setting
        Without a multiplier, it is that of `MULTIPLIERS`, or 1.
    method
        "steinis-adagrad": steps by AdaGrad, without β. "steinis-leaders": leaders are followers
        too, so that `n_followers` has no meaning. Any other: Algorithm 1.
    """
    kernel = RBF(multiplier=setting.multiplier or MULTIPLIERS.get(method, 1.0))
    if method == "steinis-adagrad":
        return AdaGradSteinIS(
            target, q0, kernel=kernel, step_size=setting.alpha, determinant=determinant,
            n_leaders=n_leaders, n_followers=n_followers,
        )  # fmt: skip
    leaders_weighed = method == "steinis-leaders"
    cls = LeadersWeighed if leaders_weighed else SteinIS
    return cls(
        target, q0, kernel=kernel, step_size=StepSize(setting.alpha, setting.beta or 0.0),
        determinant=determinant, n_leaders=n_leaders,
        n_followers=n_leaders if leaders_weighed else n_followers,
    )  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """The estimate of a method after some transitions.

    Parameters
    ----------
    n_transitions
        The transitions taken; 0 for plain importance sampling.
    sample
        The weighted particles.
    n_evaluations
        Particles of one problem at which p̄ or its score was asked for, in a run up to here.
    steinis
        For SteinIS: the state before the last transition, the state after it, and its info.
    lost
        For SteinIS: the problems whose runs diverged and so have no estimate, ``(*batch,)``.
    """

    n_transitions: int
    sample: ImportanceSample
    n_evaluations: int
    steinis: tuple[SteinISState, SteinISState, SteinISInfo] | None = None
    lost: Tensor | None = None

    def or_nothing(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return values of problems, each ``(*batch,)``, with those of lost problems replaced.

        An estimate in logs becomes -inf, the ESS 0, k̂ infinite, and any other number NaN, but for
        integers, which count what happened until then.
        """
        if self.lost is None:
            return dict(values)
        nothing = dict.fromkeys(("log_z", "error", "mean_log_w"), -math.inf)
        nothing |= {"ess": 0.0, "pareto_k": math.inf}
        return {
            name: value.masked_fill(self.lost, nothing.get(name, math.nan))
            if value.is_floating_point()
            else value
            for name, value in values.items()
        }


def readings(
    method: str,
    target: Target,
    q0: ScoredProposal,
    setting: Setting | None,
    transitions: Sequence[int],
    generator: torch.Generator,
    *,
    batch_shape: tuple[int, ...],
    n_leaders: int,
    n_followers: int,
    determinant: Determinant = "exact",
) -> Iterator[Reading]:
    """Run a method, and read off its estimate after each number of transitions.

    SteinIS is run once. HAIS and AIS are run once for each number, with a schedule of that length.
    "is" is plain importance sampling; it has no transitions and one reading.

    Parameters
    ----------
    method
        "is", or a name that `build_sampler` knows.
    setting
        None for "is".
    transitions
        Rising numbers.
    batch_shape
        That of the problems.
    n_leaders, n_followers, determinant
        As for `build_sampler`.

    Raises
    ------
    ValueError
        If a method other than "is" has no setting.
    """
    if method == "is":
        sample = importance_sampling(target, q0, (*batch_shape, n_followers), generator)
        yield Reading(0, sample, n_followers)
        return
    if setting is None:
        raise ValueError(f"{method} needs a setting; only 'is' goes without")
    if method.startswith("steinis"):
        steinis = build_steinis(
            target, q0, setting, method=method, n_leaders=n_leaders, n_followers=n_followers,
            determinant=determinant,
        )  # fmt: skip
        run = LossyRun(steinis, steinis.init(generator, batch_shape=batch_shape))
        for k in transitions:
            run.advance(k - 1)
            before, info = run.step()
            sample = run.importance_sample()
            yield Reading(k, sample, steinis.n_evaluations(k), (before, run.state, info), run.lost)
        return
    for k in transitions:
        chain: Any = build_sampler(
            method, target, q0, setting, k, n_leaders=n_leaders, n_followers=n_followers
        )  # AIS or HAIS, each with a state of its own
        end = chain.run(chain.init(generator, batch_shape=batch_shape))
        yield Reading(k, chain.importance_sample(end), chain.n_evaluations(k))


def along_transitions(found: Mapping[int, Mapping[str, Tensor]]) -> xr.Dataset:
    """Return values by number of transitions and by name, each ``(trials,)``, as a dataset.

    Its variables are ``(trial, transitions)``.
    """
    names = next(iter(found.values()))
    return xr.Dataset(
        {
            name: (
                ("trial", "transitions"),
                torch.stack([values[name] for values in found.values()], -1).numpy(),
            )
            for name in names
        },
        coords={"transitions": list(found)},
    )
