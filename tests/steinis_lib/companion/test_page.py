import pytest
import toy_claims

from steinis_lib.companion import claims, results
from steinis_lib.companion.page import readings, verdicts


@pytest.fixture
def toys(monkeypatch, tmp_path):
    """A ledger of toys, of which one experiment is stored."""
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    toy_claims.install(monkeypatch)
    toy_claims.store(toy_claims.tree(shift=0.25))
    ledger = toy_claims.ledger()
    monkeypatch.setattr(claims, "ledger", lambda: ledger)


def test_the_table_of_verdicts_has_the_claims_of_an_experiment_with_their_robustness(toys):
    table = verdicts("toy", number="5.1", paper_values=True)
    assert table.caption.endswith("Of 3 claims: 1 not reproduced, 2 reproduced.")
    shown = table.data
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
