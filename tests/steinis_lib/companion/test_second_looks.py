import json
from dataclasses import replace

import pytest
import toy_claims

from steinis_lib.companion import claims, results, second_looks
from steinis_lib.companion.claims_page import claims_table
from steinis_lib.companion.page import verdicts
from steinis_lib.companion.section import SecondLook
from steinis_lib.companion.verify_command import _verdicts


def difference(ours, theirs):
    """The mean of the one result less that of the other."""
    one, other = (toy_claims.statistic(tree) for tree in (ours, theirs))
    return replace(one, **{k: getattr(one, k) - other.value for k in ("value", "low", "high")})


LOOKS = {
    "small": ("other", SecondLook(difference, "the other less this")),
    "large": ("other", SecondLook(lambda ours, theirs: toy_claims.statistic(ours), "the other")),
    "plain": ("other", "not about toys"),
}


@pytest.fixture
def toys(monkeypatch, tmp_path):
    """A ledger of toys, whose experiment "other" is the one with a pool; only "toy" is stored."""
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    toy_claims.install(monkeypatch)
    monkeypatch.setattr(second_looks, "WITH_POOL", LOOKS)
    toy_claims.store(toy_claims.tree(shift=0.25))
    ledger = [claim for claim in toy_claims.ledger() if claim.id != "later"]
    monkeypatch.setattr(claims, "ledger", lambda: ledger)
    return ledger


def by_id(toys):
    return {f.claim.id: f for f in claims.evaluate(toys)}


def test_without_a_stored_result_the_verdict_is_not_yet_run_and_others_have_none(toys):
    found = by_id(toys)
    assert found["small"].with_pool.verdict == found["large"].with_pool.verdict == "not yet run"
    assert found["small"].with_pool.estimate is None
    assert found["plain"].with_pool is None
    assert second_looks.why_not("plain") == "not about toys"
    assert second_looks.why_not("small") == ""
    assert second_looks.why_not("unknown") == "not run with a pool"


def test_claims_are_judged_within_their_own_ranges_and_keep_their_verdicts(toys):
    before = by_id(toys)
    toy_claims.store(toy_claims.tree(shift=6.0), "other")
    found = by_id(toys)
    assert found["small"].with_pool.estimate.value == pytest.approx(5.75)
    assert found["small"].with_pool.verdict == "not reproduced"  # -0.5 to 1.5
    assert found["large"].with_pool.verdict == "reproduced"  # 4 to 9
    assert {i: f.verdict for i, f in found.items()} == {i: f.verdict for i, f in before.items()}
    toy_claims.store(toy_claims.tree(shift=0.5), "other")
    assert by_id(toys)["small"].with_pool.verdict == "reproduced"


def test_a_statistic_that_fails_names_its_claim(toys, monkeypatch):
    toy_claims.store(toy_claims.tree(), "other")
    broken = ("other", SecondLook(lambda ours, theirs: 1 / 0, "nothing"))
    monkeypatch.setattr(second_looks, "WITH_POOL", {"small": broken})
    with pytest.raises(ValueError, match="small, with a pool: ZeroDivisionError"):
        claims.evaluate(toys)


def test_verdicts_with_a_pool_are_published_and_checked(toys, tmp_path):
    path = tmp_path / "verdicts.json"
    claims.publish(claims.evaluate(toys), path)
    assert claims.discrepancies(claims.evaluate(toys), path) == []
    toy_claims.store(toy_claims.tree(shift=6.0), "other")
    lines = claims.discrepancies(claims.evaluate(toys), path)
    assert any("large, with a pool: published 'not yet run'" in line for line in lines)
    claims.publish(claims.evaluate(toys), path)
    assert claims.discrepancies(claims.evaluate(toys), path) == []
    table = json.loads(path.read_text("utf-8"))
    assert table["large"]["with a pool"]["verdict"] == "reproduced"
    assert "with a pool" not in table["plain"]
    table["plain"]["with a pool"] = {"verdict": "reproduced"}
    del table["small"]["with a pool"]
    path.write_text(json.dumps(table), "utf-8")
    assert claims.discrepancies(claims.evaluate(toys), path) == [
        "small, with a pool: the data say 'not reproduced', but no verdict is published",
        "plain, with a pool: a verdict is published, but no section judges it",
    ]


def test_tables_show_them_with_how_they_are_compared(toys):
    toy_claims.store(toy_claims.tree(shift=6.0), "other")
    found = claims.evaluate(toys)
    head, _, *rows = claims_table(found).splitlines()
    assert head.endswith("| With a pool |")
    assert all(row.count(" | ") == head.count(" | ") for row in rows)
    last = [row.split(" | ")[-1] for row in rows]
    assert "verdict-not-reproduced" in last[0] and "the other less this" in last[0]
    assert "5.75 \\[" in last[0] and "nats" in last[0]
    assert "not about toys" in last[2] and "verdict" not in last[2]
    shown = verdicts("toy").data
    assert list(shown["with a pool"]) == ["not reproduced", "reproduced", "–"]
    cells = list(_verdicts(found).columns[3].cells)
    assert "with a pool: not reproduced" in cells[0] and "with a pool" not in cells[2]
    assert found[1].record()["with_pool"]["verdict"] == "reproduced"
    assert found[2].record()["with_pool"] is None


def test_a_table_of_claims_without_such_verdicts_has_no_column_for_them(toys, monkeypatch):
    monkeypatch.setattr(second_looks, "WITH_POOL", {})
    assert "with a pool" not in verdicts("toy").data.columns
