"""What the landing page says follows from the ledger."""

import re
from dataclasses import replace

import pytest
import toy_claims
from bookparts import landing

from steinis_lib.companion import claims, results
from steinis_lib.companion.claims import Finding
from steinis_lib.companion.intervals import Estimate


def with_verdict(finding: Finding, estimate: Estimate) -> Finding:
    """A finding whose primary reading has another estimate, and the verdict that follows."""
    judged = replace(finding.primary, estimate=estimate, verdict=finding.claim.judge(estimate))
    return replace(finding, readings=(judged, *finding.others))


@pytest.fixture
def findings(monkeypatch: pytest.MonkeyPatch, tmp_path) -> list[Finding]:
    """Three toy claims: reproduced, not reproduced (below its range), and reproduced."""
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    toy_claims.install(monkeypatch)
    toy_claims.store(toy_claims.tree(shift=0.25))
    found = claims.evaluate(toy_claims.ledger()[:3])
    assert [f.verdict for f in found] == ["reproduced", "not reproduced", "reproduced"]
    return found


def test_the_sentence_counts_verdicts_and_how_many_speak_against_steinis(findings) -> None:
    start = "**Of 3 claims of the paper, 2 are reproduced, 0 partly, and 1 are not"
    assert landing.outcome(findings).startswith(f"{start}; in 0 of these 1,")
    good = findings[1].claim.model_copy(update={"in_favour": "high"})
    findings[1] = replace(findings[1], claim=good)
    assert "; in 1 of these 1," in landing.outcome(findings)
    assert landing.outcome(findings[::2]).endswith("and 0 are not.**")


def test_the_bar_has_a_link_for_each_verdict_that_occurs(findings) -> None:
    found = re.findall(r'flex-grow: (\d+)"><a href="(\S+)"><strong>(\d+)', landing.bar(findings))
    assert found == [
        ("2", "claims.html#claims-reproduced", "2"),
        ("1", "claims.html#claims-not-reproduced", "1"),
    ]


def test_cards_follow_the_verdicts(findings) -> None:
    _, holds, _ = landing.holds(findings)
    assert holds.startswith("2 claims are reproduced, 1 of them under every")
    assert re.findall(r"#claim-(\w+)", holds) == ["plain"]
    _, fails, _ = landing.fails(findings)
    assert re.findall(r"#claim-(\w+)", fails) == ["large"] and "smaller than claimed" in fails
    findings[1] = with_verdict(findings[1], Estimate(6.0, 5.0, 7.0))
    assert landing.fails(findings)[1] == ""
    assert re.findall(r"#claim-(\w+)", landing.holds(findings)[1]) == ["large", "plain"]


def test_the_paper_is_that_of_the_references() -> None:
    text = landing.paper()
    assert "Jun Han and Qiang Liu" in text and "UAI 2017" in text
    assert "(https://arxiv.org/abs/1704.05201)" in text and "{Stein}" not in text


def test_a_result_that_is_not_stored_is_named(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"'running-time'.*steinis run running-time"):
        landing.costs()


@pytest.mark.slow
def test_the_fragment_of_the_ledger_has_four_figures_with_descriptions() -> None:
    text = landing.fragment(claims.evaluate(claims.ledger()))
    assert text.count(":::{grid-item-card}") == 4
    labels = re.findall(r'<svg role="img" aria-label="([^"]+)"', text)
    assert len(labels) == len(set(labels)) == 4
