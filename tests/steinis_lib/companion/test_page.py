import json

import pytest
import toy_claims
import xarray as xr

from steinis_lib.companion import claims, results
from steinis_lib.companion.intervals import Estimate
from steinis_lib.companion.page import interval, number, origin, readings, verdicts


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.00123456, 3, "0.00123"),
        (57.34, 2, "57"),
        (99.96, 2, "100"),
        (203.4, 2, "203"),  # three digits at least from 100 on
        (-101.23, 4, "-101.2"),
        (999.6, 3, "1,000"),
        (-12_345.6, 3, "-12,300"),
        (float("inf"), 3, "inf"),
        (0, 3, "0"),
    ],
)
def test_large_numbers_have_no_power_of_ten(value, digits, text):
    assert number(value, digits) == text


def test_an_interval_is_scaled_as_a_whole():
    assert interval(Estimate(1.5, 1.25, 2.0), 2, scale=1e3) == "1,500 [1,250, 2,000]"


FIRST = {
    "created": "2026-03-01T10:00:00+00:00", "torch": "2.6.0", "machine": "A, 2 cores",
    "commit": "abc",
}  # fmt: skip
LAST = {"created": "2026-03-04T10:00:00+00:00"}


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ([], "computed 2026-03-01 with PyTorch 2.6.0, at commit abc"),
        ([{}], "computed in 2 parts 2026-03-01 with PyTorch 2.6.0, at commit abc"),
        (
            [{}, LAST],
            "computed in 3 parts from 2026-03-01 to 2026-03-04 with PyTorch 2.6.0, at commit abc",
        ),
        (
            [{"machine": "B, 8 cores"}, LAST | {"commit": "def-dirty", "torch": "2.7.0"}],
            "computed in 3 parts on 2 kinds of machine from 2026-03-01 to 2026-03-04 with PyTorch "
            "2.6.0 and 2.7.0, at commits abc and def-dirty",
        ),
    ],
)
def test_a_sentence_says_where_the_data_come_from(others, text):
    parts = [FIRST, *(FIRST | change for change in others)]
    assert origin(xr.DataTree(xr.Dataset(attrs={"provenance": json.dumps(parts)}))) == text


@pytest.fixture
def toys(monkeypatch, tmp_path):
    """A ledger of toys, of which one experiment is stored."""
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    toy_claims.install(monkeypatch)
    toy_claims.store(toy_claims.tree(shift=0.25))
    ledger = toy_claims.ledger()
    monkeypatch.setattr(claims, "ledger", lambda: ledger)


def test_the_table_of_verdicts_has_the_claims_of_an_experiment_with_their_robustness(toys):
    shown = verdicts("toy", paper_values=True).data
    assert list(shown.columns) == ["claim", "paper", "ours, 95 % interval", "verdict", "readings"]
    assert list(shown["verdict"]) == ["reproduced", "not reproduced", "reproduced"]
    assert shown["readings"][0].startswith("reproduced under 2 of 4 readings: ")
    assert list(shown["readings"][1:]) == ["one reading"] * 2
    assert "paper" not in verdicts("other").data.columns


def test_the_readings_of_a_claim_are_a_figure(toys):
    assert "hard targets" in repr(readings("small"))
    with pytest.raises(ValueError, match="plain: fewer than two readings"):
        readings("plain")
    with pytest.raises(ValueError, match="no claim 'nonsense'; the ledger has small, large"):
        readings("nonsense")
