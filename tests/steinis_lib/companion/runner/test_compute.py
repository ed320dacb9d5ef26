"""The same result on any workers, whatever dies on the way, and nothing mixed that differs."""

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_experiments
import xarray as xr
from distributed import Client, LocalCluster
from toy_experiments import EXPERIMENT, PILOTED, TROUBLED, Toy, cells, chunks
from typer.testing import CliRunner

import steinis_lib
from steinis_lib.companion import checkout, results
from steinis_lib.companion.cli import app
from steinis_lib.companion.runner import compute as runner
from steinis_lib.companion.runner import store, versions
from steinis_lib.companion.runner import workers as running
from steinis_lib.companion.runner.compute import compute
from steinis_lib.companion.runner.experiment import Chunk, Experiment, compute_chunk
from steinis_lib.companion.runner.store import ChunkError
from steinis_lib.companion.runner.workers import SchedulerError

HELPERS = Path(toy_experiments.__file__).parent
LIBRARY = Path(steinis_lib.__file__).parent


DASK = Path(sys.executable).with_name("dask")


def start(*command, first=(), cwd=None):
    path = os.pathsep.join(map(str, [*first, HELPERS, LIBRARY.parent]))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "2"}
    command = [str(part) for part in command]
    return subprocess.Popen(command, cwd=cwd, env=environment, stderr=subprocess.DEVNULL)


def stop(*processes):
    for process in processes:
        process.kill()
        process.wait()


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


class Cluster:
    """A real scheduler and its workers, started from the command line in another directory."""

    def __init__(self, folder):
        self.folder, self.scheduler, self.workers = folder, None, []

    def ready(self):
        """Return the address, after starting what is not running: a scheduler, two workers."""
        if self.scheduler is None or self.scheduler.poll() is not None:
            stop(*self.workers)
            contact = self.folder / "scheduler.json"
            contact.unlink(missing_ok=True)
            self.scheduler = start(
                DASK, "scheduler", "--host", "127.0.0.1", "--port", 0, "--no-dashboard",
                "--scheduler-file", contact, cwd=self.folder,
            )  # fmt: skip
            wait_for(lambda: contact.exists() and contact.read_text().endswith("}"))
            self.address = json.loads(contact.read_text())["address"]
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < 2:
            self.workers.append(self.start_worker())
        self.wait_for_workers(2)
        return self.address

    def start_worker(self, *first):
        return start(
            DASK, "worker", self.address, "--no-nanny", "--nthreads", 1, "--no-dashboard",
            "--local-directory", self.folder, first=first, cwd=self.folder,
        )  # fmt: skip

    def wait_for_workers(self, n):
        with Client(self.address, set_as_default=False) as client:
            wait_for(lambda: len(client.nthreads()) == n)


@pytest.fixture(scope="module")
def dask_cluster(tmp_path_factory):
    running = Cluster(tmp_path_factory.mktemp("cluster"))
    yield running
    stop(*running.workers, running.scheduler)


@pytest.fixture(autouse=True)
def no_git(monkeypatch):
    """What git says of this checkout is not what these tests are about."""
    monkeypatch.setattr(results, "_commit", lambda: "unknown")
    monkeypatch.setattr(checkout, "uncommitted", list)


@pytest.fixture(scope="module")
def expected():
    return contents(compute(EXPERIMENT, Toy()))


def contents(tree):
    """All that a result says, bit for bit."""
    return {
        f"{method}/{name}": (v.dims, v.dtype.newbyteorder("="), v.shape, v.values.tobytes())
        for method, node in tree.children.items()
        for name, v in node.variables.items()
    }


def log(folder, event):
    lines = (folder / "log").read_text().split("\n") if (folder / "log").exists() else []
    return [line.split()[1:] for line in lines if line.startswith(event + " ")]


def kept(chunks):
    return sorted(path.name for path in chunks.rglob("[!.]*.nc"))


ORDER = [chunk for _, chunk in chunks(EXPERIMENT, Toy())]
ALL = [f"{chunk.label}-{chunk.number:04d}.nc" for chunk in ORDER]


@pytest.mark.slow
def test_a_chunk_depends_on_its_name_alone(expected):
    tree = compute(EXPERIMENT, Toy())
    ((cell, chunk),) = (
        (c, k) for c, k in chunks(EXPERIMENT, Toy()) if (k.label, k.number) == TROUBLED
    )
    alone = compute_chunk(cell, Toy(), chunk)
    xr.testing.assert_identical(alone["x"], tree["b"].to_dataset()["x"].isel(trial=slice(2, 4)))
    assert tree["b"]["trial"].values.tolist() == [0, 1, 2, 3, 4, 5]
    assert contents(tree) == expected
    assert contents(compute(EXPERIMENT, Toy(seed=2))) != expected
    every = [compute_chunk(c, Toy(), k) for c, k in chunks(EXPERIMENT, Toy())]
    assert len({found["mean"].values.tobytes() for found in every}) == 6


def test_kept_chunks_give_the_same_result_and_are_not_computed_again(expected, tmp_path):
    p = Toy(folder=str(tmp_path))
    calls = []
    for _ in range(2):
        tree = compute(EXPERIMENT, p, chunks=tmp_path, progress=lambda *call: calls.append(call))
        assert contents(tree) == expected
        assert tree["a"].attrs == {}
    order = [chunk for _, chunk in chunks(EXPERIMENT, p)]
    assert calls == [(0, 6, None)] + [(i, 6, c) for i, c in enumerate(order, 1)] + [(6, 6, None)]
    assert len(log(tmp_path, "started")) == 6
    assert kept(tmp_path) == ALL


def parts(tree):
    return results.attributes(tree)["provenance"]


def compute_some(p, chunks, n):
    """Compute `n` chunks and be interrupted."""

    def progress(done, total, chunk):
        if done == n:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compute(EXPERIMENT, p, chunks=chunks, progress=progress)


def test_a_result_of_one_run_has_one_part():
    tree = compute(EXPERIMENT, Toy(seconds=0.05))
    assert set(tree.attrs) == {"experiment", "parameters", "provenance"}
    (part,) = parts(tree)
    same = {key: value for key, value in results.provenance(0.0).items() if key in results.PART}
    assert part == part | same
    assert set(part) == {*results.PART, "chunks", "seconds", "created"}
    assert part["chunks"] == 6
    assert part["seconds"] >= 0.6  # so long does the toy sleep
    assert part["run"][:19] <= part["created"][:19]


def test_an_interrupted_run_that_went_on_has_two_parts(expected, tmp_path):
    p = Toy(seconds=0.0)
    compute_some(p, tmp_path, 2)
    tree = compute(EXPERIMENT, p, chunks=tmp_path)
    assert contents(tree) == expected
    first, second = parts(tree)
    assert (first["chunks"], second["chunks"]) == (2, 4)
    assert first["run"] < second["run"]
    assert parts(compute(EXPERIMENT, p, chunks=tmp_path)) == [first, second]


def test_parts_name_the_commit_and_the_machine_of_their_own_chunks(tmp_path, monkeypatch):
    p = Toy(seconds=0.0)
    monkeypatch.setattr(results, "_commit", lambda: "first")
    compute_some(p, tmp_path, 1)
    monkeypatch.setattr(results, "_commit", lambda: "second")
    processors = iter(["A", "A", "B", "A", "B"])
    monkeypatch.setattr(results, "_processor", lambda: next(processors))
    found = parts(compute(EXPERIMENT, p, chunks=tmp_path))
    described = sorted((x["commit"], x["machine"].split(",")[0], x["chunks"]) for x in found[-2:])
    assert described == [("second", "A", 3), ("second", "B", 2)]
    assert (found[0]["commit"], found[0]["chunks"]) == ("first", 1)
    assert found[1]["run"] == found[2]["run"] > found[0]["run"]


def test_a_chunk_computed_again_belongs_to_the_run_that_computed_it(tmp_path):
    first = parts(compute(EXPERIMENT, Toy(seconds=0.0), chunks=tmp_path))
    for path in tmp_path.rglob("b-000[01].nc"):
        path.unlink()
    found = parts(compute(EXPERIMENT, Toy(seconds=0.0), chunks=tmp_path))
    assert [part["chunks"] for part in found] == [4, 2]
    assert found[0]["run"] == first[0]["run"]


def test_attributes_of_chunks_do_not_reach_the_result_nor_other_chunks(tmp_path, monkeypatch):
    seen = []
    original = toy_experiments.run_chunk

    def run(p, chunk):
        seen.extend(pilot.attrs for pilot in chunk.pilots.values())
        dataset = original(p, chunk).assign_attrs(note="of a chunk")
        dataset["x"].attrs["units"] = "m"
        return dataset

    monkeypatch.setattr(toy_experiments, "run_chunk", run)
    for _ in range(2):  # the second time from kept chunks
        tree = compute(PILOTED, Toy(seconds=0.0), chunks=tmp_path)
        assert [node.attrs for node in tree.children.values()] == [{}, {}, {}]
        assert tree["a"]["x"].attrs == {"units": "m"}  # those of variables stay
    assert seen == [{}] * 6


@pytest.mark.slow
def test_two_local_workers_give_the_same_result(expected, tmp_path):
    p = Toy(folder=str(tmp_path))
    calls = []
    tree = compute(EXPERIMENT, p, workers=2, progress=lambda *call: calls.append(call))
    assert contents(tree) == expected
    assert [done for done, _, _ in calls] == list(range(7))
    finished = {chunk for _, _, chunk in calls[1:]}
    assert finished == {chunk for _, chunk in chunks(EXPERIMENT, p)} and len(finished) == 6
    pids = {pid for _, _, pid in log(tmp_path, "started")}
    assert len(pids) == 2
    assert str(os.getpid()) not in pids
    (part,) = parts(tree)
    assert part["chunks"] == 6
    assert part["commit"] != "unknown"  # that of the workers, which know nothing of `no_git`


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_result_on_one_thread_each(expected, dask_cluster, tmp_path):
    p = Toy(folder=str(tmp_path))
    tree = compute(EXPERIMENT, p, chunks=tmp_path / "chunks", scheduler=dask_cluster.ready())
    assert contents(tree) == expected  # `threads` is 1, where the environment says 2
    assert set(tree["a"]["threads"].values) == {1}
    assert len({pid for _, _, pid in log(tmp_path, "started")}) == 2
    assert kept(tmp_path / "chunks") == ALL


def test_in_process_chunks_run_on_one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert set(compute(EXPERIMENT, Toy())["a"]["threads"].values) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_a_killed_driver_goes_on_where_it_was(expected, tmp_path):
    p = Toy(folder=str(tmp_path), seconds=0.2)
    chunks = tmp_path / "chunks"
    code = "import toy_experiments; toy_experiments.drive()"
    driver = start(sys.executable, "-c", code, p.model_dump_json(), chunks, 2)
    try:
        wait_for(lambda: len(kept(chunks)) >= 2)
    finally:
        stop(driver)
    before = kept(chunks)
    assert len(before) < 6
    wait_for(lambda: not [pid for _, _, pid in log(tmp_path, "started") if alive(int(pid))])
    (tmp_path / "log").unlink()
    assert contents(compute(EXPERIMENT, p, chunks=chunks)) == expected
    again = [f"{method}-{int(chunk):04d}.nc" for method, chunk, _ in log(tmp_path, "started")]
    assert sorted(before + again) == ALL


def alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_a_chunk_that_fails_once_is_tried_again(expected, tmp_path, caplog):
    p = Toy(folder=str(tmp_path), trouble="fail once")
    assert contents(compute(EXPERIMENT, p)) == expected
    assert "b, chunk 1 failed (this process) and is tried again" in caplog.text
    assert "ArithmeticError: the toy is broken" in caplog.text


@pytest.mark.slow
def test_a_chunk_that_fails_is_tried_again_on_another_worker(expected, dask_cluster, tmp_path):
    p = Toy(folder=str(tmp_path), trouble="fail once")
    assert contents(compute(EXPERIMENT, p, scheduler=dask_cluster.ready())) == expected
    starts = [pid for method, chunk, pid in log(tmp_path, "started") if method + chunk == "b1"]
    assert len(set(starts)) == len(starts) == 2


@pytest.mark.parametrize("where", ["here", pytest.param("cluster", marks=pytest.mark.slow)])
def test_a_chunk_that_always_fails_is_reported_and_the_others_are_kept(where, request, tmp_path):
    scheduler = request.getfixturevalue("dask_cluster").ready() if where == "cluster" else None
    p = Toy(folder=str(tmp_path), trouble="fail")
    with pytest.raises(ChunkError) as caught:
        compute(EXPERIMENT, p, chunks=tmp_path, scheduler=scheduler)
    message = str(caught.value)
    assert message.startswith("1 of 6 chunks failed, the others are done.")
    assert "toy, b, chunk 1 failed twice, last on" in message
    assert p.model_dump_json() in message
    assert message.endswith("ArithmeticError: the toy is broken")
    assert kept(tmp_path) == [name for name in ALL if name != "b-0001.nc"]
    assert len(log(tmp_path, "started")) == 7


@pytest.mark.slow
def test_a_chunk_that_kills_its_workers_is_reported_and_the_others_are_kept(tmp_path):
    p = Toy(folder=str(tmp_path), trouble="die")
    with pytest.raises(ChunkError, match="toy, b, chunk 1 failed twice"):
        compute(EXPERIMENT, p, chunks=tmp_path, workers=2)
    assert kept(tmp_path) == [name for name in ALL if name != "b-0001.nc"]
    deaths = [c for c in log(tmp_path, "started") if c[:2] == ["b", "1"]]
    assert len({pid for _, _, pid in deaths}) == 2


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_pilots_come_first_and_all_other_tasks_know_them(expected, workers, tmp_path):
    p = Toy(folder=str(tmp_path))
    calls = []
    tree = compute(
        PILOTED, p, chunks=tmp_path, workers=workers, progress=lambda *call: calls.append(call)
    )
    labels = [chunk.label for _, _, chunk in calls[1:]]
    assert [labels[:2], set(labels[2:])] == [["pilot", "pilot"], {"a", "b"}]
    assert calls[-1][:2] == (8, 8)
    assert list(tree.children) == ["pilot", "a", "b"]
    plain = compute(Experiment("piloted", Toy, cells), Toy())
    found = float(tree["pilot"]["mean"].sum())
    for method in ("a", "b"):
        np.testing.assert_array_equal(tree[method]["mean"], plain[method]["mean"] + found)
        np.testing.assert_array_equal(tree[method]["x"], plain[method]["x"])
    for path in tmp_path.rglob("b-0001.nc"):
        path.unlink()
    assert contents(compute(PILOTED, p, chunks=tmp_path)) == contents(tree)
    assert len(log(tmp_path, "started")) == 9


def test_nothing_runs_on_failed_pilots(tmp_path, monkeypatch):
    monkeypatch.setattr(toy_experiments, "TROUBLED", ("pilot", 1))
    with pytest.raises(ChunkError, match="1 of 2 chunks failed.*\n\npiloted, pilot, chunk 1"):
        compute(PILOTED, Toy(folder=str(tmp_path), trouble="fail"))
    assert {method for method, _, _ in log(tmp_path, "started")} == {"pilot"}


def test_an_experiment_without_trials_is_refused(tmp_path):
    p = Toy(folder=str(tmp_path), trouble="dims")
    with pytest.raises(ChunkError, match=r"dimensions .*'draw'.* needs the dimension 'trial'"):
        compute(EXPERIMENT, p)


@pytest.mark.slow
def test_parameters_seeds_and_versions_never_share_a_folder(tmp_path, monkeypatch):
    folder = str(tmp_path)
    for p in (Toy(folder=folder), Toy(folder=folder, seed=2), Toy(folder=folder, n_chunks=2)):
        compute(EXPERIMENT, p, chunks=tmp_path)
    monkeypatch.setattr(store, "code_digest", lambda: "other")
    compute(EXPERIMENT, Toy(folder=folder), chunks=tmp_path)
    assert len(list((tmp_path / "toy").iterdir())) == 4
    assert len(log(tmp_path, "started")) == 6 + 6 + 4 + 6


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.3, 0.95])
def test_a_truncated_chunk_is_computed_again(expected, tmp_path, caplog, share):
    p = Toy(folder=str(tmp_path))
    compute(EXPERIMENT, p, chunks=tmp_path)
    (path,) = tmp_path.rglob("b-0001.nc")
    before, whole = results.load(path).to_dataset(), path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    assert contents(compute(EXPERIMENT, p, chunks=tmp_path)) == expected
    assert f"{path} is damaged and is computed again" in caplog.text
    assert len(log(tmp_path, "started")) == 7
    assert results.load(path).to_dataset().equals(before)


@pytest.mark.slow
@pytest.mark.parametrize("other", [Toy(seed=2), Toy()])
def test_a_foreign_chunk_is_refused(tmp_path, other):
    """Of another seed, or of the same parameters but another chunk."""
    compute(EXPERIMENT, Toy(), chunks=tmp_path / "ours")
    compute(EXPERIMENT, other, chunks=tmp_path / "theirs")
    (ours,) = (tmp_path / "ours").rglob("a-0001.nc")
    (theirs,) = (tmp_path / "theirs").rglob("a-0001.nc" if other.seed == 2 else "a-0002.nc")
    shutil.copy(theirs, ours)
    with pytest.raises(ChunkError, match=r"a-0001\.nc holds .* instead of .*; delete it"):
        compute(EXPERIMENT, Toy(), chunks=tmp_path / "ours")


@pytest.mark.slow
def test_a_worker_with_other_code_is_refused(dask_cluster, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(LIBRARY, other / "steinis_lib", ignore=shutil.ignore_patterns("__pycache__"))
    with open(other / "steinis_lib" / "stein" / "kernels.py", "a") as file:
        file.write("# changed\n")
    address = dask_cluster.ready()
    worker = dask_cluster.start_worker(other)
    try:
        dask_cluster.wait_for_workers(3)
        with pytest.raises(SchedulerError) as caught:
            compute(EXPERIMENT, Toy(), scheduler=address)
    finally:
        stop(worker)
    message = str(caught.value)
    assert f"but this process runs {versions.versions()}" in message
    assert message.count(f"torch {torch.__version__}") == 2
    assert message.count(versions.code_digest()) == 1


@pytest.mark.slow
def test_a_killed_worker_costs_nothing(expected, dask_cluster, tmp_path):
    p = Toy(folder=str(tmp_path), trouble="die once")
    assert contents(compute(EXPERIMENT, p, scheduler=dask_cluster.ready())) == expected
    starts = [pid for method, chunk, pid in log(tmp_path, "started") if method + chunk == "b1"]
    assert len(set(starts)) == len(starts) == 2
    wait_for(lambda: [worker.poll() for worker in dask_cluster.workers].count(None) == 1)


@pytest.mark.slow
def test_a_lost_scheduler_ends_the_run_and_keeps_what_is_done(dask_cluster, tmp_path):
    p = Toy(folder=str(tmp_path), seconds=0.2)
    address = dask_cluster.ready()

    def progress(done, total, chunk):
        if done == 2:
            dask_cluster.scheduler.kill()

    with pytest.raises(SchedulerError, match="connection .* lost"):
        compute(EXPERIMENT, p, chunks=tmp_path, scheduler=address, progress=progress)
    assert 2 <= len(kept(tmp_path)) < 6


@pytest.mark.parametrize(
    "address",
    ["foo", "", "tcp://", "tcp://host", "tcp://host:x", "tcp://host:99999", "http://host:8786",
     "host:8786", "tcp://host:8786/x"],
)  # fmt: skip
def test_nonsense_is_no_address(address):
    with pytest.raises(
        SchedulerError, match="is not the address of a scheduler, such as tcp://host:8786"
    ):
        compute(EXPERIMENT, Toy(), scheduler=address)


@pytest.mark.slow
@pytest.mark.parametrize("listening", [False, True])
def test_a_scheduler_that_does_not_answer_is_given_up(monkeypatch, listening):
    monkeypatch.setattr(running, "CONNECT_TIMEOUT", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listening:  # a connection is then made, but nothing is ever said
            silent.listen()
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(SchedulerError, match=f"no Dask scheduler answers at {address}"):
            compute(EXPERIMENT, Toy(), scheduler=address)
    assert time.monotonic() - started < 5


@pytest.mark.slow
def test_waiting_for_workers_is_said(monkeypatch, caplog):
    monkeypatch.setattr(running, "CONNECT_TIMEOUT", 0.5)
    nobody = LocalCluster(n_workers=0, processes=False, protocol="tcp", dashboard_address=":0")
    stop_waiting = logging.Handler()

    def emit(record):
        raise KeyboardInterrupt

    monkeypatch.setattr(stop_waiting, "emit", emit)
    running.LOG.addHandler(stop_waiting)
    try:
        with nobody, pytest.raises(KeyboardInterrupt):
            compute(EXPERIMENT, Toy(), scheduler=nobody.scheduler_address)
    finally:
        running.LOG.removeHandler(stop_waiting)


@pytest.mark.parametrize("n", [0, -1])
def test_compute_refuses_less_than_one_worker(n):
    with pytest.raises(ValueError, match="at least 1"):
        compute(EXPERIMENT, Toy(), workers=n)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "0"], "--workers"),
        (["--scheduler", "foo"], "'foo' is not the address of a scheduler"),
        (["--scheduler", "tcp://host:8786", "--workers", "2"], "not both"),
    ],
)
def test_the_command_line_refuses_nonsense(options, message):
    result = CliRunner().invoke(app, ["run", "gmm-convergence", *options])
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyboardInterrupt(), 130),
        (ChunkError("toy, b, chunk 1 failed twice"), 1),
        (SchedulerError("lost"), 2),
    ],
)
def test_the_command_line_says_what_is_kept(monkeypatch, tmp_path, error, code):
    given = {}

    def interrupted(experiment, parameters, *, progress, **options):
        given.update(options)
        progress(1, 8, None)
        progress(2, 8, Chunk("toy", "svgd", 1, range(1), 1))
        raise error

    monkeypatch.setattr(runner, "compute", interrupted)
    monkeypatch.setattr(runner, "CHUNKS", tmp_path)
    options = ["--profile", "paper", "-p", "n_trials=3", "--workers", "2"]
    result = CliRunner().invoke(app, ["run", "gmm-convergence", *options])
    assert result.exit_code == code
    assert (str(error) or "interrupted") in result.output
    assert "2 of 8 chunks are kept; the same command goes on" in result.output
    assert given == {"chunks": tmp_path, "workers": 2, "scheduler": None}
