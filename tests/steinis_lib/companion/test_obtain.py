"""How a result is found, computed and kept; the computation is replaced by a stand-in."""

import json

import pytest
import xarray as xr

from steinis_lib.companion import checkout, results
from steinis_lib.companion import obtain as module
from steinis_lib.companion.checkout import UncommittedError
from steinis_lib.companion.obtain import obtain, stored, stored_path
from steinis_lib.companion.parameters import ParameterError
from steinis_lib.companion.registry import EXPERIMENTS
from steinis_lib.companion.sections.s1_convergence.experiment import GMMConvergence

NAME = "gmm-convergence"


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """A results folder of the test's own, no folder of chunks from outside, all committed."""
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(module.runner, "CHUNKS", tmp_path / "chunks")
    monkeypatch.setattr(checkout, "uncommitted", list)
    monkeypatch.delenv(module.CHUNKS_VARIABLE, raising=False)
    return tmp_path / "results"


@pytest.fixture
def computed(monkeypatch):
    """The parameters and settings of each computation, which gives its number as the result."""
    calls = []

    def compute(experiment, parameters, **settings):
        calls.append((experiment, parameters, settings))
        data = xr.Dataset({"number": ("trial", [float(len(calls))])})
        tree = xr.DataTree.from_dict({"steinis": data})
        tree.attrs["parameters"] = parameters.model_dump_json()
        return tree

    monkeypatch.setattr(module.runner, "compute", compute)
    return calls


def number(tree):
    return float(tree["steinis"].number[0])


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_quick_computes_each_time_and_stores_nothing(folder, computed):
    quick = GMMConvergence.of_profile("quick")
    assert [number(obtain(NAME, quick)) for _ in range(2)] == [1, 2]
    assert files(folder) == []
    assert computed[0][:2] == (EXPERIMENTS[NAME], quick)


def test_quick_does_not_use_a_stored_result(folder, computed):
    quick = GMMConvergence.of_profile("quick")
    results.save(obtain(NAME, quick), stored_path(NAME, quick))
    assert number(obtain(NAME, quick)) == 2


def test_paper_is_stored_and_then_used_without_computing(folder, computed, monkeypatch):
    paper = GMMConvergence.of_profile("paper")
    assert stored(NAME, paper) is None
    assert number(obtain(NAME, paper)) == 1
    assert files(folder) == ["SHA256SUMS", f"{NAME}/paper.nc"]
    assert results.check_sum(stored_path(NAME, paper)) is None

    def fail(*arguments, **settings):
        raise AssertionError("computed")

    monkeypatch.setattr(module.runner, "compute", fail)
    assert number(obtain(NAME, paper)) == 1
    assert number(stored(NAME, paper)) == 1
    with pytest.raises(AssertionError, match="computed"):
        obtain(NAME, GMMConvergence.of_profile("paper", {"seed": 2}))


def test_changed_parameters_go_to_a_file_of_their_own(folder, computed):
    paper = GMMConvergence.of_profile("paper")
    other = GMMConvergence.of_profile("paper", {"n_trials": 5})
    obtain(NAME, paper)
    default = folder / NAME / "paper.nc"
    before = default.read_bytes()
    assert number(obtain(NAME, other)) == 2
    assert default.read_bytes() == before
    assert files(folder) == ["SHA256SUMS", f"{NAME}/paper-{other.digest()}.nc", f"{NAME}/paper.nc"]
    assert [number(obtain(NAME, p)) for p in (paper, other)] == [1, 2]
    assert len(computed) == 2


def test_each_set_of_parameters_has_a_path_of_its_own():
    sets = [
        GMMConvergence.of_profile(profile, change)
        for profile in ("paper", "quick")
        for change in ({}, {"seed": 2}, {"seed": 3}, {"leader_counts": [25]})
    ]
    assert len({stored_path(NAME, p) for p in sets}) == len(sets)
    assert stored_path("other", sets[0]) != stored_path(NAME, sets[0])


def test_a_stored_result_of_other_parameters_is_not_used(folder, computed):
    """As after a change of the defaults: the file has the right name and old contents."""
    paper = GMMConvergence.of_profile("paper")
    tree = obtain(NAME, paper)
    old = json.loads(tree.attrs["parameters"]) | {"n_times": 60}
    tree.attrs["parameters"] = json.dumps(old)
    results.save(tree, stored_path(NAME, paper))
    assert stored(NAME, paper) is None
    assert number(obtain(NAME, paper)) == 2
    assert number(stored(NAME, paper)) == 2


def test_a_stored_file_that_says_nothing_of_its_parameters_is_not_used(folder, computed):
    paper = GMMConvergence.of_profile("paper")
    tree = obtain(NAME, paper)
    del tree.attrs["parameters"]
    results.save(tree, stored_path(NAME, paper))
    assert number(obtain(NAME, paper)) == 2


def test_a_damaged_stored_file_is_reported_and_left_to_the_user(folder, computed):
    paper = GMMConvergence.of_profile("paper")
    obtain(NAME, paper)
    path = stored_path(NAME, paper)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"paper\.nc .*delete it"):
        obtain(NAME, paper)
    assert len(computed) == 1


def test_a_failing_computation_stores_nothing(folder, monkeypatch):
    def fail(*arguments, **settings):
        raise FloatingPointError("a score is NaN")

    monkeypatch.setattr(module.runner, "compute", fail)
    with pytest.raises(FloatingPointError):
        obtain(NAME, GMMConvergence.of_profile("paper"))
    assert files(folder) == []


def test_paper_is_not_computed_from_files_that_git_does_not_hold(folder, computed, monkeypatch):
    monkeypatch.setattr(checkout, "uncommitted", lambda: ["steinis_lib/steinis.py", "b", "c", "d"])
    with pytest.raises(UncommittedError) as caught:
        obtain(NAME, GMMConvergence.of_profile("paper"))
    message = str(caught.value)
    assert "differ from the last commit: steinis_lib/steinis.py, b, c and 1 more." in message
    assert message.endswith("Commit them, or use --profile quick.")
    assert computed == [] and files(folder.parent) == []
    assert number(obtain(NAME, GMMConvergence.of_profile("quick"))) == 1


def test_what_is_stored_is_used_whatever_git_holds(computed, monkeypatch):
    paper = GMMConvergence.of_profile("paper")
    obtain(NAME, paper)
    monkeypatch.setattr(checkout, "uncommitted", lambda: ["steinis_lib/steinis.py"])
    assert number(obtain(NAME, paper)) == 1


def test_parameters_may_be_a_mapping_and_are_checked(computed):
    obtain(NAME, {"n_trials": 3})
    obtain(NAME, {"profile": "quick", "leader_counts": [5]})
    assert computed[0][1] == GMMConvergence.of_profile("quick", {"n_trials": 3})
    assert computed[1][1] == GMMConvergence.of_profile("quick", {"leader_counts": [5]})
    given = {"profile": "paper", "seed": 7}
    obtain(NAME, given)
    assert computed[2][1] == GMMConvergence.of_profile("paper", {"seed": 7})
    assert given == {"profile": "paper", "seed": 7}
    with pytest.raises(ParameterError, match="n_trials"):
        obtain(NAME, {"n_trails": 3})
    assert len(computed) == 3


def test_chunks_are_kept_at_paper_and_where_the_command_line_says(monkeypatch, tmp_path, computed):
    def chunks(profile):
        obtain(NAME, GMMConvergence.of_profile(profile, {"seed": len(computed)}))
        return computed[-1][2]["chunks"]

    assert chunks("quick") is None
    assert chunks("paper") == tmp_path / "chunks"
    monkeypatch.setenv(module.CHUNKS_VARIABLE, str(tmp_path / "given"))
    assert chunks("quick") == chunks("paper") == tmp_path / "given"


def test_progress_is_passed_on(computed):
    def progress(done, total, task):
        pass

    obtain(NAME, GMMConvergence.of_profile("quick"), progress)
    assert computed[0][2]["progress"] is progress
