"""The parts of the benchmarks that need no other library: helpers, tables, own versions."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import straightforward
import tables
import timing
import torch
from problems import Banana, particles

ROOT = Path(__file__).resolve().parents[1]
CPU = torch.device("cpu")


def compared_row(n, peer_seconds, device="cpu"):
    times = {"ours": [1.0, 2.0, 4.0], "Peer": peer_seconds}
    row = {"setting": {"n": n, "floats": "float32"}, "device": device}
    return row | timing.compared(times, "ours")


def report(**results):
    machine = {"created": "2026-01-02T03:04:05", "machine": "a machine", "torch": "9.9"}
    machine["peers"] = {"peer": "1.0"}
    return {"machine": machine, "settings": {"threads": 1}, "results": results}


def test_a_ratio_is_taken_within_each_repeat():
    # Medians of the two are 2 and 12; the ratios are 10, 6 and 5, and their median is not 12 / 2.
    times = {"a": [10.0, 12.0, 25.0], "b": [1.0, 2.0, 5.0]}
    assert timing.ratio(times, "a", "b") == {"median": 6.0, "quartile_1": 5.5, "quartile_3": 8.0}
    assert timing.ratio({"a": [10.0, 10.0], "b": [1.0, 2.0]}, "a", "b")["median"] == 7.5


def test_every_case_is_called_in_turn_in_a_shifting_order():
    order = []
    cases = {name: lambda name=name: order.append(name) for name in "abc"}
    times = timing.in_turn(cases, 3, CPU)
    assert "".join(order) == "abcbcacab"
    assert {name: len(values) for name, values in times.items()} == {"a": 3, "b": 3, "c": 3}


def test_a_spent_budget_leaves_the_fewest_repeats():
    cases = {"a": lambda: None, "b": lambda: None}
    assert len(timing.in_turn(cases, 50, CPU, budget=-1.0)["a"]) == timing.FEWEST


def test_a_time_is_that_of_one_call():
    ticks = iter([5.0, 11.0])
    calls = []
    once = timing.seconds(lambda: calls.append(0), CPU, lambda: next(ticks), calls=3)
    assert once == 2.0
    assert len(calls) == 3


def test_more_threads_than_allowed_are_noticed(monkeypatch):
    monkeypatch.setattr(timing.time, "process_time", lambda: 2.0 * time.perf_counter())
    cases = {"greedy": lambda: time.sleep(0.02)}
    with pytest.raises(RuntimeError, match="greedy was to keep 1 threads busy and kept 2.0"):
        timing.side_by_side(cases, 3, CPU, threads=1)


def test_a_missing_peer_stops_the_benchmark_and_says_what_to_install():
    with pytest.raises(SystemExit, match=r"no_such_peer.*pip install -e \.\[bench\]"):
        timing.peer("no_such_peer.substrate")


@pytest.mark.parametrize("dim", [2, 3])
def test_the_straightforward_transition_agrees_with_ours(dim):
    state = straightforward.state_of(dim, 12, torch.float64, CPU)
    target = Banana(dim).torch(state.leaders)
    assert straightforward.difference(target, state) < 1e-12
    other = straightforward.state_of(dim, 13, torch.float64, CPU)
    moved = straightforward.transition(target, other.leaders, other.followers, other.log_q)
    assert float((moved[0] - other.leaders).abs().max()) > 1e-3  # it does something
    assert float(moved[2].abs().max()) > 1e-3


def test_log_z_of_the_banana_is_that_of_quadrature():
    grid = torch.linspace(-12, 12, 1201)
    tall = torch.linspace(-12, 60, 3601)
    x = torch.cartesian_prod(grid, tall)
    log_p = Banana(2).torch(x).log_prob(x).reshape(len(grid), len(tall))
    z = torch.trapezoid(torch.trapezoid(log_p.exp(), tall), grid)
    assert float(z.log()) == pytest.approx(Banana(2).log_z, abs=1e-6)


def test_particles_are_the_same_in_every_dtype():
    x32, x64 = (particles(5, 3, dtype, CPU) for dtype in (torch.float32, torch.float64))
    assert torch.equal(x32, x64.float())


def test_a_table_names_the_peers_that_are_faster_and_what_was_not_run():
    rows = [compared_row(10, [0.5, 1.0, 2.0]), compared_row(20, [3.0, 6.0, 12.0])]
    text = tables.table(report(svgd=rows), "svgd")
    assert "| n | floats | ours | Peer | GPU |" in text
    assert "| 10 | float32 | 2e+03 ms | 0.5 (0.5 to 0.5) | not run |" in text
    assert "| 20 | float32 | 2e+03 ms | 3 (3 to 3) | not run |" in text
    expected = "- Peer is faster than we are in 1 of 2 cases: n = 10, float32 (0.5)."
    assert text.splitlines()[-1] == expected


def test_a_gpu_fills_its_column():
    rows = [compared_row(10, [2.0, 4.0, 8.0]), compared_row(10, [0.5, 1.0, 2.0], "cuda")]
    text = tables.table(report(svgd=rows), "svgd")
    assert "| 10 | float32 | 2e+03 ms | 2 (2 to 2) | Peer 0.5 (0.5 to 0.5) |" in text
    assert "1 of 2 cases: n = 10, float32 on a GPU (0.5)." in text


def test_a_case_without_a_peer_has_a_dash():
    rows = [compared_row(10, [2.0, 4.0, 8.0]), compared_row(20, [2.0, 4.0, 8.0])]
    del rows[1]["ratio"]["Peer"]
    text = tables.table(report(svgd=rows), "svgd")
    assert "| 20 | float32 | 2e+03 ms | – | not run |" in text
    assert "in 0 of 1 cases." in text


def test_the_tables_for_the_book_say_where_nothing_was_run(tmp_path):
    program = ROOT / "benchmarks" / "tables.py"
    results = tmp_path / "results.json"
    run = [sys.executable, program, "--results", results, "--folder", tmp_path]
    subprocess.run(run, check=True)
    pages = {path.stem.removeprefix("benchmarks_"): path for path in tmp_path.glob("*.md")}
    assert set(pages) == {*tables.BENCHMARKS, "machine"}
    assert {path.read_text("utf-8") for path in pages.values()} == {"*not run*\n"}

    results.write_text(json.dumps(report(svgd=[compared_row(10, [2.0, 4.0, 8.0])])), "utf-8")
    subprocess.run(run, check=True)
    assert "a machine, with 1 thread" in pages["machine"].read_text("utf-8")
    assert "GPU: not run" in pages["machine"].read_text("utf-8")
    assert "| 10 | float32 |" in pages["svgd"].read_text("utf-8")
    assert pages["limit"].read_text("utf-8") == "*not run*\n"


def test_every_table_is_included_by_the_page():
    page = (ROOT / "book" / "benchmarks.md").read_text("utf-8")
    for name in (*tables.BENCHMARKS, "machine"):
        assert f"_generated/benchmarks_{name}.md" in page
