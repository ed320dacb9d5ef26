import math
import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steinis_lib.companion.parameters import ParameterError, Parameters, notebook_parameters
from steinis_lib.companion.registry import EXPERIMENTS
from steinis_lib.companion.sections.s1_convergence.algorithm_checks import AlgorithmChecks
from steinis_lib.companion.sections.s1_convergence.experiment import GMMConvergence

CLASSES = sorted({e.parameters for e in EXPERIMENTS.values()}, key=lambda cls: cls.__name__)


def refused(cls=GMMConvergence, profile="quick", **overrides):
    """The lines of the error that these overrides lead to."""
    with pytest.raises(ParameterError) as caught:
        cls.of_profile(profile, overrides)
    return str(caught.value).splitlines()


@pytest.mark.parametrize("cls", CLASSES)
def test_paper_is_the_defaults_and_quick_changes_what_it_says(cls):
    paper, quick = cls.of_profile("paper"), cls.of_profile("quick")
    assert paper == cls()
    assert paper.profile == "paper" and quick.profile == "quick"
    differing = {n for n in cls.model_fields if getattr(paper, n) != getattr(quick, n)}
    assert differing <= {"profile", *cls.QUICK}
    for name, value in cls.QUICK.items():
        assert getattr(quick, name) == value


@pytest.mark.parametrize("cls", CLASSES)
def test_every_parameter_is_described(cls):
    assert all(field.description for field in cls.model_fields.values())


@pytest.mark.parametrize("profile", ["nonsense", "", "Quick", None, ["quick"]])
def test_an_unknown_profile_is_refused_and_the_known_ones_named(profile):
    with pytest.raises(ParameterError, match="'quick' or 'paper'") as caught:
        GMMConvergence.of_profile(profile)
    assert repr(profile) in str(caught.value)


def test_the_profile_cannot_be_contradicted_by_an_override():
    with pytest.raises(ParameterError, match="profile"):
        GMMConvergence.of_profile("quick", {"profile": "paper"})


def test_a_misspelt_name_gets_a_suggestion():
    (line,) = refused(n_trails=3)
    assert line == "n_trails: no such parameter; did you mean n_trials?"


def test_a_name_like_no_other_gets_the_list():
    (line,) = refused(zzzzz=3)
    assert line.startswith("zzzzz: no such parameter; known: ")
    for name in GMMConvergence.model_fields:
        assert name in line


WRONG_TYPE = {
    "n_trials": ["many", 2.5, "1e3", None, [3], {"a": 1}, math.nan],
    "n_components": [True, False],
    "step_size": ["small", None, [0.1], 0.1j, True],
    "leader_counts": [10, "[10, 20]", [10, "x"], [10, 2.5], [10, None], {10: 20}],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in WRONG_TYPE.items() for v in vs])
def test_a_wrong_type_is_refused_naming_parameter_value_and_meaning(name, value):
    line = refused(**{name: value})[0]
    assert re.match(rf"{name}(\.\d)?: ", line)
    assert "got" in line
    assert GMMConvergence.model_fields[name].description in line


OUT_OF_RANGE = [
    ("seed", -1),
    ("seed", 2**63),
    ("n_trials", 1),
    ("n_trials", 10**9),
    ("n_leaders", 1),
    ("step_size", 0),
    ("step_size", -0.1),
    ("step_size", 1.01),
    ("spread", -1e-9),
    ("leader_counts", [10, 1]),
    ("n_grid", 100),
]


@pytest.mark.parametrize(("name", "value"), OUT_OF_RANGE)
def test_a_value_out_of_range_is_refused_naming_it_and_the_bound(name, value):
    (line,) = refused(**{name: value})
    given = value[1] if isinstance(value, list) else value
    assert line.startswith(name)
    assert re.search(rf"(greater|less) than .*got {re.escape(repr(given))}", line)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "nan", "inf"])
@pytest.mark.parametrize("name", ["spread", "step_size", "end_time"])
def test_numbers_that_are_not_finite_are_refused(name, value):
    (line,) = refused(**{name: value})
    assert line.startswith(f"{name}: ") and "finite" in line


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_also_inside_of_tuples(value):
    assert refused(AlgorithmChecks, epsilons=[0.1, 0.2, 0.3, value])[0].startswith("epsilons.3")


def test_all_problems_are_told_at_once():
    lines = refused(n_trials=1, step_size="x", n_trails=4, foo=1, seed=-1)
    assert len(lines) == 5
    assert {line.split(":")[0] for line in lines} == {
        "n_trials",
        "step_size",
        "n_trails",
        "foo",
        "seed",
    }


def test_a_tuple_is_made_of_a_list_as_yaml_and_json_give_it():
    p = GMMConvergence.of_profile("quick", {"leader_counts": [10, 20]})
    assert p.leader_counts == (10, 20)
    assert GMMConvergence.of_profile("quick", {"leader_counts": []}).leader_counts == ()


@pytest.mark.parametrize("text", ["1e-3", "0.001", " 1E-3 "])
def test_a_float_may_come_as_text_as_yaml_gives_1e_minus_3(text):
    assert GMMConvergence.of_profile("quick", {"step_size": text}).step_size == 1e-3


def test_whole_numbers_serve_for_both_kinds():
    p = GMMConvergence.of_profile("quick", {"n_trials": 7.0, "spread": 3})
    assert p.n_trials == 7 and type(p.n_trials) is int
    assert p.spread == 3.0 and type(p.spread) is float


def test_more_times_than_transitions_are_refused():
    """Each recorded time is a transition of its own; 5 / 0.2 gives 25 transitions, 26 times."""
    shape = {"end_time": 5.0, "step_size": 0.2}
    assert GMMConvergence.of_profile("quick", shape | {"n_times": 26}).n_times == 26
    assert any("n_times" in line for line in refused(**shape, n_times=27))


def test_an_end_that_is_no_whole_number_of_steps_is_refused():
    """Else runs at ε and ε/2 end at different times, and cannot be compared."""
    assert any("end_time" in line for line in refused(end_time=1.0, step_size=0.6, n_times=3))


def test_step_sizes_that_occur_twice_are_refused():
    """An exponent cannot be read off one step size."""
    assert any("epsilons" in line for line in refused(AlgorithmChecks, epsilons=[0.1, 0.1, 0.1]))


def test_parameters_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        GMMConvergence().seed = 3


@pytest.mark.parametrize("cls", CLASSES)
def test_the_digest_changes_with_every_field(cls):
    p = cls.of_profile("paper")
    digests = [p.digest()]
    for name in cls.model_fields:
        value = getattr(p, name)
        if name == "profile":
            other = "quick"
        elif isinstance(value, tuple):
            last = value[-1]
            other = (
                *value[:-1],
                (*last[:-1], last[-1] + 1) if isinstance(last, tuple) else last + 1,
            )
        else:
            other = value + (1 if isinstance(value, int) else 1e-12)
        digests.append(p.model_copy(update={name: other}).digest())
    assert len(set(digests)) == len(cls.model_fields) + 1
    assert p.digest() == cls.of_profile("paper").digest()
    assert all(re.fullmatch("[0-9a-f]{12}", digest) for digest in digests)


@settings(deadline=None)
@given(st.sampled_from(CLASSES), st.integers(0, 2**63 - 1), st.floats(1e-6, 90))
def test_parameters_survive_a_round_trip(cls, seed, number):
    given = {"seed": seed}
    for name in cls.model_fields:  # one positive float where there is one
        if name.endswith("spread") or name == "a2":
            given[name] = number
        if name == "determinant_steps":
            given[name] = (number, 2 * number)
    p = cls.of_profile("quick", given)
    assert {name: getattr(p, name) for name in given} == given
    assert cls.model_validate_json(p.model_dump_json()) == p
    values = p.model_dump(exclude={"profile"})
    assert cls.of_profile("quick", values) == p
    assert cls.of_profile("quick", values).digest() == p.digest()


@settings(deadline=None)
@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_range_holds_for_any_float(step):
    """With n_times and end_time at their smallest, only the step's own range decides."""
    if 0 < step <= 1:
        values = {"step_size": step, "end_time": 1000 * step, "n_times": 3}
        assert GMMConvergence.of_profile("quick", values).step_size == step
    else:
        assert any(line.startswith("step_size") for line in refused(step_size=step))


@settings(deadline=None)
@given(st.text(max_size=20).filter(lambda s: s not in GMMConvergence.model_fields))
def test_any_unknown_name_is_refused_by_name(name):
    with pytest.raises(ParameterError) as caught:
        GMMConvergence.of_profile("quick", {name: 1})
    assert str(caught.value).startswith(f"{name}: no such parameter")


def test_notebook_parameters_are_what_the_cells_have_set():
    def function():
        pass

    class Display:
        def __call__(self):
            pass

    session = {
        "__name__": "__main__",
        "_i1": "x = 1",
        "_": 3,
        "In": ["x = 1"],
        "Out": {},
        "exit": Display(),
        "quit": Display(),
        "open": open,
        "get_ipython": function,
        "os": os,
        "notebook_parameters": notebook_parameters,
        "Parameters": Parameters,
        "helper": function,
        "seed": None,
    }
    ours = {"profile": "quick", "n_trials": 3, "leader_counts": [], "typo": 0, "flag": False}
    assert notebook_parameters(session | ours) == ours
