import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import synthetic
import yaml
from markdown_it import MarkdownIt

from steinis_lib.companion import claims, results
from steinis_lib.companion.checkout import ROOT
from steinis_lib.companion.claims import Claim, Finding
from steinis_lib.companion.intervals import Estimate
from steinis_lib.companion.registry import EXPERIMENTS, STATISTICS

GOOD = {
    "id": "kl-exponential-steinis",
    "where": "5.1",
    "paper": "KL decays exponentially",
    "paper_value": "exponential",
    "measure": "decades",
    "experiment": "gmm-convergence",
    "reproduced": [2, 3],
    "partly": [0.5, 4],
    "figure": "fig-kl-decay",
}


LEDGER = claims.ledger()
SECTION_1 = [c for c in LEDGER if c.experiment in ("gmm-convergence", "algorithm-checks")]


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """An empty results folder."""
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    return tmp_path


# ------------------------------------------------------------------------------- the ledger


def test_the_ledger_parses_and_its_ids_are_unique():
    ids = [claim.id for claim in LEDGER]
    assert len(ids) >= 30
    assert len(set(ids)) == len(ids)


def test_every_claim_with_an_experiment_has_a_statistic_and_none_is_left_over():
    tested = {claim.id for claim in LEDGER if claim.experiment}
    assert tested == set(STATISTICS)


def test_every_claim_with_an_experiment_points_to_a_figure_of_the_book():
    sources = [
        "".join(cell["source"])
        for path in (ROOT / "notebooks").glob("**/*.ipynb")
        for cell in json.loads(path.read_text("utf-8"))["cells"]
        if cell["cell_type"] == "markdown"
    ]
    sources += [path.read_text("utf-8") for path in (ROOT / "book").glob("*.md")]
    labels = [m for text in sources for m in re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE)]
    assert len(set(labels)) == len(labels)
    for claim in LEDGER:
        if claim.experiment:
            assert claim.figure in labels, claim.id


def test_every_claim_says_in_words_what_is_claimed_and_measured():
    for claim in LEDGER:
        assert claim.where and claim.paper and claim.paper_value and claim.measure, claim.id


def ledger_of(tmp_path, *entries):
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump([dict(e) for e in entries]), "utf-8")
    return claims.ledger(path)


def test_a_good_entry_is_read(tmp_path):
    (claim,) = ledger_of(tmp_path, GOOD)
    assert claim.reproduced == (2, 3)
    (unbounded,) = ledger_of(tmp_path, GOOD | {"partly": [0, math.inf]})
    assert unbounded.partly == (0, math.inf)


MALFORMED = {
    "unknown experiment": {"experiment": "no-such"},
    "no figure": {"figure": None},
    "no range": {"reproduced": None},
    "not nested": {"reproduced": [0, 3]},
    "reversed": {"reproduced": [3, 2]},
    "nan": {"reproduced": [math.nan, 3]},
    "half a range": {"partly": [1]},
    "text for a range": {"partly": "wide"},
    "unknown key": {"figur": "fig-kl-decay"},
    "number for text": {"where": 5.1},
    "missing text": {"measure": None},
}


@pytest.mark.parametrize("change", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_entry_gives_an_error_naming_the_id(tmp_path, change):
    other = {k: v for k, v in GOOD.items() if k in ("where", "paper", "paper_value", "measure")}
    entries = [other | {"id": "fine"}, {k: v for k, v in (GOOD | change).items() if v is not None}]
    with pytest.raises(ValueError, match="kl-exponential-steinis") as caught:
        ledger_of(tmp_path, *entries)
    wrong = next(iter(change))
    assert wrong in str(caught.value) or repr(change[wrong]) in str(caught.value)


def test_an_experiment_without_a_statistic_is_refused(tmp_path):
    with pytest.raises(ValueError, match="new-claim.*no section has a statistic"):
        ledger_of(tmp_path, GOOD | {"id": "new-claim"})


def test_an_id_that_occurs_twice_is_refused(tmp_path):
    with pytest.raises(ValueError, match="twice.*kl-exponential-steinis"):
        ledger_of(tmp_path, GOOD, GOOD)


# --------------------------------------------------------------------------------- verdicts

CLAIM = Claim.model_validate(GOOD)  # reproduced in [2, 3], partly in [0.5, 4]


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (2.0, 3.0, "reproduced"),
        (2.4, 2.6, "reproduced"),
        (1.999, 2.6, "partly"),
        (2.4, 3.001, "partly"),
        (1.0, 1.5, "partly"),
        (0.0, 9.0, "partly"),
        (0.0, 0.5, "partly"),
        (0.0, 0.499, "not reproduced"),
        (4.0, 5.0, "partly"),
        (4.001, 5.0, "not reproduced"),
        (5.0, math.inf, "not reproduced"),
        (-math.inf, math.inf, "partly"),
    ],
)
def test_the_verdict_follows_from_the_interval(low, high, verdict):
    assert CLAIM.judge(Estimate(2.5, low, high)) == verdict


def test_a_range_may_be_unbounded():
    claim = CLAIM.model_copy(update={"reproduced": (2, math.inf), "partly": (0.5, math.inf)})
    assert claim.judge(Estimate(3, 2, 1e9)) == "reproduced"
    assert claim.judge(Estimate(math.inf, 2, math.inf)) == "reproduced"


@pytest.mark.parametrize("position", ["value", "low", "high"])
def test_nan_is_no_verdict(position):
    estimate = replace(Estimate(2.5, 2.4, 2.6), **{position: math.nan})
    with pytest.raises(ValueError, match="kl-exponential-steinis.*NaN"):
        CLAIM.judge(estimate)


ALL_REPRODUCED = {claim.id: "reproduced" for claim in SECTION_1}
KL = ("kl-exponential-steinis", "kl-exponential-svgd")
KSD = ("ksd-exponential-steinis", "ksd-exponential-svgd")
RISING = np.where(synthetic.TIME > 30, 0.1, np.exp(-0.2 * synthetic.TIME))
FLOOR = np.maximum(np.exp(-0.2 * synthetic.TIME), 0.1)  # one decade, then flat

CASES = {
    "all as claimed": ({}, {}, {}),
    "KL as a power law": ({"kl": synthetic.power_law()}, {}, dict.fromkeys(KL, "not reproduced")),
    "KSD² as a power law": (
        {"ksd2": synthetic.power_law()},
        {},
        dict.fromkeys(KSD, "not reproduced"),
    ),
    "KL falls one decade": ({"kl": synthetic.trials(FLOOR)}, {}, dict.fromkeys(KL, "partly")),
    "KL rises everywhere": (
        {"kl": synthetic.trials(1 + synthetic.TIME)},
        {},
        dict.fromkeys((*KL, "kl-monotone-mean-field", "kl-monotone-followers"), "not reproduced"),
    ),
    "KL of followers rises": (
        {"kl": synthetic.trials(RISING), "mean_field_kl": synthetic.exponential()},
        {},
        {"kl-monotone-followers": "not reproduced"},
    ),
    "mean field rises in some trials": (
        {"mean_field_kl": synthetic.trials(np.exp(-0.2 * synthetic.TIME), RISING, 10)},
        {},
        {"kl-monotone-mean-field": "partly"},
    ),
    "dKL/dt is a tenth off": ({"mismatch": 0.1}, {}, {"kl-rate-is-ksd": "partly"}),
    "dKL/dt is twice as large": ({"mismatch": 1.0}, {}, {"kl-rate-is-ksd": "not reproduced"}),
    "dKL/dt has the other sign": ({"mismatch": -2.0}, {}, {"kl-rate-is-ksd": "not reproduced"}),
    "Ẑ is 3 % low": ({}, {"bias": -0.03}, {"z-unbiased": "partly"}),
    "Ẑ is 10 % high": ({}, {"bias": 0.1}, {"z-unbiased": "not reproduced"}),
    "determinant of order one": ({}, {"power": 1.0}, {"determinant-order": "not reproduced"}),
    "determinant of order 1.7": ({}, {"power": 1.7}, {"determinant-order": "partly"}),
    "continuing is off by round-off": ({}, {"difference": 1e-9}, {"continuing-is-free": "partly"}),
    "continuing is off": ({}, {"difference": 1e-3}, {"continuing-is-free": "not reproduced"}),
    "errors are too small": ({}, {"within": 0.6}, {"ess-stopping": "not reproduced"}),
    "errors are a little small": ({}, {"within": 0.9}, {"ess-stopping": "partly"}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("gmm", "checks", "expected"), CASES.values(), ids=CASES.keys())
def test_verdicts_on_results_whose_truth_is_known(gmm, checks, expected):
    gmm, checks = synthetic.gmm_convergence(**gmm), synthetic.algorithm_checks(**checks)
    trees = {"gmm-convergence": gmm, "algorithm-checks": checks}
    for claim in SECTION_1:
        verdict = claim.judge(STATISTICS[claim.id](trees[claim.experiment]))
        assert verdict == (ALL_REPRODUCED | expected)[claim.id], claim.id


def test_every_verdict_can_go_either_way():
    """Each claim is refuted by one of the cases above: no verdict is a foregone conclusion."""
    refuted = {i for _, _, e in CASES.values() for i, v in e.items() if v == "not reproduced"}
    assert refuted == {claim.id for claim in SECTION_1}


# ------------------------------------------------------------- from stored results to pages


def test_without_results_nothing_has_a_verdict(folder):
    findings = claims.evaluate(LEDGER)
    assert [f.claim for f in findings] == LEDGER
    assert {f.verdict for f in findings} == {"not yet run"}
    assert {f.ours for f in findings} == {"–"}
    assert all(f.record()["ours"] is f.record()["uncertainty"] is None for f in findings)


@pytest.mark.slow
def test_a_claim_is_judged_by_its_own_stored_result_at_profile_paper(folder):
    synthetic.store(gmm_convergence=synthetic.gmm_convergence())
    findings = {f.claim.id: f for f in claims.evaluate(LEDGER)}
    for claim in LEDGER:
        run = claim.experiment == "gmm-convergence"
        assert findings[claim.id].verdict == ("reproduced" if run else "not yet run")
    record = findings["kl-exponential-svgd"].record()
    assert record["ours"] == pytest.approx(12 / math.log(10))
    assert record["uncertainty"] == pytest.approx([record["ours"]] * 2)
    assert record["section"] == "5.1, Figure 2a" and record["paper"] == "exponential"
    assert findings["kl-exponential-svgd"].ours == "5.21 [5.21, 5.21] decades"


@pytest.mark.slow
def test_a_result_at_profile_quick_or_with_other_parameters_is_no_evidence(folder):
    experiment = EXPERIMENTS["gmm-convergence"]
    tree = synthetic.gmm_convergence()
    for p in (
        experiment.parameters.of_profile("quick"),
        experiment.parameters.of_profile("paper", {"n_trials": 3}),
    ):
        tree.attrs["parameters"] = p.model_dump_json()
        results.save(tree, results.RESULTS / "gmm-convergence" / "paper.nc")
        assert {f.verdict for f in claims.evaluate(LEDGER)} == {"not yet run"}


@pytest.mark.slow
def test_published_verdicts_follow_from_the_data_until_the_data_change(folder):
    path = folder / "verdicts.json"
    synthetic.store(
        gmm_convergence=synthetic.gmm_convergence(), algorithm_checks=synthetic.algorithm_checks()
    )
    some = [c for c in LEDGER if c.id in (*KL, "z-unbiased", "cost-formula")]
    claims.publish(claims.evaluate(some), path)
    assert claims.discrepancies(claims.evaluate(some), path) == []
    assert len(json.loads(path.read_text("utf-8"))) == 4
    synthetic.store(gmm_convergence=synthetic.gmm_convergence(kl=synthetic.power_law()))
    lines = claims.discrepancies(claims.evaluate(some), path)
    assert any(re.match("kl-exponential-svgd: .*'reproduced'.*'not reproduced'", s) for s in lines)
    assert {line.split(":")[0] for line in lines} == set(KL)


@pytest.fixture
def published(folder):
    """Three findings, the path they are published at, and a way to change what is published."""
    path = folder / "verdicts.json"
    a, b, c = LEDGER[:3]
    findings = [
        Finding(a, "reproduced", Estimate(2.5, 2.25, 2.75)),
        Finding(b, "partly", Estimate(1.0, 0.6, 1.4)),
        Finding(c, "not yet run"),
    ]
    claims.publish(findings, path)

    def change(edit):
        table = json.loads(path.read_text("utf-8"))
        edit(table)
        path.write_text(json.dumps(table), "utf-8")
        return claims.discrepancies(findings, path)

    assert claims.discrepancies(findings, path) == []
    return [f.claim.id for f in findings], findings, change, path


def test_a_changed_verdict_is_found(published):
    (a, _, c), _, change, _ = published
    (line,) = change(lambda table: table[a].update(verdict="partly"))
    assert line == f"{a}: published 'partly', but the data say 'reproduced'"
    lines = change(lambda table: table[c].update(verdict="reproduced"))
    assert f"{c}: published 'reproduced', but the data say 'not yet run'" in lines


@pytest.mark.parametrize("key", ["value", "low", "high"])
def test_a_changed_number_is_found(published, key):
    (a, _, _), _, change, _ = published
    (line,) = change(lambda table: table[a].update({key: table[a][key] * 1.0001}))
    assert line.startswith(f"{a}: published {key} 2.")


def test_a_number_that_is_gone_is_found(published):
    (a, _, _), _, change, _ = published
    (line,) = change(lambda table: table[a].pop("low"))
    assert line.startswith(f"{a}: published low None")


def test_round_off_is_no_discrepancy(published):
    (a, _, _), _, change, _ = published
    assert change(lambda table: table[a].update(value=table[a]["value"] * (1 + 1e-9))) == []


def test_a_missing_and_an_orphan_entry_are_found(published):
    (a, b, _), _, change, _ = published
    lines = change(lambda table: table.update(orphan=table.pop(b)))
    assert lines == [
        f"{b}: the data say 'partly', but no verdict is published",
        "orphan: a verdict is published, but the ledger has no such claim",
    ]


def test_without_published_verdicts_every_claim_is_missing(published):
    ids, findings, _, path = published
    path.unlink()
    assert [line.split(":")[0] for line in claims.discrepancies(findings, path)] == ids


def test_what_is_published_is_plain_json(published):
    def refuse(name):
        raise AssertionError(name)

    _, _, _, path = published
    table = json.loads(path.read_text("utf-8"), parse_constant=refuse)
    assert all(set(row) <= {"verdict", "value", "low", "high"} for row in table.values())


@pytest.mark.slow
def test_the_published_verdicts_follow_from_the_stored_results():
    assert claims.discrepancies(claims.evaluate(LEDGER)) == []


# --------------------------------------------------------------------------------- the table


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


def some_findings():
    odd = {
        "paper": "the mean of |A| and |B| grows as O(|A|²), q_t and q_ℓ",
        "paper_value": "E[Ẑ] = Z | nearly",
        "measure": "∫|dKL/dt + KSD²|dt < 1 & a_b_c",
    }
    claim = Claim.model_validate(GOOD | odd)
    waiting = Claim(id="later", where="5.3", paper="p", paper_value="v", measure="m|n")
    return [Finding(claim, "not reproduced", Estimate(1, 0.5, 2)), Finding(waiting, "not yet run")]


def test_the_table_has_a_row_for_each_claim_and_shows_its_text_unchanged(monkeypatch):
    findings = some_findings()
    monkeypatch.setattr(claims, "evaluate", lambda ledger: findings)
    head, *rows = rendered(claims.markdown_table())
    assert len(rows) == 2
    for row, f in zip(rows, findings, strict=True):
        assert len(row) == len(head)
        texts = [text for text, _ in row]
        for expected in (f.claim.paper, f.claim.where, f.claim.paper_value, f.ours):
            assert any(expected in text for text in texts), expected
        assert any(text.startswith(f.claim.measure) for text in texts)
    verdicts = ["".join(source for _, source in row) for row in rows]
    assert '<span class="verdict verdict-not-reproduced">not reproduced</span>' in verdicts[0]
    assert "{ref}`figure <fig-kl-decay>`" in verdicts[0]
    assert "verdict-not-yet-run" in verdicts[1] and "{ref}" not in verdicts[1]


def test_the_brief_table_has_what_was_run_and_counts_the_rest(monkeypatch):
    findings = some_findings()
    monkeypatch.setattr(claims, "evaluate", lambda ledger: findings)
    text = claims.markdown_table(brief=True)
    head, row = rendered(text)
    assert len(head) == len(row) == 2
    assert row[0][0] == findings[0].claim.paper
    assert "verdict-not-reproduced" in row[1][1] and "<fig-kl-decay>" in row[1][1]
    assert text.endswith("\n\n1 further claims of the paper are not yet run.\n")


def test_the_ledgers_own_table_keeps_every_claim_whole(folder):
    head, *rows = rendered(claims.markdown_table())
    assert [len(row) for row in rows] == [len(head)] * len(LEDGER)
    for row, claim in zip(rows, LEDGER, strict=True):
        texts = [text for text, _ in row]
        for expected in (claim.paper, claim.where, claim.paper_value, claim.measure):
            assert any(expected in text for text in texts), expected
