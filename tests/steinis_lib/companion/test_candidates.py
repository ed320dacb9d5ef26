import pytest

from steinis_lib.companion.candidates import (
    Setting,
    annealing_candidates,
    chosen,
    leapfrog_steps,
    tuning_record,
)
from steinis_lib.companion.tuning import Trial


@pytest.mark.parametrize("method", ["hais-full", "hais-partial", "hais-10l", "ais"])
def test_twelve_different_candidates(method):
    found = annealing_candidates(method)
    assert len(set(found)) == 12
    partial = [s.refresh is not None and s.refresh < 1 for s in found]
    assert all(partial) if method == "hais-partial" else not any(partial)


def test_langevin_steps_are_those_of_the_leapfrog():
    steps = [s.alpha for s in annealing_candidates("ais")]
    assert steps == pytest.approx([e**2 / 2 for e in leapfrog_steps(0.05)])
    assert all(s.refresh is None for s in annealing_candidates("ais"))
    assert annealing_candidates("hais-1l", 0.01)[0] == Setting(0.01, refresh=1.0)


def test_a_record_gives_back_the_best_candidate():
    settings = [Setting(0.1, 0.3, 2.0), Setting(0.2, refresh=0.4), Setting(0.3)]
    trials = [
        Trial(s, merit, 0.1, 7) for s, merit in zip(settings, (-2.0, -1.0, -3.0), strict=True)
    ]
    record = tuning_record(trials)
    assert chosen(record) == settings[1]
    assert record.gradients.values.tolist() == [[7, 7, 7]]
    assert chosen(tuning_record(trials[:1])) == settings[0]
