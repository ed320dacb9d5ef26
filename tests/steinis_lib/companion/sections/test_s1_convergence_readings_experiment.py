"""The further conditions differ from those of `gmm-convergence` in one thing each."""

import numpy as np
import pytest
from cells import Cells

from steinis_lib.companion.sections.s1_convergence import experiment as gmm
from steinis_lib.companion.sections.s1_convergence import readings_experiment as further

TINY = {
    "n_rise_trials": 3, "n_trials": 2, "n_leaders": 8, "n_followers": 6, "n_svgd": 9, "n_grid": 101,
    "step_size": 0.5, "end_time": 3.0, "long_end_time": 5.0,
}  # fmt: skip


def cells(**changes):
    return Cells(
        further.EXPERIMENT, further.ConvergenceReadings.of_profile("quick", TINY | changes)
    )


@pytest.fixture
def asked(monkeypatch):
    """Note the parameters and the condition that each chunk is computed with."""
    seen = []
    original = gmm.curves_of

    def note(p, chunk, condition):
        seen.append((p, condition))
        return original(p, chunk, condition)

    monkeypatch.setattr(further, "curves_of", note)
    return seen


@pytest.mark.parametrize(
    ("label", "condition", "spread", "end_time"),
    [
        ("steinis-double", gmm.Condition(8, 2.0), 3.0, 3.0),
        ("svgd-double", gmm.Condition(9, 2.0), 3.0, 3.0),
        ("steinis-long", gmm.Condition(8), 3.0, 5.0),
        ("steinis-easy", gmm.Condition(8), 2.0, 3.0),
        ("svgd-easy", gmm.Condition(9), 2.0, 3.0),
    ],
)
def test_a_condition_changes_one_thing(asked, label, condition, spread, end_time):
    found = cells().run(label)
    ((p, used),) = asked
    assert used == condition
    assert (p.spread, p.end_time, p.n_followers, p.step_size) == (spread, end_time, 6, 0.5)
    np.testing.assert_array_equal(found.time, np.arange(end_time + 1))


def test_trials_are_as_many_as_asked_for():
    counts = {label: cell.n_trials for label, cell in cells().cells.items()}
    assert counts.pop("steinis-double") == 3
    assert set(counts.values()) == {2}
    paper = further.ConvergenceReadings()
    assert paper.n_rise_trials >= 36  # else no share without events could be below 10 %


def test_the_defaults_are_those_of_the_main_experiment():
    ours, main = further.ConvergenceReadings(), gmm.GMMConvergence()
    for name in ("n_leaders", "n_followers", "n_svgd", "n_grid", "step_size", "end_time"):
        assert getattr(ours, name) == getattr(main, name)
    assert main.n_times == main.end_time + 1


def test_all_systems_meet_the_same_mixtures():
    found = [cells(n_leaders=8, n_svgd=8).run(label) for label in ("steinis-easy", "svgd-easy")]
    np.testing.assert_array_equal(found[0].kl, found[1].kl)
