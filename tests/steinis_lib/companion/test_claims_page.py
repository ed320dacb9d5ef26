import math
import re

import pytest
import toy_claims
from markdown_it import MarkdownIt
from toy_claims import ENTRY, READINGS

from steinis_lib.companion import claims, results
from steinis_lib.companion.claims import Claim, Finding
from steinis_lib.companion.claims_page import brief_table, claims_table, readings_blocks
from steinis_lib.companion.intervals import Estimate
from steinis_lib.companion.reading_claims import Judged, Reading

ODD = {
    "paper": "the mean of |A| and |B| grows as O(|A|²), q_t and q_ℓ",
    "paper_value": "E[Ẑ] = Z | nearly",
    "measure": "∫|dKL/dt + KSD²|dt < 1 & a_b_c",
    "over": "trials | images",
    "partly": (-1, math.inf),
}


@pytest.fixture
def findings(monkeypatch, tmp_path):
    """Four claims, the first with four readings and odd text, the last not yet run."""
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    toy_claims.install(monkeypatch)
    toy_claims.store(toy_claims.tree(shift=0.25))
    odd = Claim.model_validate(ENTRY | ODD | {"readings": READINGS})
    return claims.evaluate([odd, *toy_claims.ledger()[1:]])


def rendered(markdown):
    """The rows of a table's cells as (text, links and spans), as a Markdown parser sees them."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(markdown)
    rows = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        if token.type == "inline" and rows and token.level > 2:
            parts = token.children
            text = "".join(p.content for p in parts if p.type in ("text", "code_inline"))
            rows[-1].append((text, token.content))
    return rows


def test_the_table_has_a_row_for_each_claim_and_shows_its_text_unchanged(findings):
    head, *rows = rendered(claims_table(findings))
    assert len(rows) == 4
    for row, f in zip(rows, findings, strict=True):
        assert len(row) == len(head)
        texts = [text for text, _ in row]
        for expected in (f.claim.paper, f.claim.where, f.claim.paper_value, f.ours, f.robustness):
            assert any(expected in text for text in texts), expected
        (measured,) = (text for text in texts if text.startswith(f.claim.measure))
        assert f"Interval over {f.claim.over}." in measured
    verdicts = ["".join(source for _, source in row) for row in rows]
    assert '<span class="verdict verdict-not-reproduced">not reproduced</span>' in verdicts[1]
    assert "{ref}`figure <fig-toy>`" in verdicts[1]
    assert "verdict-not-yet-run" in verdicts[3] and "{ref}`figure" not in verdicts[3]
    assert "Reproduced if within -0.5 to 1.5, not reproduced if outside -1 to ∞." in verdicts[0]


def test_the_brief_table_has_what_was_run_and_counts_the_rest(findings):
    text = brief_table(findings)
    head, *rows = rendered(text)
    assert len(head) == len(rows) == 3
    assert [row[0][0] for row in rows] == [f.claim.paper for f in findings[:3]]
    assert "verdict-not-reproduced" in rows[1][1][1] and "<fig-toy>" in rows[1][1][1]
    assert text.endswith("\n\n1 further claims of the paper are not yet run.\n")
    assert "not yet run" not in brief_table(findings[:3])


def test_both_tables_link_to_the_readings_of_claims_that_have_several(findings):
    labels = re.findall(r"^\((readings-[\w-]+)\)=$", readings_blocks(findings), re.MULTILINE)
    assert labels == ["readings-small"]
    for text in (claims_table(findings), brief_table(findings)):
        assert re.findall(r"\{ref\}`all <([\w-]+)>`", text) == labels


def test_a_claim_has_a_figure_and_a_row_for_each_reading_in_the_order_of_the_ledger(findings):
    text = readings_blocks(findings)
    assert text.count("```{raw} html") == text.count("<svg") == 1
    (f, *_) = findings
    head, *rows = rendered(text)
    assert [row[0][0] for row in rows] == ["1", "2", "3", "4"]
    for row, judged in zip(rows, f.readings, strict=True):
        assert len(row) == len(head)
        texts = [text for text, _ in row]
        assert texts[1].startswith(judged.reading.name) and texts[3] == judged.text("nats")
        assert judged.reading.why in texts[5] and judged.verdict in row[4][1]
    assert [row[1][0].endswith("(primary)") for row in rows] == [True, False, False, False]
    assert rows[3][2][0] == "kernel rule, target hard"
    assert f.robustness.removeprefix("reproduced") in text


def test_readings_that_are_not_yet_run_are_listed_without_a_figure(monkeypatch):
    toy_claims.install(monkeypatch)
    (claim, *_) = toy_claims.ledger()
    waiting = Finding(claim, tuple(Judged(r, r.choices) for r in claim.readings))
    text = readings_blocks([waiting])
    assert "<svg" not in text and text.count("verdict-not-yet-run") == 5
    assert "4 readings, not yet run" in text


def test_a_reading_with_ranges_or_a_result_of_its_own_says_so(findings):
    (f, *_) = findings
    own = Reading(name="own", why="Odd.", experiment="other", choices={"wide": True})
    judged = Judged(own, own.choices, ((0, 9), (-9, 99)), Estimate(1, 0, 2), "reproduced")
    *_, row = rendered(readings_blocks([Finding(f.claim, (*f.readings, judged))]))
    assert row[2][0] == "wide, result of other"
    assert row[5][0] == "Odd. Reproduced if within 0 to 9, not reproduced if outside -9 to 99."


def test_the_ledgers_own_table_keeps_every_claim_whole(monkeypatch, tmp_path):
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    ledger = claims.ledger()
    head, *rows = rendered(claims_table(claims.evaluate(ledger)))
    assert [len(row) for row in rows] == [len(head)] * len(ledger)
    for row, claim in zip(rows, ledger, strict=True):
        texts = [text for text, _ in row]
        for expected in (claim.paper, claim.where, claim.paper_value, claim.measure):
            assert any(expected in text for text in texts), expected
