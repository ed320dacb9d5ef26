import json
import math
import re
from dataclasses import replace

import pytest
import toy_claims
import yaml
from toy_claims import ENTRY, READINGS

from steinis_lib.companion import claims, results
from steinis_lib.companion.checkout import ROOT
from steinis_lib.companion.claims import Claim, Finding
from steinis_lib.companion.intervals import Estimate
from steinis_lib.companion.reading_claims import AS_STATED, Judged
from steinis_lib.companion.registry import STATISTICS

LEDGER = claims.ledger()


@pytest.fixture
def toys(monkeypatch, tmp_path):
    """A ledger of toys instead of the paper's, and an empty results folder."""
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    toy_claims.install(monkeypatch)
    return toy_claims.ledger()


# ------------------------------------------------------------------------ the paper's ledger


def test_the_ledger_parses_and_its_ids_are_unique():
    ids = [claim.id for claim in LEDGER]
    assert len(ids) >= 25
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


def test_a_claim_that_can_be_read_in_several_ways_is_read_in_three_at_least():
    for claim in LEDGER:
        if claim.readings != (AS_STATED,):
            assert len(claim.readings) >= 3 and claim.over, claim.id


def test_the_ledger_is_all_files_in_order_of_name_and_its_readme_names_every_field():
    files = sorted((ROOT / "data" / "claims").glob("*.yaml"))
    ids = [entry["id"] for path in files for entry in yaml.safe_load(path.read_text("utf-8"))]
    assert [claim.id for claim in LEDGER] == ids
    readme = (ROOT / "data" / "claims" / "README.md").read_text("utf-8")
    reading_fields = type(LEDGER[0].readings[0]).model_fields
    for field in (*Claim.model_fields, *reading_fields):
        assert f"`{field}`" in readme, field


# --------------------------------------------------------------------------- made-up entries


def ledger_of(tmp_path, *entries):
    """Read entries from one file each."""
    folder = tmp_path / "ledger"
    folder.mkdir()
    for number, entry in enumerate(entries):
        (folder / f"{number}.yaml").write_text(yaml.safe_dump([dict(entry)]), "utf-8")
    return claims.ledger(folder)


def test_a_good_entry_is_read(toys, tmp_path):
    (claim,) = ledger_of(tmp_path, ENTRY | {"partly": [-1, math.inf]})
    assert claim.reproduced == (-0.5, 1.5) and claim.partly == (-1, math.inf)
    (reading,) = claim.readings
    assert (reading.name, reading.primary, reading.choices) == ("as stated", True, {})


def test_readings_are_read_with_their_choices_as_written(toys, tmp_path):
    choices = {"kernel": "wide", "target": "easy"}
    own = {"experiment": "other", "reproduced": [0, 1], "partly": [0, 2]}
    entry = READINGS[1] | {"name": "own", "choices": choices} | own
    (claim,) = ledger_of(tmp_path, ENTRY | {"readings": [*READINGS, entry]})
    assert [r.name for r in claim.readings] == [*(r["name"] for r in READINGS), "own"]
    reading = claim.readings[-1]
    assert reading.choices == choices and claim.experiment_of(reading) == "other"
    assert claim.ranges_of(reading) == ((0, 1), (0, 2))
    assert claim.ranges_of(claim.readings[0]) == (claim.reproduced, claim.partly)


MALFORMED = {
    "unknown experiment": {"experiment": "no-such"},
    "no figure": {"figure": None},
    "no range": {"reproduced": None},
    "not nested": {"reproduced": [-2, 1]},
    "reversed": {"reproduced": [1, 0]},
    "nan": {"reproduced": [math.nan, 3]},
    "half a range": {"partly": [1]},
    "text for a range": {"partly": "wide"},
    "unknown key": {"figur": "fig-toy"},
    "number for text": {"where": 5.1},
    "missing text": {"measure": None},
    "no readings": {"readings": []},
}


@pytest.mark.parametrize("change", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_entry_gives_an_error_naming_the_id(toys, tmp_path, change):
    other = {k: v for k, v in ENTRY.items() if k in ("where", "paper", "paper_value", "measure")}
    entries = [other | {"id": "fine"}, {k: v for k, v in (ENTRY | change).items() if v is not None}]
    with pytest.raises(ValueError, match="claim small") as caught:
        ledger_of(tmp_path, *entries)
    wrong = next(iter(change)).removesuffix("s")
    assert wrong in str(caught.value) or repr(change[wrong]) in str(caught.value)


WRONG_READINGS = {
    "an unknown choice": ({"choices": {"kernl": "wide"}}, r"kernl.*do not fit.*kernel='rule'"),
    "a choice that is a list": ({"choices": {"kernel": ["wide"]}}, "choices.kernel"),
    "an unknown experiment": ({"experiment": "no-such"}, "no experiment is called 'no-such'"),
    "ranges that are not nested": ({"partly": [0, 1]}, "`partly` must contain `reproduced`"),
    "no reason": ({"why": ""}, "why"),
    "two primary ones": ({"primary": True}, r"exactly one.*\['printed bandwidth', 'wrong'\]"),
    "a name twice": ({"name": "wide"}, "two readings are called 'wide'"),
    "the same measured twice": ({"choices": {"kernel": "wide"}}, "'wide' and 'wrong' measure"),
    "an unknown field": ({"chioces": {}}, "chioces"),
}


@pytest.mark.parametrize(("change", "message"), WRONG_READINGS.values(), ids=WRONG_READINGS.keys())
def test_a_wrong_reading_gives_an_error_naming_claim_and_reading(toys, tmp_path, change, message):
    choices = {"choices": {"kernel": "double", "target": "hard"}}
    wrong = READINGS[1] | {"name": "wrong"} | choices | change
    with pytest.raises(ValueError, match=r"(?s)claim small.*" + message) as caught:
        ledger_of(tmp_path, ENTRY | {"readings": [*READINGS, wrong]})
    if not {"why", "chioces"} & set(change) and "kernel" not in message:
        assert wrong["name"] in str(caught.value)


def test_an_experiment_without_a_statistic_is_refused(toys, tmp_path):
    with pytest.raises(ValueError, match="new-claim.*no section has a statistic"):
        ledger_of(tmp_path, ENTRY | {"id": "new-claim"})


def test_an_id_that_occurs_in_two_files_is_refused(toys, tmp_path):
    with pytest.raises(ValueError, match="twice.*small"):
        ledger_of(tmp_path, ENTRY, ENTRY)


# --------------------------------------------------------------------------------- verdicts


@pytest.fixture
def claim(toys):
    """A claim reproduced in [2, 3], partly in [0.5, 4]."""
    return Claim.model_validate(ENTRY | {"reproduced": [2, 3], "partly": [0.5, 4]})


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
def test_the_verdict_follows_from_the_interval(claim, low, high, verdict):
    assert claim.judge(Estimate(2.5, low, high)) == verdict


def test_a_range_may_be_unbounded(claim):
    claim = claim.model_copy(update={"reproduced": (2, math.inf), "partly": (0.5, math.inf)})
    assert claim.judge(Estimate(3, 2, 1e9)) == "reproduced"
    assert claim.judge(Estimate(math.inf, 2, math.inf)) == "reproduced"


@pytest.mark.parametrize("position", ["value", "low", "high"])
def test_nan_is_no_verdict(claim, position):
    estimate = replace(Estimate(2.5, 2.4, 2.6), **{position: math.nan})
    with pytest.raises(ValueError, match="NaN"):
        claim.judge(estimate)


# ------------------------------------------------------------- from stored results to verdicts


def test_without_results_nothing_has_a_verdict(toys):
    findings = claims.evaluate(toys)
    assert [f.claim for f in findings] == toys
    assert {f.verdict for f in findings} == {"not yet run"}
    assert {f.ours for f in findings} == {"–"}
    assert all(f.record()["ours"] is f.record()["uncertainty"] is None for f in findings)


def test_each_reading_is_judged_by_the_stored_result_with_its_choices(toys):
    toy_claims.store(toy_claims.tree(shift=0.25))
    small, large, plain, later = claims.evaluate(toys)
    assert [j.estimate.value for j in small.readings] == pytest.approx([0.25, 1.25, 2.25, 4.25])
    assert [j.verdict for j in small.readings] == [
        "reproduced", "reproduced", "partly", "not reproduced",
    ]  # fmt: skip
    assert small.verdict == "reproduced" and small.estimate == small.readings[0].estimate
    assert small.readings[1].choices == {"kernel": "double", "target": "easy"}  # by default
    assert small.robustness.startswith("reproduced under 2 of 4 readings: ")
    assert (large.verdict, plain.verdict, later.verdict) == (
        "not reproduced", "reproduced", "not yet run",
    )  # fmt: skip
    assert plain.robustness == "one reading"
    assert re.fullmatch(r"0\.25 \[0\.20\d, 0\.29\d\] %", plain.ours)


def test_the_verdict_is_that_of_the_primary_reading_wherever_it_stands(toys):
    toy_claims.store(toy_claims.tree(shift=0.25))
    readings = [r | {"primary": r["name"] == "hard targets"} for r in READINGS]
    (found,) = claims.evaluate([Claim.model_validate(ENTRY | {"readings": readings})])
    assert found.verdict == "not reproduced"
    assert found.estimate.value == pytest.approx(4.25)


def test_a_reading_with_an_experiment_and_ranges_of_its_own_is_judged_by_these(toys):
    own = {"experiment": "other", "reproduced": [100, 101], "partly": [99, 102]}
    entry = ENTRY | {"readings": [*READINGS, toy_claims.reading("own") | own]}
    toy_claims.store(toy_claims.tree())
    (found,) = claims.evaluate([Claim.model_validate(entry)])
    assert [j.verdict for j in found.readings][-1] == "not yet run"
    assert found.robustness.startswith("reproduced under 2 of 5 readings (1 not yet run): ")
    toy_claims.store(toy_claims.tree(shift=100.5), "other")
    (found,) = claims.evaluate([Claim.model_validate(entry)])
    assert [j.verdict for j in found.readings][-1] == "reproduced"
    assert found.readings[-1].estimate.value == pytest.approx(100.5)


def test_what_a_statistic_raises_names_claim_and_reading(toys):
    toy_claims.store(toy_claims.tree())
    entry = ENTRY | {"readings": [*READINGS, toy_claims.reading("typo", kernel="widd")]}
    with pytest.raises(ValueError, match="small, reading 'typo' with choices .*widd.*KeyError"):
        claims.evaluate([Claim.model_validate(entry)])
    toy_claims.store(toy_claims.tree(shift=math.nan))
    with pytest.raises(ValueError, match="small, reading 'printed bandwidth' .* is NaN"):
        claims.evaluate(toys)


def test_the_record_is_plain_and_has_all_readings(toys):
    toy_claims.store(toy_claims.tree(shift=0.25))
    record = claims.evaluate(toys)[0].record()
    assert json.loads(json.dumps(record)) == record
    assert record["ours"] == pytest.approx(0.25) and record["verdict"] == "reproduced"
    assert record["uncertainty"][0] < record["ours"] < record["uncertainty"][1]
    assert (record["section"], record["paper"]) == ("5.1", "about 0")
    assert record["interval_over"] == "trials"
    assert [r["primary"] for r in record["readings"]] == [True, False, False, False]
    last = record["readings"][-1]
    assert last["name"] == "hard targets" and last["why"] == "An author of hard targets."
    assert last["choices"] == {"kernel": "rule", "target": "hard"}
    assert last["ours"] == pytest.approx(4.25) and last["verdict"] == "not reproduced"


def test_a_result_at_profile_quick_or_with_other_parameters_is_no_evidence(toys):
    for found in (toy_claims.tree(profile="quick"), toy_claims.tree(n_trials=6)):
        toy_claims.store(found)
        assert {f.verdict for f in claims.evaluate(toys)} == {"not yet run"}


# ------------------------------------------------------------------------ published verdicts


def test_published_verdicts_follow_from_the_data_until_the_data_change(toys, tmp_path):
    path = tmp_path / "verdicts.json"
    toy_claims.store(toy_claims.tree(shift=0.25))
    claims.publish(claims.evaluate(toys), path)
    assert claims.discrepancies(claims.evaluate(toys), path) == []
    assert len(json.loads(path.read_text("utf-8"))) == 4
    toy_claims.store(toy_claims.tree(shift=5))
    lines = claims.discrepancies(claims.evaluate(toys), path)
    assert "small: published 'reproduced', but the data say 'not reproduced'" in lines
    assert "small, 'wide': published 'partly', but the data say 'not reproduced'" in lines
    assert any(line.startswith("small, 'hard targets': published value 4.25") for line in lines)
    assert "large: published 'not reproduced', but the data say 'reproduced'" in lines
    assert not any(line.startswith("later") for line in lines)


@pytest.fixture
def published(toys, tmp_path):
    """Three findings, the path they are published at, and a way to change what is published."""
    path = tmp_path / "verdicts.json"

    def finding(claim, *estimates):
        judged = [
            Judged(r, r.choices, claim.ranges_of(r), e, claim.judge(e, r)) if e else
            Judged(r, r.choices, claim.ranges_of(r))
            for r, e in zip(claim.readings, estimates, strict=True)
        ]  # fmt: skip
        return Finding(claim, tuple(judged))

    a, b, _, c = toys
    estimates = [Estimate(0.25 * i, 0.25 * i - 0.125, 0.25 * i + 0.125) for i in range(1, 5)]
    findings = [finding(a, *estimates), finding(b, Estimate(3.5, 3.25, math.inf)), finding(c, None)]
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
    (a, b, _), _, change, _ = published
    (line,) = change(lambda table: table[a].update({key: table[a][key] + 1e-4}))
    assert line.startswith(f"{a}: published {key} 0.")
    lines = change(lambda table: table[b].update(high=1e9))
    assert f"{b}: published high 1000000000.0, but the data say inf" in lines


def test_a_number_that_is_gone_is_found(published):
    (a, _, _), _, change, _ = published
    (line,) = change(lambda table: table[a].pop("low"))
    assert line.startswith(f"{a}: published low None")


def test_round_off_is_no_discrepancy(published):
    (a, _, _), _, change, _ = published
    assert change(lambda table: table[a].update(value=table[a]["value"] * (1 + 1e-9))) == []


def test_a_changed_reading_is_found(published):
    (a, _, _), _, change, _ = published
    (line,) = change(lambda table: table[a]["readings"]["wide"].update(verdict="partly"))
    assert line == f"{a}, 'wide': published 'partly', but the data say 'reproduced'"
    lines = change(lambda table: table[a]["readings"]["wide"].update(value=7.0))
    assert f"{a}, 'wide': published value 7.0, but the data say 0.75" in lines


def test_a_missing_and_an_orphan_reading_are_found(published):
    (a, _, _), _, change, _ = published
    readings = "readings"
    lines = change(lambda table: table[a][readings].update(gone=table[a][readings].pop("wide")))
    assert lines == [
        f"{a}, 'wide': the data say 'reproduced', but no verdict is published",
        f"{a}, 'gone': a verdict is published, but the ledger has no such reading",
    ]


def test_another_primary_reading_is_found(published):
    (a, _, _), _, change, _ = published
    (line,) = change(lambda table: table[a].update(reading="wide"))
    assert line == (
        f"{a}: published reading 'wide' as the primary one, but the ledger says 'printed bandwidth'"
    )


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
    numbers = {"verdict", "value", "low", "high"}
    assert all(set(row) <= numbers | {"reading", "readings"} for row in table.values())
    assert all(set(r) <= numbers for row in table.values() for r in row["readings"].values())


@pytest.mark.slow
def test_the_published_verdicts_follow_from_the_stored_results():
    assert claims.discrepancies(claims.evaluate(LEDGER)) == []
