"""What is kept of a chunk; damaged and foreign files are tested with the runs that meet them."""

import json

import pytest
import xarray as xr
from toy_experiments import Toy

from steinis_lib.companion import results
from steinis_lib.companion.runner.experiment import Chunk
from steinis_lib.companion.runner.store import ChunkError, ChunkStore

CHUNK = Chunk("toy", "a", 1, range(2, 4), 1)


@pytest.fixture
def store(tmp_path):
    return ChunkStore(tmp_path, "toy", Toy())


def dataset():
    made = json.dumps({"run": "2026-03-01T09:00:00.000+00:00", "machine": "A", "seconds": 0.04})
    x = xr.Variable("trial", [0.1, 0.2], {"units": "s"})
    return xr.Dataset({"x": x}, {"trial": [2, 3]}, {"provenance": made})


def test_a_kept_chunk_comes_back_as_it_was_with_what_it_says_of_itself(store):
    store.save(CHUNK, dataset())
    assert "identity" not in dataset().attrs
    xr.testing.assert_identical(store.load(CHUNK), dataset())


def test_a_chunk_that_is_not_kept_is_just_absent(store):
    assert store.load(CHUNK) is None


def test_a_file_that_does_not_say_what_it_holds_is_refused(store):
    results.save(xr.DataTree(dataset()), store.path(CHUNK))
    with pytest.raises(ChunkError, match=r"a-0001\.nc holds None instead of .*; delete it"):
        store.load(CHUNK)
