"""What runs methods over the targets of benchmarks/evidence: lines of JSON, limits, tables."""

import json
import math
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from evidence import methods, run, table
from evidence.case import Truth
from evidence.cases import CASES
from evidence.methods import Found

CASE = CASES["gaussian-1"]


def row(case="gaussian-1", **changes):
    found = {"case": case, "method": "steinis", "seed": 0, "log_z": 1.0, "error": 0.001}
    found |= {"se": 0.002, "evaluations": 1000, "seconds": 1.5, "warnings": [], "failure": ""}
    return found | changes


@pytest.fixture
def counted(monkeypatch):
    """A method that is right, and notes its calls."""
    calls = []

    def exact(case, seed):
        calls.append((case.name, seed))
        return Found(case.truth.log_z + 0.01, 0.02, 50, ("a warning",))

    monkeypatch.setitem(methods.METHODS, "steinis", exact)
    return calls


def test_a_run_is_a_line_with_its_error_and_its_cost(counted, tmp_path):
    path = tmp_path / "found.jsonl"
    run.run(["gaussian-1"], ["steinis"], [3], path, 60.0)
    (line,) = map(json.loads, path.read_text("utf-8").splitlines())
    assert line["error"] == pytest.approx(0.01) and line["se"] == 0.02
    assert (line["case"], line["method"], line["seed"]) == ("gaussian-1", "steinis", 3)
    assert line["evaluations"] == 50 and line["warnings"] == ["a warning"]
    assert line["seconds"] >= 0 and line["failure"] == "" and line["commit"] == line["version"]


def test_what_is_done_is_not_repeated_and_a_torn_line_is(counted, tmp_path):
    path = tmp_path / "found.jsonl"
    names = ["gaussian-1", "quartic-6"]
    run.run(names, ["steinis"], [0], path, 60.0)
    text = path.read_text("utf-8")
    path.write_text(text[:-20], "utf-8")  # the last line was cut off
    run.run(names, ["steinis"], [0, 1], path, 60.0)
    assert counted == [*((n, 0) for n in names), ("quartic-6", 0), *((n, 1) for n in names)]
    assert [(r["case"], r["seed"]) for r in run.read(path)] == [
        (n, s) for s in (0, 1) for n in names
    ]


def test_another_version_is_run_anew(counted, tmp_path, monkeypatch):
    path = tmp_path / "found.jsonl"
    about = {"machine": "m", "torch": "t"}
    for commit in ("a", "b", "b"):
        monkeypatch.setattr(run, "provenance", lambda _, c=commit: about | {"commit": c})
        run.run(["gaussian-1"], ["steinis"], [0], path, 60.0)
    assert [r["version"] for r in run.read(path)] == ["a", "b"]


def test_a_method_that_refuses_is_a_line_too(monkeypatch):
    def refuses(case, seed):
        raise FloatingPointError("log_prob is infinite")

    monkeypatch.setitem(methods.METHODS, "steinis", refuses)
    found = run.measure(CASE, "steinis", 0, 60.0)
    assert found["failure"] == "FloatingPointError: log_prob is infinite"
    assert found["log_z"] is found["error"] is found["se"] is None
    json.dumps(found, allow_nan=False)


def test_an_infinite_truth_leaves_no_error(counted):
    case = replace(CASE, find_truth=lambda: Truth(math.inf, 0.0, "closed form"))
    monkeyed = run.measure(case, "steinis", 0, 60.0)
    assert monkeyed["error"] is None


def test_a_run_is_stopped_at_its_limit(monkeypatch):
    def sleeps(case, seed):
        time.sleep(30)

    monkeypatch.setitem(methods.METHODS, "steinis", sleeps)
    found = run.measure(CASE, "steinis", 0, 0.05)
    assert found["failure"] == "RuntimeError: stopped after 0.05 seconds"
    assert found["seconds"] < 10


def test_an_unknown_case_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run", "--cases", "no-such", "--output", "x.jsonl"])
    with pytest.raises(SystemExit):
        run.main()
    assert "no such case: no-such; there are gaussian-1" in capsys.readouterr().err


def test_a_missing_peer_stops_the_run_and_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "nautilus", None)
    with pytest.raises(SystemExit, match=r"nautilus.*pip install -e \.\[evidence\]"):
        methods.version("nautilus")


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "right"),
        ({"warnings": ["w"]}, "false alarm"),
        ({"error": -0.06}, "silent"),
        ({"error": -0.06, "se": 0.02}, "right"),
        ({"error": -0.06, "warnings": ["w"]}, "flagged"),
        ({"failure": "ValueError: no"}, "failed"),
        ({"case": "constant-1", "error": None}, "silent"),
        ({"case": "constant-1", "error": None, "warnings": ["w"]}, "flagged"),
        ({"case": "float32-binomial-1"}, "silent"),
    ],
)
def test_a_run_is_judged_by_its_error_and_its_warnings(changes, verdict):
    found = row(**changes)
    assert table.judged(CASES[found["case"]], found) == verdict


def test_tables_have_a_line_for_each_run_and_counts_for_each_class():
    rows = [row("t3-2"), row(), row(seed=1, error=-0.2), row("constant-1", error=None)]
    text = table.table(rows).splitlines()
    assert "| smooth | gaussian-1 | steinis | 0 | +0.0010 | 0.0020 | 1,000 | 1.5 | right |" in text
    assert [line.split(" | ")[1] for line in text[2:]] == [
        "gaussian-1",
        "gaussian-1",
        "t3-2",
        "constant-1",
    ]
    counts = table.summary(rows).splitlines()
    assert "| steinis | smooth and skewed | 1 | 0 | 0 | 1 | 0 |" in counts
    assert "| steinis | flat and improper | 0 | 0 | 0 | 1 | 0 |" in counts


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(methods.PEERS))
def test_a_peer_finds_the_evidence_of_an_easy_case(name):
    pytest.importorskip(name, reason="the extra evidence is not installed")
    found = methods.METHODS[name](CASES["two-equal-2"], 0)
    assert abs(found.log_z) < 5 * found.se + 0.05 and 0 < found.se < 1
    assert found.evaluations > 1000


@pytest.mark.slow
def test_our_method_finds_the_evidence_of_an_easy_case():
    found = methods.METHODS["steinis"](CASE, 0)
    assert abs(found.log_z - CASE.truth.log_z) < 5 * found.se + 1e-3
    assert found.evaluations > 1000 and np.isfinite(found.se)
