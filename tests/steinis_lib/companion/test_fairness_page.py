import json
import math

import pytest
import toy_claims
import xarray as xr

from steinis_lib.companion import fairness_page
from steinis_lib.companion.checkout import ROOT
from steinis_lib.companion.fairness_page import (
    at_an_end,
    error_rates_table,
    rates_of,
    tuning_rows,
    tuning_tables,
)
from steinis_lib.companion.obtain import stored
from steinis_lib.companion.registry import EXPERIMENTS
from steinis_lib.companion.search import Failure, search
from steinis_lib.companion.sections.s3_adaptive_is.problem import KINDS, RATES
from steinis_lib.companion.settings import TUNED, Axis, Setting, axes_of
from steinis_lib.companion.tuning_records import tuning_record


def case(where, side, reproduced, partly, not_reproduced):
    counts = {"reproduced": reproduced, "partly": partly, "not reproduced": not_reproduced}
    return {"where": where, "side": side, "value": 1.0, "counts": counts}


MEASURED = {
    "how": "x_1 times a factor",
    "trials": [20, 100],
    "cases": [
        case("middle", "", 75, 24, 1),
        case("edge", "lower", 4, 196, 0),
        case("outside", "lower", 0, 60, 140),
        case("edge", "upper", 11, 187, 2),
        case("outside", "upper", 0, 200, 0),
    ],
}


def test_of_two_edges_the_larger_rate_counts():
    assert rates_of(MEASURED) == {
        "true, in the middle": 0.01,
        "true, at the edge": 0.01,
        "false, at the edge": 0.055,
        "false, outside": 0.0,
    }


@pytest.fixture
def table(monkeypatch, tmp_path):
    toy_claims.install(monkeypatch)
    claims = {
        "small": MEASURED,
        "large": {"exact": True},
        "plain": {"skipped": "toy_a has no result"},
        "later": {"skipped": "toy_a has no result"},
    }

    def write(**changes):
        path = tmp_path / "rates.json"
        record = {"repeats": 200, "claims": {k: v for k, v in (claims | changes).items() if v}}
        path.write_text(json.dumps(record), "utf-8")
        return error_rates_table(toy_claims.ledger(), path)

    return write


def test_the_table_of_error_rates(table):
    lines = table().splitlines()
    assert {line.count("|") - line.count("\\|") for line in lines[:4]} == {8}
    row = next(line for line in lines if "`small`" in line)
    assert row.startswith(
        "| the mean of \\|x\\| is small (`small`; x\\_1 times a factor) | 20 to 100 |"
    )
    assert row.endswith("| 1.0 % | 1.0 % | **5.5 %** | 0 | 75.0 % |")
    assert "| nothing is random | – | – | – | – | – |" in next(x for x in lines if "`large`" in x)
    assert any(line.startswith("From 200 made-up results") for line in lines)
    assert "Left out, because toy\\_a has no result: `plain`, `later`." in lines


def test_what_was_not_measured_is_said(table, tmp_path):
    assert "Left out, because it was not measured: `small`." in table(small=None)
    with pytest.raises(FileNotFoundError, match="python benchmarks/error_rates"):
        error_rates_table([], tmp_path / "nothing.json")


def record(axes, best, n=12, failing=None):
    """A search whose best α is `best`, and which diverges above `failing`."""

    def evaluate(setting: Setting):
        if failing is not None and setting.alpha > failing:
            return -math.inf, math.inf, 5, Failure.DIVERGED
        return -((math.log(setting.alpha) - math.log(best)) ** 2), 0.1, 5, Failure.NONE

    return tuning_record(search(axes, evaluate, n))


def tree(**groups):
    return xr.DataTree.from_dict({name.replace("_", "-"): group for name, group in groups.items()})


def test_rows_say_which_problem_was_tuned_by_which_method():
    adaptive = xr.concat([record((RATES[u],), 0.01, 6) for _, u in KINDS], "trial")
    found = {
        "easy-tuning-hais-full": record(axes_of("hais-full"), 0.3),
        "standard-tuning-hais-1l-partial-100": record(axes_of("hais-1l-partial"), 0.3),
        "main-pilot-refine-poor-steinis-wide": record(axes_of("steinis-wide"), 0.3),
        "main-pilot-adaptive-0.3": adaptive,
        "main-steinis-wide-100": record(axes_of("steinis-wide"), 0.3),  # no pilot
    }
    rows, others = tuning_rows(tree(**found))
    assert others == []
    assert [(row["problem"], row["method"]) for row in rows] == [
        ("easy", "HAIS"),
        ("standard, d = 100", "HAIS-1L partial"),
        ("main, from the “poor” mixture", "SteinIS, wide"),
        *(("main, σ = 0.3", f"adaptive IS, {o}, {u}") for o, u in KINDS),
    ]
    assert [row["candidates"] for row in rows] == [12, 12, 12, 6, 6, 6, 6]
    assert rows[0]["score evaluations"] == 60


def test_records_of_another_tuner_are_named_and_not_shown():
    old = record(axes_of("ais"), 0.01).drop_vars("failure")
    text = tuning_tables({"rbm": tree(standard_tuning_ais_10=old)})
    assert "Left out, because another tuner made them: standard-tuning-ais-10." in text
    assert "There is no stored result with the present parameters." in text


def test_the_tables_show_each_experiment_that_tunes():
    good = record(axes_of("ais"), 0.01)
    text = tuning_tables({"rbm": tree(standard_tuning_ais_10=good)})
    titles = [line.split("} ", 1)[1] for line in text.splitlines() if line.startswith(":::{")]
    assert len(titles) == 4 and text.count("There is no stored result") == 3
    row = next(line for line in text.splitlines() if line.startswith("| standard, d = 10 | AIS"))
    assert "| 12 | 60 | 0 | 0 | step 0.01" in row and row.endswith("| step: inside |")


@pytest.mark.parametrize(
    ("n", "failing", "expected"), [(3, None, ["easy, AIS: step"]), (4, None, []), (4, 0.9, [])]
)
def test_a_setting_at_the_end_of_its_range_is_found(n, failing, expected):
    """The first grid alone ends at 0.9; the fourth candidate is the one beyond, which may fail."""
    found = record((Axis("alpha", (0.1, 0.3, 0.9), 3.0),), 0.9, 4, failing)
    rows, _ = tuning_rows(tree(easy_tuning_ais=found.isel(candidate=slice(n))))
    assert at_an_end(rows) == expected


@pytest.mark.slow
def test_no_chosen_setting_stands_at_the_end_of_its_range():
    for name in EXPERIMENTS:
        result = stored(name)
        if result is not None:
            rows, others = tuning_rows(result)
            assert (name, at_an_end(rows), others) == (name, [], [])


def test_every_tuned_method_has_a_name_and_axes():
    assert {*TUNED, "hais-full", "hais-partial"} <= {*fairness_page.NAMES}


def test_the_page_includes_both_tables():
    page = (ROOT / "book" / "fairness.md").read_text("utf-8")
    for name in ("error_rates", "tuning_table"):
        assert f"{{include}} _generated/{name}.md" in page
