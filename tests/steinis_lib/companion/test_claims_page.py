import math
import re

import pytest
import toy_claims
from markdown_it import MarkdownIt
from toy_claims import ENTRY, READINGS

from steinis_lib.companion import claims, results
from steinis_lib.companion.claims import Claim, Finding
from steinis_lib.companion.claims_page import (
    claim_text,
    claims_by_section,
    claims_by_verdict,
    claims_table,
    readings_blocks,
)
from steinis_lib.companion.directions import direction
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
        known = (f.claim.paper[1:], f.claim.where, f.claim.paper_value, f.ours, f.robustness)
        for expected in known:
            assert any(expected in text for text in texts), expected
        assert f"{f.claim.measure}. Interval over {f.claim.over}." in texts[0]
        assert f'<span id="claim-{f.claim.id}">' in row[0][1]
        assert direction(f) in texts[3]
    verdicts = ["".join(source for _, source in row) for row in rows]
    assert '<span class="verdict verdict-not-reproduced">not reproduced</span>' in verdicts[1]
    assert "{ref}`Figure in no section <fig-toy>`" in verdicts[1]
    assert "<em>smaller than claimed</em>" in verdicts[1]
    assert "verdict-not-yet-run" in verdicts[3] and "<fig-toy>" not in verdicts[3]
    assert "Reproduced if within -0.5 to 1.5, not reproduced if outside -1 to ∞." in verdicts[0]


def test_each_verdict_that_occurs_has_a_heading_and_links_to_its_claims(findings):
    parts = claims_by_verdict(findings).split("### ")
    counted = {"Not reproduced": 1, "Reproduced": 2, "Not yet run": 1}
    assert [part.splitlines()[0] for part in parts[1:]] == [f"{v}: {n}" for v, n in counted.items()]
    assert parts[0] == "(claims-not-reproduced)=\n"
    links = [re.findall(r'href="#claim-(\w+)"', part) for part in parts[1:]]
    assert links == [["large"], ["small", "plain"], ["later"]]
    assert parts[1].rstrip().startswith("Not reproduced: 1\n\n- <a")
    assert "(no section): **smaller than claimed**" in parts[1]


def test_each_section_has_a_heading_its_counts_and_a_table(monkeypatch, tmp_path):
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    found = claims.evaluate(claims.ledger())
    text = claims_by_section(found)
    heads = re.findall(r"^### (Section \d\. .+)$", text, re.MULTILINE)
    assert [head[:10] for head in heads] == [f"Section {n}." for n in range(1, 7)]
    counted = re.findall(r"^(\d+) not yet run\. \{doc\}`Go to the", text, re.MULTILINE)
    assert sum(map(int, counted)) == len(found)
    assert text.count('<span id="claim-') == len(found)


def test_the_table_links_to_the_readings_of_claims_that_have_several(findings):
    labels = re.findall(r"^\((readings-[\w-]+)\)=$", readings_blocks(findings), re.MULTILINE)
    assert labels == ["readings-small"]
    assert re.findall(r"\{ref\}`all <([\w-]+)>`", claims_table(findings)) == labels


@pytest.mark.parametrize(
    ("paper", "shown"),
    [("the mean is small", "The mean is small"), ("dKL/dt falls", "dKL/dt falls"),
     ("SteinIS is fast", "SteinIS is fast"), ("a cost of |A|", r"A cost of \|A\|")],
)  # fmt: skip
def test_a_plain_word_at_the_beginning_has_a_capital(paper, shown):
    assert claim_text(Claim.model_validate(ENTRY | {"experiment": None, "paper": paper})) == shown


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
        for expected in (claim.paper[1:], claim.where, claim.paper_value, claim.measure):
            assert any(expected in text for text in texts), expected
