import math

from steinis_lib.companion.runner.compute import joined
from steinis_lib.companion.search import Failure, Trial, search
from steinis_lib.companion.settings import FAMILIES, Setting, axes_of
from steinis_lib.companion.tuning_records import chosen, trials_of, tuning_record, tuning_table


def test_a_record_gives_back_all_trials_and_the_best():
    settings = [Setting(0.1, 0.3, 2.0), Setting(0.2, refresh=0.4), Setting(0.3)]
    trials = [
        Trial(settings[0], -2.0, 0.1, 7),
        Trial(settings[1], -1.0, 0.2, 8),
        Trial(settings[2], -math.inf, math.inf, 7, Failure.FOLDED),
    ]
    record = tuning_record(trials)
    assert trials_of(record) == trials
    assert chosen(record) == settings[1]
    assert record.gradients.values.tolist() == [[7, 8, 7]]
    assert record.failure.dims == ("trial", "candidate")
    assert record.failure.values.tolist() == [[0, 0, 2]]


def test_a_row_of_the_table_says_what_was_spent_and_what_came_of_it():
    n = 24

    def evaluate(setting):
        off = abs(math.log(setting.alpha / 0.7)) + abs(setting.beta - 0.43)
        return -off, 0.1, 7, Failure.NONE

    record = tuning_record(search(axes_of("steinis-double"), evaluate, n))
    row = tuning_table(record, axes_of("steinis-double"), "SteinIS, twice")
    setting = chosen(record)
    assert row == {
        "method": "SteinIS, twice",
        "score evaluations": 7 * n,
        "candidates": n,
        "diverged": 0,
        "folded": 0,
        "chosen": f"step {setting.alpha:.3g}, decay {setting.beta:.3g}, bandwidth × 2",
        "step": "inside",
        "decay": "inside",
        "bandwidth ×": "–",
        "refresh": "–",
    }
    assert {method for method in FAMILIES if len(axes_of(method)) == 2} == {"steinis-adagrad"}


def test_searches_of_one_cell_may_have_different_numbers_of_candidates():
    """The shorter ones are filled up with NaN, which is no candidate."""
    short = [Trial(Setting(0.1), -3.0, 0.1, 9), Trial(Setting(0.2), -2.0, 0.1, 9)]
    long = [*short, Trial(Setting(0.4), -1.0, 0.1, 9)]
    both = joined(tuning_record(t).assign_coords(trial=[i]) for i, t in enumerate((short, long)))
    assert trials_of(both.isel(trial=[0])) == short
    assert trials_of(both.isel(trial=[1])) == long
    assert chosen(both.isel(trial=[0])) == Setting(0.2)
    same = joined([tuning_record(short).assign_coords(trial=[i]) for i in range(2)])
    assert same.failure.dtype.kind == "i"  # and nothing changes where they are as long
