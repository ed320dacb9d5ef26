import numpy as np
import pytest
import torch
import xarray as xr

from steinis_lib.companion import verification
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner import engine
from steinis_lib.companion.runner.engine import Experiment, Task


def tasks(p):
    return [Task(m, c) for m in ("a", "b") for c in range(3)]


def run_task(p, task):
    g = engine.stream(p.seed, "toy", task.method, task.chunk)
    trials = range(2 * task.chunk, 2 * task.chunk + 2)
    return xr.Dataset(
        {"value": (("trial", "size"), torch.rand(2, 3, generator=g).numpy())},
        coords={"trial": trials, "size": [1, 2, 3]},
    )


TOY = Experiment("toy", Parameters, tasks, run_task)


@pytest.fixture
def stored():
    return engine.compute(TOY, Parameters())


def check(stored, seed=0):
    return verification.recompute(
        TOY, Parameters(), stored, verification.choose_chunks(TOY, Parameters(), seed)
    )


def changed(stored, method, trial, factor):
    values = stored[method].to_dataset()
    values["value"] = values.value * xr.where(values.trial == trial, factor, 1.0)
    return xr.DataTree.from_dict(
        {m: values if m == method else stored[m].to_dataset() for m in ("a", "b")}
    )


def test_picks_one_chunk_of_each_method_at_random():
    picked = [verification.choose_chunks(TOY, Parameters(), seed) for seed in range(30)]
    assert all([t.method for t in chosen] == ["a", "b"] for chosen in picked)
    assert {chosen[0].chunk for chosen in picked} == {0, 1, 2}


def test_picks_fewer_where_asked_and_in_time_every_method():
    picked = [verification.choose_chunks(TOY, Parameters(), seed, at_most=1) for seed in range(30)]
    assert all(len(chosen) == 1 for chosen in picked)
    assert {(t.method, t.chunk) for (t,) in picked} >= {("a", 0), ("a", 1), ("a", 2), ("b", 0)}
    assert len(verification.choose_chunks(TOY, Parameters(), 0, at_most=9)) == 2


def test_sizes_of_a_method_count_as_one_and_so_do_all_pilots():
    names = ["easy-svgd-10", "easy-svgd-200", "easy-steinis", "main-optimum-0.3", "main-optimum-1"]
    toy = Experiment(
        "toy",
        Parameters,
        lambda p: [Task(name, c) for name in names for c in range(2)],
        run_task,
        lambda p: [Task("easy-tuning", 0), Task("hard-tuning", 0)],
    )
    picked = [verification.choose_chunks(toy, Parameters(), seed) for seed in range(60)]
    assert all(len(chosen) == 4 for chosen in picked)
    seen = [{task.method for task in chosen} for chosen in zip(*picked, strict=True)]
    assert seen == [{"easy-tuning", "hard-tuning"}, set(names[:2]), {names[2]}, set(names[3:])]


def test_an_untouched_result_agrees(stored):
    assert check(stored) == []


@pytest.mark.parametrize("factor", [1 + 1e-4, np.nan])
def test_a_changed_number_is_found_and_named(stored, factor):
    bad = changed(stored, "b", trial=3, factor=factor)
    seed = next(
        s for s in range(99) if verification.choose_chunks(TOY, Parameters(), s)[1].chunk == 1
    )
    (line,) = check(bad, seed)
    assert line.startswith("toy, b, chunk 1: value differs in 3 of 6 numbers, first at")
    assert "'trial': 1" in line
    other = next(
        s for s in range(99) if verification.choose_chunks(TOY, Parameters(), s)[1].chunk == 0
    )
    assert check(bad, other) == []


def test_rounding_of_another_processor_is_allowed(stored):
    assert check(changed(stored, "a", trial=1, factor=1 + 1e-9)) == []


def test_what_is_missing_is_named(stored):
    no_method = xr.DataTree.from_dict({"a": stored["a"].to_dataset()})
    assert any("b, chunk" in line and "no such method" in line for line in check(no_method))
    fewer = stored["a"].to_dataset().isel(trial=slice(0, 0))
    lines = verification.differences(fewer, run_task(Parameters(), Task("a", 0)))
    assert lines == ["trials [0, 1] are not stored"]
    renamed = stored["a"].to_dataset().rename(value="other")
    lines = verification.differences(renamed, run_task(Parameters(), Task("a", 0)))
    assert lines == ["other is only in the stored result", "value is only in the fresh result"]


def test_times_are_not_compared(stored):
    slow = stored["a"].to_dataset()
    fresh = run_task(Parameters(), Task("a", 0))
    for dataset, seconds in ((slow, 3.0), (fresh, 1.0)):
        dataset["seconds"] = ("trial", [seconds] * len(dataset.trial), {"units": "s"})
    assert verification.differences(slow, fresh) == []
    slow["seconds"].attrs.clear()
    assert "seconds differs in 2 of 2" in verification.differences(slow, fresh)[0]


def test_a_variable_may_state_its_rounding(stored):
    old, fresh = stored["a"].to_dataset(), run_task(Parameters(), Task("a", 0))
    off = fresh.assign(value=fresh.value + 0.01)
    assert len(verification.differences(old, off)) == 1
    off["value"].attrs["tolerance"] = 0.02
    assert verification.differences(old, off) == []
    off["value"].attrs["tolerance"] = 0.005
    assert len(verification.differences(old, off)) == 1
    old["value"].attrs["tolerance"] = 1.0  # a stored file cannot ask for leniency
    assert len(verification.differences(old, off)) == 1


def scaled(p, task, pilots=None):
    """Pilots draw a scale, all others use it."""
    dataset = run_task(p, task)
    return dataset if task.method == "pilot" else dataset * float(pilots["pilot"].value.sum())


def test_tasks_are_checked_with_the_stored_pilots_and_these_themselves():
    pilots = [Task("pilot", 0), Task("pilot", 1)]
    toy = Experiment("toy", Parameters, tasks, scaled, lambda p: pilots)
    stored = engine.compute(toy, Parameters())
    chosen = verification.choose_chunks(toy, Parameters(), 0)
    assert [t.method for t in chosen] == ["pilot", "a", "b"]
    assert verification.recompute(toy, Parameters(), stored, chosen) == []
    for method, other in (("pilot", "a, chunk"), ("a", "a, chunk")):
        bad = stored.copy(deep=True)
        bad[method]["value"] = bad[method]["value"] * 1.01
        lines = verification.recompute(toy, Parameters(), bad, chosen)
        assert any(line.startswith(f"toy, {method}, chunk") for line in lines)
        assert any(line.startswith(f"toy, {other}") for line in lines)  # a pilot's reach


def test_a_chunk_that_cannot_be_computed_is_a_failure(stored):
    def broken(p, task):
        raise RuntimeError("no such luck")

    toy = Experiment("toy", Parameters, tasks, broken)
    lines = verification.recompute(toy, Parameters(), stored, [Task("a", 0)])
    assert "cannot be computed again" in lines[0]
    assert "no such luck" in lines[0]
