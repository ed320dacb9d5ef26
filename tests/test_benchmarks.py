"""The parts of the benchmarks that need no other library: helpers, tables, own versions."""

import json
import subprocess
import sys
import time
from pathlib import Path

import memory
import numpy as np
import pooled
import pytest
import rounding
import straightforward
import tables
import timing
import torch
import xarray as xr
from problems import Banana, drawn_decoder_posterior, particles

from steinis_lib.companion import obtain, registry, results
from steinis_lib.companion import rounding as measured_rounding
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner.compute import compute
from steinis_lib.companion.runner.experiment import Cell, Experiment

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


def test_results_of_another_run_say_where_they_are_from(tmp_path):
    row = compared_row(10, [2.0, 4.0, 8.0])
    row["ratio"] = {"HAIS-1L": row["ratio"]["Peer"]}
    row["share_of_products"] = timing.spread([0.5, 0.6, 0.7])
    later = report(pooled=[row])
    later["machine"] |= {"machine": "another machine", "peers": {}}
    reports = [report(svgd=[compared_row(10, [2.0, 4.0, 8.0])]), later]
    text = tables._of(reports, "pooled")
    assert "| 10 | float32 | 2e+03 ms | 2 (2 to 2) | 60% (55% to 65%) | not run |" in text
    assert "on another machine, with 1 thread, PyTorch 9.9; GPU: not run." in text
    assert "machine" not in tables._of(reports, "svgd")


def test_products_and_decompositions_of_matrices_are_told_from_other_operators():
    yes = ("aten::mm", "aten::addmm", "aten::bmm", "aten::linalg_lu_factor_ex", "aten::_slogdet")
    no = ("aten::mul", "aten::exp_", "aten::copy_", "aten::sum", "aten::median")
    assert all(map(pooled.is_product, yes)) and not any(map(pooled.is_product, no))


def test_both_sides_of_the_pooled_benchmark_take_the_same_scores(monkeypatch):
    monkeypatch.setattr(pooled, "SCORES", 30)
    monkeypatch.setattr(pooled, "FOLLOWERS", 20)
    monkeypatch.setattr(pooled, "IMAGES", 2)
    target, z = drawn_decoder_posterior(12, 2, 5, torch.float64, CPU)
    assert z.shape == (2, 5, 12)
    asked = []
    monkeypatch.setattr(
        type(target), "score", lambda self, x: asked.append(x.shape) or torch.zeros_like(x)
    )
    pooled._steinis(target, CPU)()
    assert set(asked) == {(2, 30, 12)}
    state, info = pooled._hais(target, CPU)()
    assert state.particles.shape == (2, 30, 12) and 0 < info.beta < 1
    assert 0 < pooled._share_of_products(lambda: z[0] @ z[0].mT) <= 1


# ------------------------------------------------------------------------------------- rounding


def doublings(p, chunk):
    """Bits of a random number, of which each doubling loses one; and what is never compared."""
    x = torch.rand(chunk.n_trials, generator=chunk.generator())
    rows = [(x * 2.0**n % 1).numpy() for n in (0, 10, 40)]
    return xr.Dataset(
        {
            "x": (("trial", "transitions"), np.stack(rows, 1)),
            "constant": ("trial", np.ones(chunk.n_trials)),
            "seconds": ("trial", np.full(chunk.n_trials, time.time()), {"units": "s"}),
        },
        {"transitions": [0, 10, 40]},
    )


def with_pilot(p, chunk):
    dataset = doublings(p, chunk)
    return dataset.assign(constant=dataset.constant * chunk.pilots["pilot"].constant.mean())


def toy(name):
    cells = [
        Cell("pilot", 1, doublings),
        *(Cell(f"double-{n}", 9, with_pilot, 3, ("pilot",), "double") for n in (1, 2)),
    ]
    return Experiment(name, Parameters, lambda p: cells)


@pytest.fixture
def measuring(monkeypatch, tmp_path):
    """Two stored toys and one that is not stored; the kept file and the written one are ours."""
    ours = {name: toy(name) for name in ("one", "two", "three")}
    monkeypatch.setattr(registry, "EXPERIMENTS", ours)
    monkeypatch.setattr(obtain, "EXPERIMENTS", ours)
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(rounding, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(measured_rounding, "FILE", tmp_path / "rounding.json")
    for name in ("one", "two"):
        tree = compute(ours[name], Parameters())
        results.save(tree, obtain.stored_path(name, Parameters()))
    return tmp_path


def test_memory_is_measured_over_the_longest_methods_that_are_short_enough(measuring, monkeypatch):
    monkeypatch.setattr(memory, "EXPERIMENTS", {name: toy(name) for name in ("one", "two")})
    seconds = {"one": {"pilot": 3.0, "double": 7.0}}
    monkeypatch.setattr(measured_rounding, "seconds", lambda: seconds)
    found = memory.measure("one", 1, 10.0)
    assert found["methods"] == ["double"] and 50 < found["megabytes"] < 50_000
    assert memory.measure("one", 1, 5.0)["methods"] == ["pilot"]
    assert memory.measure("two", 9, 5.0)["methods"] == ["pilot", "double"]


def kept_rows(folder):
    return {p.name: list(rounding.rows(p)) for p in sorted((folder / "kept").iterdir())}


@pytest.mark.slow
def test_a_chunk_of_each_method_is_measured_once_for_each_switch_and_seed(measuring):
    rounding.measure("avx2", 1, None)
    rounding.measure("avx2", 1, None)  # goes on, and finds everything done
    rounding.measure("avx2", 2, ["two"])
    found = kept_rows(measuring)
    assert list(found) == ["avx2-1.jsonl", "avx2-2.jsonl"]
    assert [(r["experiment"], r["method"]) for r in found["avx2-1.jsonl"]] == [
        (name, method) for name in ("one", "two") for method in ("pilot", "double")
    ]
    assert [r["experiment"] for r in found["avx2-2.jsonl"]] == ["two", "two"]
    for row in found["avx2-1.jsonl"]:  # on the same processor nothing differs
        assert row["spreads"] == {"x": {"0": 0.0, "10": 0.0, "40": 0.0}, "constant": 0.0}


@pytest.mark.slow
def test_the_largest_spreads_are_written_for_each_number_of_transitions(measuring):
    for seed in (1, 2):
        rounding.measure("avx2", seed, None)
    rounding.measure("nudged", 1, None)
    rounding.write()
    table = json.loads(measured_rounding.FILE.read_text("utf-8"))
    switches = table["measured"]["switches"]
    assert {name: found["chunks"] for name, found in switches.items()} == {"avx2": 8, "nudged": 4}
    assert set(table["spreads"]) == {"one", "two"}
    spreads = table["spreads"]["one"]["double"]
    assert set(spreads) == {"x", "constant"} and spreads["constant"] == 0.0
    assert 0 < spreads["x"]["0"] < 2e-16 < spreads["x"]["10"] < 2e-13 < 1e-5 < spreads["x"]["40"]
    assert measured_rounding.measured.__wrapped__() == table["spreads"]
    rows = [row for kept in kept_rows(measuring).values() for row in kept]
    for method in ("pilot", "double"):
        seconds = [r["seconds"] for r in rows if (r["experiment"], r["method"]) == ("one", method)]
        assert len(seconds) == 3 and table["seconds"]["one"][method] == min(seconds)


def test_spreads_of_the_file_only_grow(measuring):
    rounding.measure("avx2", 1, ["two"])
    old = {"one": {"pilot": {"constant": 0.125}}, "two": {"pilot": {"constant": 0.25}}}
    took = {"one": {"pilot": 7.0}, "two": {"pilot": 9.0}}
    measured_rounding.FILE.write_text(json.dumps({"seconds": took, "spreads": old}), "utf-8")
    rounding.write()
    table = json.loads(measured_rounding.FILE.read_text("utf-8"))
    spreads = table["spreads"]
    assert table["seconds"]["one"] == took["one"] and table["seconds"]["two"]["pilot"] < 9.0
    assert spreads["one"] == old["one"]
    assert set(spreads["two"]) == {"pilot", "double"}
    assert spreads["two"]["pilot"]["constant"] == 0.25


def test_a_search_is_not_measured(measuring, monkeypatch):
    def search(p, chunk):
        return xr.Dataset({"score": (("trial", "candidate"), [[0.0, 1.0]])})

    ours = Experiment("one", Parameters, lambda p: [Cell("search", 1, search)])
    for module in (registry, obtain):
        monkeypatch.setitem(module.EXPERIMENTS, "one", ours)
    results.save(compute(ours, Parameters()), obtain.stored_path("one", Parameters()))
    rounding.measure("avx2", 1, ["one"])
    assert not (measuring / "kept" / "avx2-1.jsonl").exists()


def test_infinite_spreads_are_written_as_the_largest_number():
    found = rounding.finite({"50": float("inf"), "100": 1.0})
    assert found == {"50": sys.float_info.max, "100": 1.0}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_chunk_that_cannot_be_computed_stops_the_measurement(measuring, monkeypatch):
    def broken(p, chunk):
        raise ArithmeticError("the toy is broken")

    cells = [Cell("pilot", 1, broken)]
    monkeypatch.setitem(registry.EXPERIMENTS, "one", Experiment("one", Parameters, lambda p: cells))
    with pytest.raises(RuntimeError, match=r"one, pilot, chunk 0: [^$]*the toy is broken"):
        rounding.measure("avx2", 1, None)
