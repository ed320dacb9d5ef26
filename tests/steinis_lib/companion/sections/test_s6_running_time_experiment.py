import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from steinis_lib.companion.counting import Counted
from steinis_lib.companion.parameters import ParameterError
from steinis_lib.companion.runner.experiment import compute_chunk
from steinis_lib.companion.sections.s6_running_time import cost_growth
from steinis_lib.companion.sections.s6_running_time import experiment as running_time
from steinis_lib.companion.sections.s6_running_time.cost_growth import GROWTH, over_sizes
from steinis_lib.companion.sections.s6_running_time.experiment import (
    EXPERIMENT,
    METHODS,
    RunningTime,
    timed_run,
)
from steinis_lib.companion.verification import choose_chunks, compare

TINY = {
    "latent_dims": (20,),
    "n_trials": 2,
    "n_images": 3,
    "n_leaders": 7,
    "n_followers": 5,
    "transitions": (1, 3),
    "growth_trials": 2,
    "growth_transitions": 2,
    "image_counts": (1, 2),
    "leader_counts": (4, 6),
    "follower_counts": (3, 5),
    "dims": (2, 3),
    "exact_dims": (2, 4),
    "score_dims": (2, 3),
}
LABELS = {"images-steinis", "images-hais-1l", *GROWTH, "growth-score"}


@pytest.fixture(scope="module")
def tiny():
    return RunningTime.of_profile("paper", TINY)


@pytest.fixture
def clock(monkeypatch):
    """A clock that is a second further each time it is read, for all that is timed."""
    ticks = itertools.count()
    ticking = SimpleNamespace(perf_counter=lambda: float(next(ticks)))
    for module in (running_time, cost_growth):
        monkeypatch.setattr(module, "time", ticking)


def run(p, label, trial):
    """Compute one trial, which is a chunk, as the engine does."""
    (cell,) = (cell for cell in EXPERIMENT.cells(p) if cell.label == label)
    return compute_chunk(cell, p, EXPERIMENT.chunks(p, cell)[trial])


def test_each_trial_is_a_chunk_and_verification_looks_at_each_label(tiny):
    pilots, cells = EXPERIMENT.stages(tiny)
    assert pilots == [] and {cell.label for cell in cells} == {"table-20"} | LABELS
    assert all(len(EXPERIMENT.chunks(tiny, cell)) == cell.n_trials == 2 for cell in cells)
    paper = RunningTime.of_profile("paper")
    labels = {cell.label for cell in EXPERIMENT.cells(paper)}
    assert labels == {"table-10", "table-20", "table-50"} | LABELS
    assert len(choose_chunks(EXPERIMENT, paper, seed=3)) == 1 + len(LABELS)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["table-20", *sorted(LABELS)])
def test_a_trial_has_positive_times_and_says_what_it_ran_on(tiny, label):
    first, other = (run(tiny, label, trial) for trial in (1, 0))
    timed = [name for name, v in first.data_vars.items() if v.attrs.get("units") == "s"]
    assert timed == ["seconds"]
    assert len(first.data_vars) > 1 and all(np.isfinite(v).all() for v in first.data_vars.values())
    assert (first.seconds > 0).all()
    assert first.trial.values.tolist() == [1]
    assert first.threads.values.tolist() == [torch.get_num_threads()]
    checked = "mean_log_w" if label == "table-20" else "outcome"
    assert (first[checked].values != other[checked].values).any()


def problems(stored, fresh):
    return [c.problem for c in compare(stored, fresh, {}) if c.problem]


@pytest.mark.slow
@pytest.mark.parametrize("label", ["table-20", *sorted(LABELS)])
def test_verification_ignores_times_and_threads_but_sees_other_work(tiny, label):
    stored, fresh = (run(tiny, label, 0) for _ in "ab")
    stored["seconds"] = stored.seconds * 7
    stored["threads"] = stored.threads + 5
    assert problems(stored, fresh) == []
    checked = "mean_log_w" if label == "table-20" else "outcome"
    wrong = stored.copy()
    wrong[checked] = wrong[checked] * (1 + 3e-6) + 3e-9
    (line,) = problems(wrong, fresh)
    assert line.startswith(f"{checked} differs")
    if label == "table-20":
        wrong = stored.copy()
        wrong["evaluations"] = wrong.evaluations + 1
        assert problems(wrong, fresh)[0].startswith("evaluations differs")


def test_evaluations_are_those_that_algorithms_need(tiny):
    found = run(tiny, "table-20", 0).isel(trial=0)
    assert found.method.values.tolist() == list(METHODS)
    expected = {"steinis": 7, "steinis-exact": 7, "hais-1l": 5, "hais-10l": 50, "ais": 5}
    for name, each in expected.items():
        assert found.evaluations.sel({"method": name}).values.tolist() == [each, 3 * each]


def test_the_clock_runs_during_the_transitions_alone(tiny, monkeypatch):
    """Between the two readings lie the scores of four transitions, and nothing else."""
    events = []
    reading = SimpleNamespace(perf_counter=lambda: events.append("clock") or float(len(events)))
    monkeypatch.setattr(running_time, "time", reading)
    for method in ("log_prob", "score", "log_prob_and_score"):
        original = getattr(Counted, method)

        def note(self, z, original=original, method=method):
            events.append(method)
            return original(self, z)

        monkeypatch.setattr(Counted, method, note)
    generator = torch.Generator().manual_seed(0)
    seconds, _, evaluations = timed_run(tiny, "steinis", 20, 3, 4, generator)
    assert events == ["clock", *["score"] * 4, "clock", "log_prob"]
    assert seconds == 5.0 and evaluations == 4 * 7
    events.clear()
    assert timed_run(tiny, "hais-10l", 20, 3, 2, generator)[2] == 2 * 10 * 5
    trajectory = [*["score"] * 9, "log_prob_and_score"]  # the density at its end alone
    assert events == ["log_prob_and_score", "clock", *trajectory * 2, "clock"]


@pytest.mark.slow
def test_methods_take_turns_in_an_order_that_shifts(tiny, monkeypatch):
    calls = []
    original = running_time.timed_run

    def note(p, method, dim, n_images, k, generator):
        calls.append((method, k))
        return original(p, method, dim, n_images, k, generator)

    monkeypatch.setattr(running_time, "timed_run", note)
    more = tiny.model_copy(update={"n_trials": len(METHODS)})
    for trial in range(len(METHODS)):
        calls.clear()
        run(more, "table-20", trial)
        warm, timed = calls[: len(METHODS)], calls[len(METHODS) :]
        assert warm == [(name, 1) for name in METHODS]
        order = METHODS[trial:] + METHODS[:trial]
        assert timed == [(name, k) for k in (1, 3) for name in order]


def test_seconds_are_stored_where_they_belong(tiny, clock):
    """With a clock that ticks once a reading, each run takes a second."""
    assert (run(tiny, "table-20", 0).seconds == 1).all()
    assert (run(tiny, "growth-dim", 0).seconds == 0.5).all()  # for one of two


def test_the_second_of_two_timings_counts():
    calls = []

    def timed(size):
        calls.append(size)
        return float(len(calls)), 10.0 * size

    found = over_sizes((3, 7), 2, timed)
    assert calls == [3, 3, 7, 7]
    assert found.seconds.values.tolist() == [1.0, 2.0]
    assert found.outcome.values.tolist() == [30.0, 70.0]
    assert found["size"].values.tolist() == [3, 7]


def test_a_growth_varies_one_size_alone():
    assert GROWTH["growth-leaders"].at(9) == (9, 10, 20)
    assert GROWTH["growth-followers"].at(9) == (50, 9, 20)
    assert GROWTH["growth-dim"].at(9) == (300, 300, 9)
    assert GROWTH["growth-exact"].at(9) == (16, 32, 9)
    assert [g.determinant for g in GROWTH.values()] == ["first-order"] * 3 + ["exact"]


def test_growth_does_the_work_that_it_says(monkeypatch):
    """The sizes and the kind of determinant that SteinIS gets are those of the growth."""
    seen = []
    original = cost_growth.build_steinis

    def note(target, q0, setting, **sizes):
        seen.append({"dim": target.dim, **sizes})
        return original(target, q0, setting, **sizes)

    monkeypatch.setattr(cost_growth, "build_steinis", note)
    g = torch.Generator().manual_seed(0)
    for label, size in (("growth-exact", 3), ("growth-dim", 4)):
        cost_growth.time_transitions(GROWTH[label], size, 1, g)
    assert seen == [
        {"dim": 3, "n_leaders": 16, "n_followers": 32, "determinant": "exact"},
        {"dim": 4, "n_leaders": 300, "n_followers": 300, "determinant": "first-order"},
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"latent_dims": [20, 10]}, "latent_dims: must rise strictly"),
        ({"latent_dims": [12]}, r"trained models are \(10, 20, 50\), none for \[12\]"),
        ({"transitions": [5, 5]}, "transitions: must rise strictly"),
        ({"transitions": [5]}, "transitions.*at least 2"),
        ({"leader_counts": [9, 8]}, "leader_counts: must rise strictly"),
        ({"follower_counts": [9, 8]}, "follower_counts: must rise strictly"),
        ({"dims": [9, 8]}, "dims: must rise strictly"),
        ({"exact_dims": [9, 8]}, "exact_dims: must rise strictly"),
        ({"score_dims": [9, 8]}, "score_dims: must rise strictly"),
        ({"image_counts": [4, 1001]}, "image_counts.1"),
        ({"n_images": 1001}, "n_images"),
        ({"n_trials": 1}, "n_trials"),
    ],
)
def test_nonsense_is_refused(given, message):
    with pytest.raises(ParameterError, match=message):
        RunningTime.of_profile("quick", given)
