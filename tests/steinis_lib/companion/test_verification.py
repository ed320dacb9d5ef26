import numpy as np
import pytest
import torch
import xarray as xr

from steinis_lib.companion import verification
from steinis_lib.companion.parameters import ParameterError, Parameters
from steinis_lib.companion.runner.compute import compute
from steinis_lib.companion.runner.experiment import Cell, Experiment, compute_chunk


def random_values(p, chunk):
    values = torch.rand(chunk.n_trials, 3, generator=chunk.generator())
    return xr.Dataset({"value": (("trial", "size"), values.numpy())}, coords={"size": [1, 2, 3]})


def cells(*labels, **settings):
    return [Cell(label, 6, random_values, trials_per_chunk=2, **settings) for label in labels]


TOY = Experiment("toy", Parameters, lambda p: cells("a", "b"))


@pytest.fixture
def stored():
    return compute(TOY, Parameters())


def choose(seed, experiment=TOY, **settings):
    """The (label, number) of chosen chunks."""
    jobs = verification.choose_chunks(experiment, Parameters(), seed, **settings)
    return [(chunk.label, chunk.number) for _, chunk in jobs]


def check(stored, seed=0):
    jobs = verification.choose_chunks(TOY, Parameters(), seed)
    return verification.recompute(Parameters(), stored, jobs)


def fresh(label="a", number=0):
    (cell,) = (c for c in TOY.cells(Parameters()) if c.label == label)
    return compute_chunk(cell, Parameters(), TOY.chunks(Parameters(), cell)[number])


def changed(stored, label, trial, factor):
    values = stored[label].to_dataset()
    values["value"] = values.value * xr.where(values.trial == trial, factor, 1.0)
    return xr.DataTree.from_dict(
        {m: values if m == label else stored[m].to_dataset() for m in ("a", "b")}
    )


def test_one_chunk_of_each_method_is_chosen_at_random():
    chosen = [choose(seed) for seed in range(30)]
    assert all([label for label, _ in jobs] == ["a", "b"] for jobs in chosen)
    assert {jobs[0][1] for jobs in chosen} == {0, 1, 2}


def test_fewer_are_chosen_where_asked_and_in_time_every_method():
    chosen = [choose(seed, at_most=1) for seed in range(30)]
    assert all(len(jobs) == 1 for jobs in chosen)
    assert {jobs[0] for jobs in chosen} >= {("a", 0), ("a", 1), ("a", 2), ("b", 0)}
    assert len(choose(0, at_most=9)) == 2


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


def test_an_untouched_result_agrees(stored):
    assert check(stored) == []


@pytest.mark.parametrize("factor", [1 + 1e-4, np.nan])
def test_a_changed_number_is_found_and_named(stored, factor):
    bad = changed(stored, "b", trial=3, factor=factor)
    seed = next(s for s in range(99) if choose(s)[1] == ("b", 1))
    (line,) = check(bad, seed)
    assert line.startswith("toy, b, chunk 1: value differs in 3 of 6 numbers, first at")
    assert "'trial': 1" in line
    other = next(s for s in range(99) if choose(s)[1] == ("b", 0))
    assert check(bad, other) == []


def test_rounding_of_another_processor_is_allowed(stored):
    assert check(changed(stored, "a", trial=1, factor=1 + 1e-9)) == []


def test_what_is_missing_is_named(stored):
    no_method = xr.DataTree.from_dict({"a": stored["a"].to_dataset()})
    assert any("b, chunk" in line and "has no group b" in line for line in check(no_method))
    fewer = stored["a"].to_dataset().isel(trial=slice(0, 0))
    lines = verification.differences(fewer, fresh())
    assert lines == ["trials [0, 1] are not stored"]
    renamed = stored["a"].to_dataset().rename(value="other")
    lines = verification.differences(renamed, fresh())
    assert lines == ["other is only in the stored result", "value is only in the fresh result"]


def test_times_are_not_compared(stored):
    slow, new = stored["a"].to_dataset(), fresh()
    for dataset, seconds in ((slow, 3.0), (new, 1.0)):
        dataset["seconds"] = ("trial", [seconds] * len(dataset.trial), {"units": "s"})
    assert verification.differences(slow, new) == []
    slow["seconds"].attrs.clear()
    assert "seconds differs in 2 of 2" in verification.differences(slow, new)[0]


def test_a_variable_may_state_its_rounding(stored):
    old, new = stored["a"].to_dataset(), fresh()
    off = new.assign(value=new.value + 0.01)
    assert len(verification.differences(old, off)) == 1
    off["value"].attrs["tolerance"] = 0.02
    assert verification.differences(old, off) == []
    off["value"].attrs["tolerance"] = 0.005
    assert len(verification.differences(old, off)) == 1
    old["value"].attrs["tolerance"] = 1.0  # a stored file cannot ask for leniency
    assert len(verification.differences(old, off)) == 1


def scaled(p, chunk):
    """Use the scale that pilots drew."""
    return random_values(p, chunk) * float(chunk.pilots["pilot"].value.sum())


def test_chunks_are_checked_with_the_stored_pilots_and_these_themselves():
    experiment = Experiment(
        "toy",
        Parameters,
        lambda p: [*cells("pilot"), *(Cell(m, 6, scaled, 2, ("pilot",)) for m in ("a", "b"))],
    )
    stored = compute(experiment, Parameters())
    jobs = verification.choose_chunks(experiment, Parameters(), 0)
    assert [chunk.label for _, chunk in jobs] == ["pilot", "a", "b"]
    assert verification.recompute(Parameters(), stored, jobs) == []
    for label in ("pilot", "a"):
        bad = stored.copy(deep=True)
        bad[label]["value"] = bad[label]["value"] * 1.01
        lines = verification.recompute(Parameters(), bad, jobs)
        assert any(line.startswith(f"toy, {label}, chunk") for line in lines)
        assert any(line.startswith("toy, a, chunk") for line in lines)  # a pilot's reach


def test_a_chunk_that_cannot_be_computed_is_a_failure(stored):
    def broken(p, chunk):
        raise RuntimeError("no such luck")

    cell = Cell("a", 6, broken, 2)
    lines = verification.recompute(
        Parameters(), stored, [(cell, TOY.chunks(Parameters(), cell)[0])]
    )
    assert "cannot be computed again" in lines[0]
    assert "no such luck" in lines[0]
