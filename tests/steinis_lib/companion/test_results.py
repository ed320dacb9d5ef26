import json
import os
import platform
import re
import subprocess
from pathlib import Path

import h5py
import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import steinis_lib
from steinis_lib.companion import checkout, results


def tree():
    """Two groups with what is hard to store: special floats, booleans, large integers."""
    rng = np.random.default_rng(3)
    special = np.array([0.0, -0.0, 5e-324, -1.7976931348623157e308, np.nan, np.inf, -np.inf, 1 / 3])
    first = xr.Dataset(
        {
            "special": ("trial", special),
            "curve": (("trial", "time"), rng.normal(size=(8, 5)) * 10.0 ** rng.integers(-300, 300)),
            "single": ("trial", rng.normal(size=8).astype(np.float32)),
            "scalar": ((), 0.1),
        },
        coords={"trial": range(8), "time": np.linspace(0, 1, 5)},
    )
    second = xr.Dataset(
        {
            "count": ("trial", np.array([2**53 + 1, -(2**63), 2**63 - 1])),
            "reached": ("trial", np.array([True, False, True])),
        },
        coords={"trial": [7, 8, 9]},
    )
    whole = xr.DataTree.from_dict({"steinis": first, "leaders-25": second})
    whole.attrs |= {"experiment": "x", "parameters": json.dumps({"ε": 0.1})}
    return whole


def assert_same_bits(a, b):
    assert sorted(a.children) == sorted(b.children)
    assert a.attrs == b.attrs
    for name, node in a.children.items():
        assert sorted(map(str, node.variables)) == sorted(map(str, b[name].variables))
        for key, variable in node.variables.items():
            other = b[name].variables[key]
            assert variable.dims == other.dims
            assert variable.dtype == other.dtype
            assert variable.values.tobytes() == other.values.tobytes(), (name, key)


def test_a_round_trip_keeps_every_bit_of_every_group(tmp_path):
    path = tmp_path / "new" / "folder" / "quick.nc"
    results.save(tree(), path)
    assert_same_bits(tree(), results.load(path))
    assert os.listdir(path.parent) == ["quick.nc"]


@settings(max_examples=15, deadline=None)
@given(hnp.arrays(np.float64, st.integers(1, 20), elements=st.floats(allow_nan=True)))
def test_a_round_trip_keeps_any_floats(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("floats") / "x.nc"
    whole = xr.DataTree.from_dict({"g": xr.Dataset({"x": ("trial", values)})})
    results.save(whole, path)
    loaded = results.load(path)["g"].x.values
    assert np.array_equal(loaded, values, equal_nan=True)
    assert np.array_equal(np.signbit(loaded), np.signbit(values))


def test_a_loaded_result_does_not_depend_on_its_file(tmp_path):
    path = tmp_path / "x.nc"
    results.save(tree(), path)
    loaded = results.load(path)
    path.unlink()
    assert_same_bits(tree(), loaded)


def test_the_file_is_compressed_hdf5_and_holds_no_python_objects(tmp_path):
    path = tmp_path / "x.nc"
    results.save(tree(), path)
    assert path.read_bytes().startswith(b"\x89HDF\r\n\x1a\n")
    kinds, filters = set(), {}

    def note(name, item):
        if isinstance(item, h5py.Dataset):
            kinds.add(item.dtype.kind)
            filters[name] = item.compression

    with h5py.File(path) as file:
        file.visititems(note)
    assert kinds <= set("fiub")  # numbers alone: nothing in it is pickled, or could be
    assert filters["steinis/curve"] == filters["leaders-25/count"] == "gzip"


def test_a_failing_write_leaves_the_old_file_and_no_scratch_file(tmp_path):
    path = tmp_path / "x.nc"
    results.save(tree(), path)
    before = path.read_bytes()
    bad = tree()
    bad["zz-last"] = xr.DataTree(xr.Dataset({"v": ("trial", np.array([object()]))}))
    with pytest.raises((TypeError, ValueError)):
        results.save(bad, path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x.nc"]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_replacing_is_all_or_nothing(tmp_path, error):
    path = tmp_path / "x.txt"
    path.write_text("old")
    with pytest.raises(type(error)), results.replacing(path) as scratch:
        scratch.write_text("half of the n")
        assert path.read_text() == "old"
        assert scratch.parent == path.parent  # else replacing it might not be atomic
        raise error
    assert path.read_text() == "old"
    with results.replacing(path) as scratch:
        scratch.write_text("new")
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["x.txt"]


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused_by_name(tmp_path, share):
    path = tmp_path / "x.nc"
    results.save(tree(), path)
    raw = path.read_bytes()
    path.write_bytes(raw[: int(share * len(raw))])
    with pytest.raises(ValueError, match="delete it and run again") as caught:
        results.load(path)
    assert str(path) in str(caught.value)


def test_a_file_with_damaged_values_is_refused_by_name(tmp_path):
    path = tmp_path / "x.nc"
    values = np.random.default_rng(0).normal(size=20_000)
    results.save(xr.DataTree.from_dict({"g": xr.Dataset({"x": ("trial", values)})}), path)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2 : len(raw) // 2 + 64] = bytes(64)
    path.write_bytes(bytes(raw))
    with pytest.raises(ValueError) as caught:
        results.load(path)
    assert str(path) in str(caught.value)


def test_a_file_of_another_kind_is_refused_by_name(tmp_path):
    path = tmp_path / "x.nc"
    path.write_text("not a result")
    with pytest.raises(ValueError) as caught:
        results.load(path)
    assert str(path) in str(caught.value)


def test_an_absent_file_is_just_absent(tmp_path):
    with pytest.raises(FileNotFoundError):
        results.load(tmp_path / "x.nc")


def test_provenance_says_when_with_what_and_on_what_but_not_where_on_disk():
    found = results.provenance(started=0.0)
    assert set(found) == {
        "created", "seconds", "steinis_lib", "torch", "numpy", "python", "machine", "commit",
    }  # fmt: skip
    assert all(found.values())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", found["created"])
    assert found["seconds"] > 1e9
    assert found["steinis_lib"] == steinis_lib.__version__
    assert found["python"] == platform.python_version()
    assert f"{os.cpu_count()} cores" in found["machine"]
    text = json.dumps(found)
    assert str(checkout.ROOT) not in text
    assert str(Path.home()) not in text


def test_a_process_names_the_commit_that_it_began_with(monkeypatch):
    results._commit.cache_clear()
    try:
        monkeypatch.setattr(checkout, "commit", lambda: "before")
        assert results.provenance(0.0)["commit"] == "before"
        monkeypatch.setattr(checkout, "commit", lambda: "after")
        assert results.provenance(0.0)["commit"] == "before"
    finally:
        results._commit.cache_clear()


def chunk(**changes):
    """What a chunk says of itself."""
    plain = {
        "created": "2026-03-01T10:00:00+00:00", "seconds": 0.04, "run": "2026-03-01T09:00:00+00:00",
        "steinis_lib": "1", "torch": "2", "numpy": "3", "python": "4", "machine": "m",
        "commit": "c",
    }  # fmt: skip
    return plain | changes


def test_chunks_computed_in_the_same_way_are_one_part():
    late = "2026-03-01T11:00:00+00:00"
    found = results.parts([chunk(), chunk(created=late), *[chunk()] * 8])
    same = {key: chunk()[key] for key in results.PART}
    assert found == [same | {"chunks": 10, "seconds": 0.4, "created": late}]


@pytest.mark.parametrize(
    "key", ["run", "commit", "machine", "steinis_lib", "torch", "numpy", "python"]
)
def test_what_was_computed_otherwise_is_another_part_and_the_earlier_one_is_first(key):
    late = chunk(created="2026-03-02T00:00:00+00:00", seconds=30.0) | {key: "0"}
    found = results.parts([late, chunk(), late])
    assert [part[key] for part in found] == [chunk()[key], "0"]
    assert [part["chunks"] for part in found] == [1, 2]
    assert [part["seconds"] for part in found] == [0.0, 60.0]
    assert [part["created"][:10] for part in found] == ["2026-03-01", "2026-03-02"]


def test_attributes_come_back_decoded(tmp_path):
    whole = tree()
    whole.attrs["provenance"] = json.dumps(results.parts([chunk()]))
    results.save(whole, tmp_path / "x.nc")
    found = results.attributes(results.load(tmp_path / "x.nc"))
    assert found["experiment"] == "x"
    assert found["parameters"] == {"ε": 0.1}
    assert [part["chunks"] for part in found["provenance"]] == [1]


# --------------------------------------------------------------------------------- checksums


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A results folder of the test's own."""
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def test_stored_results_are_listed_so_that_sha256sum_can_check_them(folder):
    paths = [folder / name for name in ("b/paper.nc", "a/paper.nc", "a/paper-1f.nc")]
    for path in paths:
        results.store(tree(), path)
    names = [line.split("  ")[1] for line in (folder / "SHA256SUMS").read_text().splitlines()]
    assert names == ["a/paper-1f.nc", "a/paper.nc", "b/paper.nc"]
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    checked = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert checked.stdout.splitlines() == [f"{name}: OK" for name in names]
    assert [results.check_sum(path) for path in paths] == [None] * 3
    assert sorted(os.listdir(folder)) == ["SHA256SUMS", "a", "b"]


def test_a_result_that_is_stored_again_has_its_new_checksum(folder):
    other = tree()
    other.attrs["experiment"] = "y"
    for path in (folder / "a.nc", folder / "b.nc"):
        results.store(tree(), path)
    results.store(other, folder / "a.nc")
    assert len((folder / "SHA256SUMS").read_text().splitlines()) == 2
    assert results.check_sum(folder / "a.nc") is results.check_sum(folder / "b.nc") is None


def test_an_edited_result_differs_from_its_checksum(folder):
    path = folder / "a" / "paper.nc"
    results.store(tree(), path)
    other = tree()
    other["steinis"]["special"][7] = 0.3334
    results.save(other, path)
    assert re.fullmatch(
        "a/paper.nc differs from its checksum in SHA256SUMS; delete .*", results.check_sum(path)
    )


def test_a_result_without_a_checksum_is_named(folder):
    path = folder / "a" / "paper.nc"
    results.save(tree(), path)
    assert "a/paper.nc is not listed in SHA256SUMS" in results.check_sum(path)
    results.store(tree(), folder / "b" / "paper.nc")
    assert "a/paper.nc is not listed in SHA256SUMS" in results.check_sum(path)


def test_a_listed_result_that_is_gone_is_named(folder):
    path = folder / "a" / "paper.nc"
    results.store(tree(), path)
    path.unlink()
    assert "a/paper.nc is not there" in results.check_sum(path)


def test_the_results_of_the_repository_are_as_listed():
    paths = sorted(results.RESULTS.rglob("*.nc"))
    assert [results.check_sum(path) for path in paths] == [None] * len(paths)
    names = [path.relative_to(results.RESULTS).as_posix() for path in paths]
    assert sorted(results._listed()) == sorted(names)
