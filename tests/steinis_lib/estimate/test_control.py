"""Budgets, Ctrl-C, progress and callbacks of `estimate_log_z`, around a quick search."""

import math
import sys

import pytest
import torch
from quick_find import quick_find

from steinis_lib import ImportanceSample, estimate_log_z
from steinis_lib.estimate import BudgetSpent, log_z
from steinis_lib.estimate.control import Control
from steinis_lib.estimate.progress import progress_line, text

PROBING = 76
"""Points at which log_prob is called before the search, at most."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(log_z, "find", quick_find)


def log_prob(x):
    return -0.6 * x.square().sum(-1)


def near(found):
    return abs(found.log_z - math.log(math.pi / 0.6)) < 4 * found.log_z_se


def test_without_a_budget_all_draws_are_made():
    calls = []

    def counting(x):
        calls.append(len(x))
        return log_prob(x)

    found = estimate_log_z(counting, 2)
    assert near(found)
    assert found.n_evaluations == sum(calls) < PROBING + 4410
    assert found.verdict == "trusted"
    assert found.sample.n == 4000


def stopped(found):
    (doubt,) = found.doubts
    assert (doubt.cause, doubt.damage, found.verdict) == ("stopped", math.inf, "doubtful")
    assert (found.sample.n, found.route) == (400, ("weighing",))  # the pilots
    assert near(found)
    return doubt.message


def test_a_budget_of_evaluations_is_kept_and_gives_the_best_so_far():
    found = estimate_log_z(log_prob, 2, max_evaluations=1000)
    assert found.n_evaluations <= 1000
    assert "max_evaluations = 1000 is spent" in stopped(found)


def test_a_budget_of_seconds_does_the_same(monkeypatch):
    """The clock jumps at the call that follows the pilots."""
    now = [0.0]
    monkeypatch.setattr("steinis_lib.estimate.control.time.monotonic", lambda: now[0])

    def slow(x):
        now[0] += 3.0 if len(x) == 400 else 0.0
        return log_prob(x)

    assert "max_seconds = 2 is spent" in stopped(estimate_log_z(slow, 2, max_seconds=2))


def test_ctrl_c_does_the_same():
    def interrupted(x):
        if len(x) == 2000:
            raise KeyboardInterrupt
        return log_prob(x)

    assert "it was interrupted" in stopped(estimate_log_z(interrupted, 2))


def test_without_any_answer_a_budget_is_an_error_and_ctrl_c_itself():
    with pytest.raises(BudgetSpent, match="100 is spent, after .* evaluations and before there"):
        estimate_log_z(log_prob, 2, max_evaluations=100)

    def interrupted(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        estimate_log_z(interrupted, 2)


def test_a_sample_whose_half_has_no_weight_is_no_answer():
    control = Control(None, None, None, lambda *_: None)
    log_w = torch.cat([torch.zeros(10), torch.full((10,), -torch.inf)])
    control.report("weighing", ImportanceSample(torch.zeros(20, 1), log_w))
    with pytest.raises(BudgetSpent, match="before there was an estimate"):
        control.so_far(BudgetSpent("max_seconds = 1 is spent"))


def test_a_callback_hears_of_each_stage():
    heard = []
    estimate_log_z(log_prob, 2, callback=lambda *told: heard.append(told))
    stages, evaluations, best = zip(*heard, strict=True)
    assert stages == ("weighing", "looking at the result")
    assert evaluations[0] < evaluations[1]
    assert [sample.n for sample in best] == [400, 4000]


def test_the_best_sample_stays_where_a_stage_has_none():
    control = Control(None, None, None, lambda *_: None)
    sample = ImportanceSample(torch.zeros(4, 1), torch.zeros(4))
    control.report("weighing", sample)
    control.report("fitting maps", None)
    assert control.best is sample
    assert control.stage == "fitting maps"


def test_calls_have_at_most_max_points():
    calls = []

    def counting(x):
        calls.append(len(x))
        return log_prob(x)

    found = estimate_log_z(counting, 2, max_points=7)
    assert max(calls) == 7
    assert found.log_z == estimate_log_z(log_prob, 2).log_z


# ---------------------------------------------------------------- Progress


def test_progress_is_shown_on_request_and_else_only_in_a_terminal(capsys, monkeypatch):
    estimate_log_z(log_prob, 2, progress=True)
    stages = [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert stages == ["checking log_prob", "weighing", "looking at the result"]
    estimate_log_z(log_prob, 2)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    estimate_log_z(log_prob, 2)
    assert "looking at the result" in capsys.readouterr().err
    estimate_log_z(log_prob, 2, progress=False)
    assert capsys.readouterr() == ("", "")


def test_without_rich_progress_is_silent_and_an_error_on_request(capsys, monkeypatch):
    monkeypatch.setattr("steinis_lib.estimate.progress.find_spec", lambda _: None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    estimate_log_z(log_prob, 2)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with (
        pytest.raises(ImportError, match=r"progress=True needs rich: .*\[progress\]"),
        progress_line(True),
    ):
        pass


def test_the_line_has_stage_evaluations_and_log_z():
    sample = ImportanceSample(torch.zeros(2, 1), torch.full((2,), 1.234))
    assert text("weighing", 12345, sample) == "weighing: 12,345 evaluations, log Z ≈ 1.23"
    assert text("checking", 8, None) == "checking: 8 evaluations"
