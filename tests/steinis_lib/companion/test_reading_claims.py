from functools import partial

import pytest

from steinis_lib.companion.intervals import Estimate
from steinis_lib.companion.reading_claims import (
    Judged,
    Reading,
    bound_choices,
    choice_text,
    robustness,
)


def reading(name="a", **choices):
    return Reading(name=name, choices=choices, why="because")


def judged(name, verdict="partly", **choices):
    return Judged(reading(name, **choices), choices, verdict=verdict)


YES, PARTLY, NO, WAITING = "reproduced", "partly", "not reproduced", "not yet run"


def by_kernel(*verdicts):
    """Readings with three kernels on two targets, and so six verdicts."""
    pairs = [(k, t) for k in ("rule", "double", "wide") for t in ("easy", "hard")]
    return [
        judged(f"{k}, {t}", v, kernel=k, target=t)
        for (k, t), v in zip(pairs, verdicts, strict=True)
    ]


@pytest.mark.parametrize(
    ("readings", "text"),
    [
        ([judged("a", NO)], "one reading"),
        ([judged("a", WAITING), judged("b", WAITING)], "2 readings, not yet run"),
        (by_kernel(*[NO, PARTLY] * 3), "reproduced under none of 6 readings"),
        (by_kernel(*[YES] * 6), "reproduced under all 6 readings"),
        (
            by_kernel(NO, NO, PARTLY, NO, YES, YES),
            "reproduced under 2 of 6 readings: those with kernel wide",
        ),
        (
            by_kernel(NO, NO, NO, NO, YES, NO),
            "reproduced under 1 of 6 readings: the one with kernel wide and target easy",
        ),
        (
            by_kernel(YES, NO, YES, NO, YES, NO),
            "reproduced under 3 of 6 readings: those with target easy",
        ),
        (
            by_kernel(NO, PARTLY, YES, YES, YES, YES),
            "reproduced under 4 of 6 readings: all but those with kernel rule",
        ),
        (
            by_kernel(NO, YES, YES, YES, YES, YES),
            "reproduced under 5 of 6 readings: all but the one with kernel rule and target easy",
        ),
        (
            by_kernel(YES, NO, NO, YES, NO, NO),
            "reproduced under 2 of 6 readings: “rule, easy”; “double, hard”",
        ),
        (
            by_kernel(YES, NO, NO, YES, YES, YES),
            "reproduced under 4 of 6 readings: all but “rule, hard”; “double, easy”",
        ),
        (
            by_kernel(WAITING, NO, NO, NO, YES, YES),
            "reproduced under 2 of 6 readings (1 not yet run): those with kernel wide",
        ),
    ],
)
def test_robustness_says_under_which_readings(readings, text):
    assert robustness(readings) == text


def test_of_many_names_the_first_are_said():
    readings = [judged(f"r{i}", YES if i % 2 else NO, n=i) for i in range(12)]
    assert robustness(readings) == ("reproduced under 6 of 12 readings: “r1”; “r3”; “r5”; 3 more")


def test_a_choice_that_another_reading_lacks_tells_them_apart():
    readings = [judged("a", NO), judged("b", YES, wide=True), judged("c", YES, wide=True, d=20)]
    assert robustness(readings) == "reproduced under 2 of 3 readings: those with wide"


@pytest.mark.parametrize(
    ("axis", "value", "text"),
    [("kernel", "wide", "kernel wide"), ("d", 20, "d 20"), ("tolerance", 0.01, "tolerance 0.01"),
     ("share", 1.0, "share 1"), ("leaders", True, "leaders"), ("leaders", False, "no leaders")],
)  # fmt: skip
def test_a_choice_in_words(axis, value, text):
    assert choice_text(axis, value) == text


def statistic(tree, kernel="better", *, d=20, other=None):
    raise NotImplementedError


def test_choices_are_completed_by_the_statistics_own_on_the_axes_asked_for():
    found = bound_choices(statistic, reading(d=50), ["d", "kernel", "other"])
    assert found == {"d": 50, "kernel": "better"}
    assert bound_choices(partial(statistic, d=10), reading(), ["d"]) == {"d": 10}
    assert bound_choices(statistic, reading(kernel="rule")) == {"kernel": "rule"}


@pytest.mark.parametrize("choices", [{"kernl": "wide"}, {"tree": "a"}])
def test_choices_that_are_no_arguments_are_refused(choices):
    with pytest.raises(
        ValueError, match="reading 'a': its choices .* do not fit .*kernel='better'"
    ):
        bound_choices(statistic, reading(**choices))


def test_an_argument_without_a_choice_is_refused():
    def needs(tree, kernel):
        raise NotImplementedError

    with pytest.raises(ValueError, match="missing a required argument: 'kernel'"):
        bound_choices(needs, reading())


def test_choices_keep_their_types():
    given = {"a": 1, "b": 1.0, "c": True, "d": "1"}
    found = Reading.model_validate({"name": "a", "why": "b", "choices": given}).choices
    assert found == given
    assert {k: type(v) for k, v in found.items()} == {k: type(v) for k, v in given.items()}


def test_a_figure_is_text_with_its_interval():
    found = Judged(reading(), {}, ((0, 1), (0, 2)), Estimate(1.2345, 1, 2), "partly")
    assert found.text("nats") == "1.23 [1, 2] nats"
    assert found.text() == "1.23 [1, 2]"
    assert judged("a").text("nats") == "–"
