import json
import os
import platform
import re
from pathlib import Path

import h5py
import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import steinis_lib
from steinis_lib.companion import results


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
    assert str(results.ROOT) not in text
    assert str(Path.home()) not in text


def test_the_commit_is_named_or_said_to_be_unknown(monkeypatch, tmp_path):
    commit = results.provenance(0.0)["commit"]
    assert re.fullmatch(r"[0-9a-f]{12,}(-dirty)?|unknown \(no git checkout\)", commit)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setattr(results, "ROOT", tmp_path)
    assert results.provenance(0.0)["commit"] == "unknown (no git checkout)"


def test_attributes_come_back_decoded(tmp_path):
    whole = tree()
    whole.attrs["provenance"] = json.dumps(results.provenance(0.0))
    results.save(whole, tmp_path / "x.nc")
    found = results.attributes(results.load(tmp_path / "x.nc"))
    assert found["experiment"] == "x"
    assert found["parameters"] == {"ε": 0.1}
    assert found["provenance"]["steinis_lib"] == steinis_lib.__version__
