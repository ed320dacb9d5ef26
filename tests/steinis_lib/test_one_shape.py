"""All algorithms have one shape: the same methods, arguments, costs and kinds of state."""

import importlib
import inspect
import pkgutil
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import torch

import steinis_lib
from steinis_lib import (
    SVGD,
    Gaussian,
    ImportanceSample,
    PathIntegration,
    SteinIS,
    StepSize,
    importance_sampling,
    load_state,
    save_state,
)
from steinis_lib.baselines import AIS, HAIS, AdaptiveIS, MixturePMC, linear_schedule
from steinis_lib.companion.problems.rbm import random_rbm
from steinis_lib.companion.sections.s5_likelihood.bidirectional import bidirectional
from steinis_lib.companion.sections.s7_extensions.sobol import sobol_sample
from steinis_lib.estimate.log_z import estimate_log_z
from steinis_lib.extensions import BridgeSampling, GaussianFlow, HeldOutSteinIS, PooledSteinIS
from steinis_lib.targets import FullCovarianceMixture, random_mixture

LENGTH, BATCH = 6, (2, 3)
"""Transitions of each run here, and its batch of problems."""
POSITIONAL, KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
REQUIRED = inspect.Parameter.empty


def gaussian(dim):
    return Gaussian.isotropic(torch.full((dim,), 0.4), 1.5)


def mixture(dim):
    means = torch.tensor([-1.0, 1.5]).unsqueeze(-1).expand(2, dim)
    trils = 1.2 * torch.eye(dim).expand(2, dim, dim)
    return FullCovarianceMixture(torch.tensor([0.4, 0.6]).log(), means, trils)


@dataclass(frozen=True)
class Case:
    """An algorithm, a small instance of it, and what is special about it.

    `sizes` are the defaults of its sizes, None where there is none. `names` are those of state and
    info.
    """

    kind: type
    sizes: dict[str, int | None]
    settings: dict[str, Any]
    result: str | None = None
    q0: Any = gaussian
    finite: bool = False
    names: tuple[str, str] | None = None

    @property
    def state_and_info(self):
        return self.names or (f"{self.kind.__name__}State", f"{self.kind.__name__}Info")

    def make(self, target, dim=2, **settings):
        return self.kind(target, self.q0(dim), **self.settings | settings)


ANNEALED = {"n_particles": 7, "schedule": linear_schedule(LENGTH)}
CASES = {
    "SteinIS": Case(
        SteinIS,
        {"n_leaders": 100, "n_followers": 1000},
        {"n_leaders": 9, "n_followers": 7},
        "importance_sample",
    ),
    "SteinIS, pool": Case(
        SteinIS,
        {"n_leaders": 100, "n_followers": 1000},
        {"n_leaders": 9, "n_followers": 7, "leaders_per_step": 5},
        "importance_sample",
    ),
    "SVGD": Case(SVGD, {"n_particles": 100}, {"n_particles": 9}),
    "PathIntegration": Case(PathIntegration, {"n_particles": 100}, {"n_particles": 9}, "estimate"),
    "AIS": Case(
        AIS,
        {"n_particles": 1000},
        ANNEALED,
        "importance_sample",
        finite=True,
        names=("AnnealedState", "AnnealedInfo"),
    ),
    "HAIS": Case(
        HAIS,
        {"n_particles": 1000},
        ANNEALED | {"n_leapfrog": 3, "refresh": 0.5},
        "importance_sample",
        finite=True,
        names=("HAISState", "AnnealedInfo"),
    ),
    "AdaptiveIS": Case(
        AdaptiveIS,
        {"n_particles": 1},
        {"objective": "variance", "update": "mirror", "step_size": 0.01, "n_particles": 3},
        "estimate",
        mixture,
    ),
    "MixturePMC": Case(MixturePMC, {"n_particles": None}, {"n_particles": 50}, "proposal", mixture),
    "GaussianFlow": Case(GaussianFlow, {"n_leaders": None}, {"n_leaders": 9}, "proposal"),
    "HeldOutSteinIS": Case(
        HeldOutSteinIS,
        {"n_leaders": 1000, "n_followers": 1000, "n_held_out": 500},
        {"n_leaders": 9, "n_followers": 7, "n_held_out": 8, "leaders_per_step": 5},
        "importance_sample",
    ),
    "PooledSteinIS": Case(
        PooledSteinIS,
        {"n_leaders": 10_000, "n_followers": 1000},
        {"n_leaders": 9, "n_followers": 7, "leaders_per_step": 5},
        "importance_sample",
    ),
    "BridgeSampling": Case(
        BridgeSampling,
        {"n_draws": 1000, "n_chains": 100},
        {"n_draws": 11, "n_chains": 5, "n_leapfrog": 3},
        "estimate",
    ),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def parameters(function):
    return {name: p for name, p in inspect.signature(function).parameters.items() if name != "self"}


def same(a, b):
    return all(torch.equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))


def seeded():
    return torch.Generator().manual_seed(7)


def test_a_target_and_q0_come_first_and_all_else_by_keyword(case):
    found = parameters(case.kind)
    assert list(found)[:2] == ["target", "q0"]
    assert all(found[name].kind is POSITIONAL for name in ("target", "q0"))
    assert all(found[name].default is REQUIRED for name in ("target", "q0"))
    assert {p.kind for name, p in found.items() if name not in ("target", "q0")} == {KEYWORD}
    for name, default in case.sizes.items():
        assert found[name].default == (REQUIRED if default is None else default), name
    assert not {"n_samples", "n_steps", "components", "mixture"} & set(found)


def test_methods_have_the_same_arguments(case):
    init = parameters(case.kind.init)
    assert list(init) == ["generator", "batch_shape"]
    assert init["generator"].kind is POSITIONAL
    assert (init["batch_shape"].kind, init["batch_shape"].default) == (KEYWORD, ())

    assert list(parameters(case.kind.step)) == ["state"]

    run = parameters(case.kind.run)
    default = None if case.finite else REQUIRED
    assert list(run) == ["state", "n_transitions", "on_step"]
    assert run["state"].kind is run["n_transitions"].kind is POSITIONAL
    assert run["n_transitions"].default is default
    assert run["on_step"].kind is KEYWORD
    assert run["on_step"].default is None

    cost = parameters(case.kind.n_evaluations)
    assert list(cost) == ["n_transitions"]
    assert cost["n_transitions"].default is default

    for name in {"importance_sample", "proposal", "estimate"} & set(dir(case.kind)):
        first, *others = parameters(getattr(case.kind, name)).values()
        assert first.name == "state"
        assert all(p.kind is KEYWORD for p in others)
    assert case.result is None or case.result in dir(case.kind)


@pytest.mark.slow
def test_states_and_infos_are_frozen_dataclasses_with_the_algorithms_name(case, skewed):
    sampler = case.make(skewed)
    start = sampler.init(seeded(), batch_shape=BATCH)
    state, info = sampler.step(start)
    assert type(start) is type(state)
    assert (type(state).__name__, type(info).__name__) == case.state_and_info
    for thing in (sampler, state, info):
        assert type(thing).__dataclass_params__.frozen
    assert all(isinstance(getattr(state, f.name), torch.Tensor) for f in fields(state))
    if case.kind is not BridgeSampling:  # where the number of visited states tells it
        assert start.transition.dtype == torch.int64
        assert (int(start.transition), int(state.transition)) == (0, 1)
    assert not {"iteration", "log_z"} & set(dir(state))


def test_results_are_of_the_kind_that_their_method_says(case, skewed):
    sampler = case.make(skewed)
    state = sampler.run(sampler.init(seeded(), batch_shape=BATCH), LENGTH)
    if case.result is None:
        return
    result = getattr(sampler, case.result)(state)
    if case.result == "importance_sample":
        assert isinstance(result, ImportanceSample)
        assert result.log_z.shape == BATCH
    elif case.result == "estimate":
        assert type(result).__dataclass_params__.frozen
        assert all(getattr(result, f.name).shape == BATCH for f in fields(result))
        assert "log_z" in [f.name for f in fields(result)]
    else:
        assert result.dim == 2
        assert result.sample((*BATCH, 4), seeded()).shape == (*BATCH, 4, 2)


@pytest.mark.parametrize(
    ("name", "q0", "message"),
    [
        ("AdaptiveIS", gaussian, "q0 must be a FullCovarianceMixture, got a Gaussian"),
        ("MixturePMC", gaussian, "q0 must be a FullCovarianceMixture, got a Gaussian"),
        ("GaussianFlow", mixture, "q0 must be a Gaussian, got a FullCovarianceMixture"),
    ],
)
def test_a_q0_of_another_kind_is_refused(name, q0, message, skewed):
    case = CASES[name]
    with pytest.raises(TypeError, match=message):
        case.kind(skewed, q0(2), **case.settings)


class Counting:
    """A target that counts the particles at which it is asked for anything."""

    dim = 2

    def __init__(self, target):
        self.target, self.n = target, 0

    def _asked(self, name, x):
        self.n += x[..., 0].numel()
        return getattr(self.target, name)(x)

    def log_prob(self, x):
        return self._asked("log_prob", x)

    def score(self, x):
        return self._asked("score", x)

    def log_prob_and_score(self, x):
        return self._asked("log_prob_and_score", x)


@pytest.mark.parametrize("n_transitions", [0, 2, LENGTH])
def test_a_run_costs_what_is_said(case, skewed, n_transitions):
    """From `init` to the result, for each problem of a batch."""
    target = Counting(skewed)
    sampler = case.make(target)
    state = sampler.run(sampler.init(seeded(), batch_shape=BATCH), n_transitions)
    needed = LENGTH if case.finite else int(case.kind in (AdaptiveIS, BridgeSampling))
    if case.result is not None and n_transitions >= needed:
        getattr(sampler, case.result)(state)
    assert target.n == 6 * sampler.n_evaluations(n_transitions)
    if case.finite:
        assert sampler.n_evaluations() == sampler.n_evaluations(LENGTH)


@pytest.mark.parametrize("done", [0, 4])
def test_a_saved_run_goes_on_bit_for_bit(case, skewed, done, tmp_path):
    sampler = case.make(skewed)
    start = sampler.init(seeded(), batch_shape=BATCH)
    whole = sampler.run(start, LENGTH)
    halfway = sampler.run(start, done)
    save_state(halfway, tmp_path / "state")
    torch.rand(7)  # draws elsewhere do not matter
    restored = load_state(type(start), tmp_path / "state")
    assert same(restored, halfway)
    assert same(case.make(skewed).run(restored, LENGTH - done), whole)
    other = sampler.init(torch.Generator().manual_seed(8), batch_shape=BATCH)
    assert not same(sampler.run(other, LENGTH), whole)


def test_a_step_is_a_function_of_the_state_and_leaves_it_alone(case, skewed):
    sampler = case.make(skewed)
    state = sampler.run(sampler.init(seeded(), batch_shape=BATCH), 2)
    before = {f.name: getattr(state, f.name).clone() for f in fields(state)}
    first, second = sampler.step(state)[0], sampler.step(state)[0]
    assert same(first, second)
    assert all(torch.equal(value, getattr(state, name)) for name, value in before.items())


def test_a_run_is_its_steps_and_shows_each(case, skewed):
    sampler = case.make(skewed)
    state = start = sampler.init(seeded())
    seen = []
    end = sampler.run(start, 3, on_step=lambda state, info: seen.append((state, info)))
    for shown, info in seen:
        state, expected = sampler.step(state)
        assert same(shown, state)
        assert type(info) is type(expected)
    assert len(seen) == 3
    assert same(end, state)
    assert sampler.run(start, 0) is start


def test_a_negative_number_of_transitions_is_refused(case, skewed):
    sampler = case.make(skewed)
    with pytest.raises(ValueError, match="-1"):
        sampler.run(sampler.init(seeded()), -1)


def test_a_q0_of_another_dimension_is_refused(case, skewed):
    with pytest.raises(ValueError, match="q0 has d=3, but the target has d=2"):
        case.make(skewed, dim=3)


@pytest.mark.parametrize("name", ["SteinIS", "SVGD", "PathIntegration", "AdaptiveIS"])
def test_a_step_is_a_number_or_a_schedule(skewed, name):
    ends = []
    for step_size in (0.01, StepSize(0.01), StepSize(0.01, 1.0)):
        sampler = CASES[name].make(skewed, step_size=step_size)
        ends.append(sampler.run(sampler.init(seeded()), 3))
    assert same(ends[0], ends[1])
    assert not same(ends[0], ends[2])


@pytest.mark.parametrize(
    "name", [name for name in CASES if "step_size" in parameters(CASES[name].kind)]
)
def test_a_step_that_is_not_positive_is_refused(skewed, name):
    with pytest.raises(ValueError, match="step_size must be positive and finite, got -0.1"):
        CASES[name].make(skewed, step_size=-0.1)


@pytest.mark.parametrize(
    "function",
    [Gaussian.sample, random_mixture, random_rbm, importance_sampling, bidirectional, sobol_sample],
)
def test_a_generator_is_the_last_argument_that_is_required(function):
    """What comes after it goes by keyword."""
    found = parameters(function)
    at = list(found).index("generator")
    before, after = list(found.values())[: at + 1], list(found.values())[at + 1 :]
    assert all(p.kind is POSITIONAL for p in before)
    assert all(p.default is REQUIRED for p in before)
    assert all(p.kind is KEYWORD for p in after)


def test_estimate_log_z_takes_a_density_and_its_dimension():
    found = parameters(estimate_log_z)
    assert list(found)[:5] == ["log_prob", "dim", "q0", "n_samples", "generator"]
    assert [p.kind for p in found.values()] == [POSITIONAL] * 2 + [KEYWORD] * (len(found) - 2)
    assert [p.default for p in found.values()][:5] == [REQUIRED, None, None, 4000, None]


PACKAGES = ["steinis_lib"] + [
    f"steinis_lib.{name}" for name in ("targets", "stein", "baselines", "extensions")
]


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_distinct_and_documented(package):
    module = importlib.import_module(package)
    names = module.__all__
    assert len({name.lower() for name in names}) == len(names)
    assert not any(name.startswith("_") for name in names)
    submodules = {m.name for m in pkgutil.iter_modules([str(Path(module.__file__).parent)])}
    assert not submodules & set(names)
    for name in names:
        thing = getattr(module, name)
        assert inspect.getdoc(thing), name
        assert thing.__module__.startswith("steinis_lib."), name


def test_each_package_exports_its_algorithms_with_state_and_info():
    for case in CASES.values():
        package = importlib.import_module(case.kind.__module__.rpartition(".")[0])
        if package is steinis_lib:
            assert case.kind.__name__ in package.__all__
            continue
        assert {case.kind.__name__, *case.state_and_info} <= set(package.__all__)


def test_the_root_has_few_names_and_core_has_none():
    assert len(steinis_lib.__all__) <= 25
    assert not hasattr(importlib.import_module("steinis_lib.core"), "__all__")
