import math

import pytest
from toy_claims import ENTRY

from steinis_lib.companion.claims import Claim, Finding, ledger
from steinis_lib.companion.directions import against_steinis, direction, side
from steinis_lib.companion.intervals import Estimate
from steinis_lib.companion.reading_claims import Judged, judge

WORDS = {"above": "x is further off", "below": "x is nearer"}


def finding(low, high, **fields):
    """A claim that x is from 1 to 2, and roughly so from 0 to 3, with an interval."""
    claim = Claim.model_validate(
        ENTRY | {"experiment": None, "reproduced": (1, 2), "partly": (0, 3)} | fields
    )
    (reading,), estimate = claim.readings, Estimate((low + high) / 2, low, high)
    ranges = (claim.reproduced, claim.partly)
    judged = Judged(reading, {}, ranges, estimate, judge(estimate, *ranges))
    return Finding(claim, (judged,))


@pytest.mark.parametrize(
    ("low", "high", "where", "plain", "words"),
    [
        (1, 2, None, "", ""),
        (2.1, 2.5, "above", "larger than claimed", "x is further off"),
        (4, math.inf, "above", "larger than claimed", "x is further off"),
        (-2, -1, "below", "smaller than claimed", "x is nearer"),
        (1.5, 2.5, None, *["the interval reaches above the range"] * 2),
        (0.5, 1.5, None, *["the interval reaches below the range"] * 2),
        (0.5, 5, None, *["the interval reaches below and above the range"] * 2),
    ],
)
def test_the_direction_follows_from_the_interval(low, high, where, plain, words):
    assert side(finding(low, high)) == where
    assert direction(finding(low, high)) == plain
    assert direction(finding(low, high, **WORDS)) == words


def test_a_claim_that_was_not_run_has_no_direction():
    claim = Claim.model_validate(ENTRY | {"experiment": None} | WORDS)
    waiting = Finding(claim, tuple(Judged(r, r.choices) for r in claim.readings))
    assert side(waiting) is None and direction(waiting) == "" and not against_steinis(waiting)


def test_a_result_counts_against_steinis_where_the_ledger_says_which_end_is_good():
    assert against_steinis(finding(4, 5, in_favour="low"))
    assert not against_steinis(finding(4, 5, in_favour="high"))
    assert against_steinis(finding(-2, -1, in_favour="high"))
    assert not against_steinis(finding(1.5, 2.5, in_favour="low"))
    assert not against_steinis(finding(4, 5))


def test_the_ledger_has_words_for_every_side_on_which_an_interval_can_lie():
    for claim in ledger():
        if claim.reproduced is None or claim.partly is None:
            continue
        for end, words in zip(claim.reproduced, (claim.below, claim.above), strict=True):
            if math.isinf(end):
                assert not words, f"{claim.id}: no interval lies beyond {end}"
        if claim.reproduced[1] < math.inf:
            assert claim.above, claim.id
        elif claim.reproduced[0] > -math.inf:
            assert claim.below, claim.id
