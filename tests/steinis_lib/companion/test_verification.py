import numpy as np
import pytest
import torch
import xarray as xr

from steinis_lib.companion import verification
from steinis_lib.companion.comparison import Comparison
from steinis_lib.companion.parameters import ParameterError, Parameters
from steinis_lib.companion.rounding import nudged
from steinis_lib.companion.runner import first_states
from steinis_lib.companion.runner.compute import compute
from steinis_lib.companion.runner.experiment import Cell, Experiment
from steinis_lib.companion.verification import NUDGES, Request


def random_values(p, chunk):
    values = torch.rand(chunk.n_trials, 3, generator=chunk.generator())
    return xr.Dataset({"value": (("trial", "size"), values.numpy())}, coords={"size": [1, 2, 3]})


def cells(*labels, **settings):
    return [Cell(label, 6, random_values, trials_per_chunk=2, **settings) for label in labels]


TOY = Experiment("toy", Parameters, lambda p: cells("a", "b"))
PLAIN = Parameters()


@pytest.fixture
def stored():
    return compute(TOY, Parameters())


@pytest.fixture
def spreads(monkeypatch):
    """What was measured: nothing, until a test fills it."""
    table = {}
    monkeypatch.setattr(verification, "measured", lambda: table)
    return table


def choose(seed, experiment=TOY, **settings):
    """The (label, number) of chosen chunks."""
    jobs = verification.choose_chunks(experiment, Parameters(), seed, **settings)
    return [(chunk.label, chunk.number) for _, chunk in jobs]


def recompute(experiment, stored, seed=0, parameters=PLAIN):
    jobs = verification.choose_chunks(experiment, parameters, seed)
    request = Request(experiment, parameters, stored, jobs)
    return verification.recompute([request])[experiment.name]


def lines(checks):
    return [line for check in checks for line in check.problems]


def changed(stored, label, trial, factor):
    values = stored[label].to_dataset()
    values["value"] = values.value * xr.where(values.trial == trial, factor, 1.0)
    return xr.DataTree.from_dict(
        {m: values if m == label else stored[m].to_dataset() for m in ("a", "b")}
    )


# ------------------------------------------------------------------------------ choosing chunks


def test_one_chunk_of_each_method_is_chosen_at_random():
    chosen = [choose(seed) for seed in range(30)]
    assert all([label for label, _ in jobs] == ["a", "b"] for jobs in chosen)
    assert {jobs[0][1] for jobs in chosen} == {0, 1, 2}


def test_fewer_are_chosen_where_asked_and_in_time_every_method():
    chosen = [choose(seed, at_most=1) for seed in range(30)]
    assert all(len(jobs) == 1 for jobs in chosen)
    assert {jobs[0] for jobs in chosen} >= {("a", 0), ("a", 1), ("a", 2), ("b", 0)}
    assert len(choose(0, at_most=9)) == 2


def fitting(monkeypatch, minutes, workers, seed, **seconds):
    """The labels of the chosen chunks that fit, of four methods with one chunk each."""
    monkeypatch.setattr(verification, "seconds", lambda: {"toy": seconds})
    toy = Experiment("toy", Parameters, lambda p: cells("a", "b", "c", "d"))
    jobs = verification.choose_chunks(toy, PLAIN, seed)
    request = Request(toy, PLAIN, xr.DataTree(), jobs)
    (found,) = verification.fitting([request], minutes, workers, seed)
    return [chunk.label for _, chunk in found.jobs]


def test_as_many_methods_as_fit_into_the_time_are_taken_and_all_have_their_turn(monkeypatch):
    cost = {"a": 60.0, "b": 60.0, "c": 60.0, "d": 180.0}
    found = [fitting(monkeypatch, 2.0, 1, seed, **cost) for seed in range(40)]
    assert {len(labels) for labels in found} == {2}  # d never fits
    assert {label for labels in found for label in labels} == {"a", "b", "c"}
    assert found == [fitting(monkeypatch, 2.0, 1, seed, **cost) for seed in range(40)]
    assert fitting(monkeypatch, 3.0, 2, 5, **cost) == ["a", "b", "c", "d"]  # two cores


def test_a_method_that_was_never_timed_counts_as_the_mean_of_the_others(monkeypatch):
    found = [fitting(monkeypatch, 1.0, 1, seed, a=20.0, b=40.0) for seed in range(40)]
    assert {frozenset(labels) for labels in found} >= {frozenset("ab"), frozenset("cd")}
    assert all(len(labels) <= 2 for labels in found)
    assert fitting(monkeypatch, 0.1, 1, 0) == ["a", "b", "c", "d"]  # nothing is known at all


def test_a_method_that_is_left_out_is_never_chosen():
    assert {label for seed in range(20) for label, _ in choose(seed, leave_out=("a",))} == {"b"}


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], {}),
        (["vae:prior-steinis"], {"vae": ("prior-steinis",)}),
        (["rbm:fixed-is", "rbm:fixed-ais"], {"rbm": ("fixed-is", "fixed-ais")}),
        (["rbm:fixed-*1l*"], {"rbm": ("fixed-hais-1l", "fixed-hais-1l-partial")}),
    ],
)
def test_what_is_left_out_is_read_from_pairs(pairs, expected):
    assert verification.parse_left_out(pairs) == expected


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("nonsense", "expected EXPERIMENT:METHOD; experiments are gmm-convergence"),
        ("vae:prior-steinis-20", "vae has no method 'prior-steinis-20'; it has .*prior-steinis,"),
        ("vae", "vae has no method ''"),
    ],
)
def test_what_cannot_be_left_out_is_refused(pair, message):
    with pytest.raises(ParameterError, match=message):
        verification.parse_left_out([pair])


def test_sizes_of_a_method_count_as_one_and_so_do_all_pilots():
    experiment = Experiment(
        "toy",
        Parameters,
        lambda p: [
            *cells("svgd-10", "svgd-200", method="svgd"),
            *cells("steinis", pilots=("easy-tuning", "hard-tuning")),
            *cells("easy-tuning", "hard-tuning"),
        ],
    )
    chosen = [choose(seed, experiment) for seed in range(60)]
    assert all(len(jobs) == 3 for jobs in chosen)
    seen = [{label for label, _ in jobs} for jobs in zip(*chosen, strict=True)]
    assert seen == [{"easy-tuning", "hard-tuning"}, {"svgd-10", "svgd-200"}, {"steinis"}]


# ------------------------------------------------------------------------------ computing again


def test_an_untouched_result_agrees(stored, spreads):
    checks = recompute(TOY, stored)
    assert [(check.method, check.failure) for check in checks] == [("a", ""), ("b", "")]
    assert [c for check in checks for c in check.comparisons] == [
        Comparison("value", "numbers", 0.0)
    ] * 2
    assert lines(checks) == []


@pytest.mark.parametrize("factor", [1 + 1e-4, np.nan])
def test_a_changed_number_is_found_and_named(stored, spreads, factor):
    bad = changed(stored, "b", trial=3, factor=factor)
    seed = next(s for s in range(99) if choose(s)[1] == ("b", 1))
    (line,) = lines(recompute(TOY, bad, seed))
    assert line.startswith("toy, b, chunk 1: value differs in 3 of 6 numbers, first at")
    assert "'trial': 1" in line
    other = next(s for s in range(99) if choose(s)[1] == ("b", 0))
    assert lines(recompute(TOY, bad, other)) == []


def test_rounding_of_another_processor_is_allowed(stored, spreads):
    assert lines(recompute(TOY, changed(stored, "a", trial=1, factor=1 + 1e-9))) == []


def test_a_missing_group_is_named_and_the_other_chunks_are_checked(stored, spreads):
    checks = recompute(TOY, xr.DataTree.from_dict({"a": stored["a"].to_dataset()}))
    by_method = {check.method: check for check in checks}
    assert "has no group b" in by_method["b"].failure
    assert by_method["b"].problems[0].startswith("toy, b, chunk ")
    assert by_method["a"].problems == [] and by_method["a"].comparisons


def scaled(p, chunk):
    """Use the scale that pilots drew."""
    return random_values(p, chunk) * float(chunk.pilots["pilot"].value.sum())


def test_chunks_are_checked_with_the_stored_pilots_and_these_themselves(spreads):
    experiment = Experiment(
        "toy",
        Parameters,
        lambda p: [*cells("pilot"), *(Cell(m, 6, scaled, 2, ("pilot",)) for m in ("a", "b"))],
    )
    stored = compute(experiment, Parameters())
    assert [label for label, _ in choose(0, experiment)] == ["pilot", "a", "b"]
    assert lines(recompute(experiment, stored)) == []
    for label in ("pilot", "a"):
        bad = stored.copy(deep=True)
        bad[label]["value"] = bad[label]["value"] * 1.01
        found = lines(recompute(experiment, bad))
        assert any(line.startswith(f"toy, {label}, chunk") for line in found)
        assert any(line.startswith("toy, a, chunk") for line in found)  # a pilot's reach


def test_a_pilot_that_is_not_stored_is_named(spreads):
    experiment = Experiment(
        "toy", Parameters, lambda p: [*cells("pilot"), Cell("a", 6, scaled, 2, ("pilot",))]
    )
    stored = compute(experiment, Parameters())
    checks = recompute(experiment, xr.DataTree.from_dict({"a": stored["a"].to_dataset()}))
    assert all("has no group pilot" in check.failure for check in checks) and len(checks) == 2


def test_a_chunk_that_cannot_be_computed_is_a_failure(stored, spreads):
    def broken(p, chunk):
        raise RuntimeError("no such luck")

    cell = Cell("a", 6, broken, 2)
    told = []
    request = Request(TOY, PLAIN, stored, [(cell, TOY.chunks(PLAIN, cell)[0])])
    checks = verification.recompute([request], progress=lambda: told.append(0))
    (check,) = checks["toy"]
    assert "cannot be computed again" in check.failure and check.comparisons == ()
    assert "no such luck" in check.problems[0]
    assert told == [0]


def test_several_results_are_checked_at_once(stored, spreads):
    class Seeded(Parameters):
        seed: int = 9

    other = Experiment("other", Seeded, TOY.cells)
    bad = changed(compute(other, Seeded()), "b", trial=0, factor=1.01)
    bad = changed(bad, "b", trial=1, factor=1.01)
    requests = [
        Request(e, e.parameters(), tree, [(cell, chunk) for cell in e.cells(None)
                for chunk in e.chunks(e.parameters(), cell)[:1]])
        for e, tree in ((TOY, stored), (other, bad))
    ]  # fmt: skip
    requests.append(Request(Experiment("third", Parameters, TOY.cells), PLAIN, stored, []))
    checks = verification.recompute(requests)
    assert {name: [c.name for c in found] for name, found in checks.items()} == {
        "toy": ["toy, a, chunk 0", "toy, b, chunk 0"],
        "other": ["other, a, chunk 0", "other, b, chunk 0"],
        "third": [],
    }
    assert lines(checks["toy"]) == []
    (line,) = lines(checks["other"])
    assert line.startswith("other, b, chunk 0: value differs in 6 of 6 numbers")


def test_spreads_are_those_of_the_experiment_and_the_method(stored, spreads):
    bad = changed(stored, "a", trial=0, factor=1 + 1e-4)
    bad = changed(bad, "b", trial=0, factor=1 + 1e-4)
    seed = next(s for s in range(99) if choose(s) == [("a", 0), ("b", 0)])
    spreads |= {"toy": {"a": {"value": 1e-5}}, "other": {"b": {"value": 1e-5}}}
    (line,) = lines(recompute(TOY, bad, seed))
    assert line.startswith("toy, b, ")


# ------------------------------------------------------------------- what rounding errors explain


def doubling(p, chunk, n=48):
    """Numbers in 64 bits whose rounding errors double n times, and others that have none."""
    x = torch.randn(chunk.n_trials, generator=chunk.generator(), dtype=torch.float64)
    end = (x * 2.0**n).frac().abs()
    start = x.reshape(-1, 1, 1).expand(-1, 2, 1)
    dims = ("trial", *first_states.DIMENSIONS)
    return xr.Dataset(
        {"end": ("trial", end), "stable": ("trial", x), first_states.NAME: (dims, start)}
    )


MANY = 40
DOUBLING = Experiment("toy", Parameters, lambda p: [Cell("a", MANY, doubling, 10)])


def on_another_processor(experiment=DOUBLING):
    """The stored result of a processor that rounds otherwise."""
    with nudged(5):
        return compute(experiment, PLAIN)


def edited(tree, name, factor=1.0, plus=0.0):
    values = tree["a"].to_dataset()
    return xr.DataTree.from_dict({"a": values.assign({name: values[name] * factor + plus})})


def test_a_chunk_that_rounding_errors_decide_is_compared_in_distribution(spreads):
    (check,) = recompute(DOUBLING, on_another_processor())
    assert check.problems == [] and check.n_nudged == 1
    assert {c.variable: c.how for c in check.comparisons} == {
        "end": "distribution", "first_states": "numbers", "stable": "numbers",
    }  # fmt: skip


def test_a_chunk_that_agrees_is_computed_once(spreads):
    (check,) = recompute(DOUBLING, compute(DOUBLING, PLAIN))
    assert check.problems == [] and check.n_nudged == 0


@pytest.mark.parametrize(
    ("name", "change", "n_nudged"),
    [
        ("stable", {"factor": 1 + 1e-5}, len(NUDGES)),  # moved numbers do not move it so far
        ("end", {"plus": 2.0}, len(NUDGES)),  # another distribution
        ("first_states", {"factor": 1 + 1e-5}, 0),  # rounding errors cannot explain these
    ],
)
def test_an_error_stays_one_beside_numbers_that_rounding_errors_decide(
    spreads, name, change, n_nudged
):
    (check,) = recompute(DOUBLING, edited(on_another_processor(), name, **change))
    assert check.n_nudged == n_nudged
    assert any(f": {name} " in line for line in check.problems)


def test_an_error_of_a_stable_program_is_not_explained(stored, spreads):
    seed = next(s for s in range(99) if choose(s)[0] == ("a", 0))
    checks = recompute(TOY, changed(stored, "a", trial=0, factor=1 + 1e-5), seed)
    assert checks[0].n_nudged == len(NUDGES) and "value differs" in checks[0].problems[0]
