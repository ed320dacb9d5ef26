"""The samplers that the sections compare, built from a method's name and its setting."""

from __future__ import annotations

from steinis_lib.baselines.ais import AIS, Langevin
from steinis_lib.baselines.geometric_path import linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.companion.adagrad import AdaGradSteinIS
from steinis_lib.companion.leaders_weighed import LeadersWeighed
from steinis_lib.companion.settings import MULTIPLIERS, Setting
from steinis_lib.schedules import StepSize
from steinis_lib.stein.kernels import RBF
from steinis_lib.stein.maps import Determinant
from steinis_lib.steinis import SteinIS
from steinis_lib.targets.base import Proposal, ScoredProposal, Target

Sampler = SteinIS | AIS | HAIS


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
