import os
import re
from dataclasses import replace
from functools import partial

import nbformat
import pytest
import synthetic
from typer.testing import CliRunner

from steinis_lib.companion import checkout, claims, cli, notebooks, obtain, results
from steinis_lib.companion.registry import EXPERIMENTS, SECTIONS

NAME = "gmm-convergence"


def call(*arguments):
    """Run the command on a wide terminal without colours."""
    return CliRunner().invoke(cli.app, arguments, env={"COLUMNS": "250", "NO_COLOR": "1"})


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Nothing is computed or published in earnest, and results are the test's own."""

    def fail(*arguments, **settings):
        raise AssertionError("computed")

    monkeypatch.setattr(cli.runner, "compute", fail)
    monkeypatch.setattr(cli.runner, "CHUNKS", tmp_path / "chunks")
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(checkout, "uncommitted", list)
    verdicts = tmp_path / "verdicts.json"
    monkeypatch.setattr(claims, "VERDICTS", verdicts)
    # The same for functions that took the path as the default of an argument.
    monkeypatch.setattr(claims, "publish", partial(claims.publish, path=verdicts))
    monkeypatch.setattr(claims, "discrepancies", partial(claims.discrepancies, path=verdicts))
    monkeypatch.delenv(obtain.CHUNKS_VARIABLE, raising=False)


# -------------------------------------------------------------------------------------- list


def test_list_names_the_experiments():
    found = call("list")
    assert found.exit_code == 0
    assert found.stdout.split() == list(EXPERIMENTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_list_shows_every_parameter_with_both_values_and_its_meaning(name):
    found = call("list", name)
    assert found.exit_code == 0
    cls = EXPERIMENTS[name].parameters
    paper, quick = cls.of_profile("paper"), cls.of_profile("quick")
    for field, info in cls.model_fields.items():
        (line,) = (s for s in found.stdout.splitlines() if re.match(rf"\W+{field}\W", s))
        cells = [cell.strip() for cell in re.split("[│┃]", line)[1:-1]]
        expected = [field, str(getattr(paper, field)), str(getattr(quick, field))]
        assert cells == [*expected, info.description]


def test_list_of_an_unknown_experiment_is_refused():
    found = call("list", "nonsense")
    assert found.exit_code == 2
    assert "nonsense" in found.stderr
    assert all(name in found.stderr for name in EXPERIMENTS)


# --------------------------------------------------------------------------------------- run

NONSENSE = {
    "unknown experiment": (["nonsense"], "no notebook 'nonsense'; known: gmm-convergence"),
    "unknown parameter": ([NAME, "-p", "n_trails=3"], "did you mean n_trials?"),
    "wrong type": ([NAME, "-p", "n_trials=many"], "n_trials: .*integer.*got 'many'"),
    "wrong type in a list": ([NAME, "-p", "leader_counts=[10, x]"], r"leader_counts\.1: "),
    "out of range": ([NAME, "-p", "step_size=-1"], "step_size: .*greater than 0, got -1"),
    "not finite": ([NAME, "-p", "step_size=.nan"], "step_size: .*finite"),
    "no value": ([NAME, "-p", "seed="], "seed: .*integer, got None"),
    "no equals sign": ([NAME, "-p", "seed"], "-p seed: expected NAME=VALUE"),
    "no name": ([NAME, "-p", "=3"], "-p =3: expected NAME=VALUE"),
    "no YAML": ([NAME, "-p", "leader_counts=[1, 2"], "leader_counts: cannot read the value"),
    "twice": ([NAME, "-p", "seed=1", "-p", "seed=1"], "seed: given twice"),
    "bad profile": ([NAME, "--profile", "nonsense"], "'quick' or 'paper', got 'nonsense'"),
    "profile as a parameter": ([NAME, "-p", "profile=paper"], "use --profile"),
}


@pytest.mark.parametrize(("arguments", "message"), NONSENSE.values(), ids=NONSENSE.keys())
def test_run_refuses_nonsense_before_anything_is_computed(arguments, message, tmp_path):
    found = call("run", *arguments, "-o", str(tmp_path / "out.ipynb"))
    assert found.exit_code == 2, found.exception
    assert re.search(message, plain(found.stderr))
    assert found.stdout == ""
    assert os.listdir(tmp_path) == []


def test_run_tells_all_problems_at_once():
    found = call("run", NAME, "-p", "n_trails=3", "-p", "step_size=2", "-p", "seed=x")
    assert found.exit_code == 2
    for name in ("n_trails", "step_size", "seed"):
        assert f"{name}: " in plain(found.stderr)


@pytest.mark.parametrize("arguments", [["run"], ["run", NAME, "--nonsense"], ["nonsense"]])
def test_a_wrong_command_line_has_exit_code_2(arguments):
    found = call(*arguments)
    assert found.exit_code == 2
    assert "Usage" in plain(found.stderr)


def test_run_refuses_an_output_that_is_a_folder_before_anything_is_computed(tmp_path):
    found = call("run", NAME, "-o", str(tmp_path))
    assert found.exit_code == 2
    assert str(tmp_path) in found.stderr


@pytest.fixture
def recorded(monkeypatch):
    """What `run` computed and what notebook it ran, with the folder of chunks that both saw."""
    calls = []

    def compute(experiment, parameters, *, chunks, **settings):
        calls.append(("compute", experiment.name, parameters, chunks))

    def run_notebook(name, output, parameters=None, profile="quick"):
        chunks = os.environ.get(obtain.CHUNKS_VARIABLE)
        calls.append(("notebook", name, output, dict(parameters), profile, chunks))

    monkeypatch.setattr(cli.runner, "compute", compute)
    monkeypatch.setattr(notebooks, "run_notebook", run_notebook)
    return calls


def test_run_computes_and_runs_the_notebook_with_the_same_parameters(recorded, tmp_path):
    output = tmp_path / "out.ipynb"
    given = ["-p", "n_trials=3", "-p", "leader_counts=[10, 20]", "-p", "step_size=1e-1"]
    found = call("run", NAME, *given, "-o", str(output))
    assert found.exit_code == 0
    assert str(output) in found.stdout
    computed, ran = recorded
    validated = EXPERIMENTS[NAME].parameters.of_profile(
        "quick", {"n_trials": 3, "leader_counts": [10, 20], "step_size": 0.1}
    )
    assert computed[1:3] == (NAME, validated)
    assert ran[1:3] == (NAME, output) and ran[4] == "quick"
    assert EXPERIMENTS[NAME].parameters.of_profile("quick", ran[3]) == validated
    # The notebook finds the chunks; at profile quick they are gone afterwards.
    assert ran[5] == str(computed[3])
    assert not computed[3].exists()
    assert obtain.CHUNKS_VARIABLE not in os.environ


@pytest.mark.slow
def test_run_at_profile_paper_keeps_chunks_and_does_not_compute_what_is_stored(recorded, tmp_path):
    command = ["run", NAME, "--profile", "paper", "-o", str(tmp_path / "out.ipynb")]
    assert call(*command).exit_code == 0
    assert [c[0] for c in recorded] == ["compute", "notebook"]
    assert recorded[0][3] == tmp_path / "chunks"
    assert recorded[1][4:] == ("paper", str(tmp_path / "chunks"))
    recorded.clear()
    synthetic.store(gmm_convergence=synthetic.gmm_convergence())
    assert call(*command).exit_code == 0
    assert [c[0] for c in recorded] == ["notebook"]
    assert call(*command, "-p", "seed=2").exit_code == 0
    assert [c[0] for c in recorded] == ["notebook", "compute", "notebook"]


def test_run_at_profile_paper_refuses_files_that_git_does_not_hold(recorded, monkeypatch, tmp_path):
    monkeypatch.setattr(checkout, "uncommitted", lambda: ["steinis_lib/steinis.py"])
    command = ["run", NAME, "-o", str(tmp_path / "out.ipynb"), "--profile"]
    found = call(*command, "paper")
    assert found.exit_code == 2
    message = " ".join(plain(found.stderr).split())
    assert "differ from the last commit: steinis_lib/steinis.py. Commit them, or use" in message
    assert recorded == [] and os.listdir(tmp_path) == []
    assert call(*command, "quick").exit_code == 0
    recorded.clear()
    synthetic.store(gmm_convergence=synthetic.gmm_convergence())
    assert call(*command, "paper").exit_code == 0
    assert [c[0] for c in recorded] == ["notebook"]


@pytest.mark.slow
def test_a_failing_cell_gives_exit_code_1_and_says_where_the_notebook_is(monkeypatch, tmp_path):
    cells = [
        nbformat.v4.new_code_cell('profile = "quick"', metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell("1 / 0"),
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.metadata["kernelspec"] = kernel
    nbformat.write(notebook, tmp_path / "tiny.ipynb")
    monkeypatch.setitem(SECTIONS, NAME, replace(SECTIONS[NAME], notebook=str(tmp_path / "tiny")))
    monkeypatch.setattr(cli.runner, "compute", lambda *arguments, **settings: None)
    output, failed = tmp_path / "out" / "x.ipynb", tmp_path / "out" / "x.failed.ipynb"
    found = call("run", NAME, "-o", str(output))
    assert found.exit_code == 1
    message = plain(found.stderr)
    assert "a cell failed" in message and "ZeroDivisionError" in message
    assert str(failed) in message
    assert os.listdir(output.parent) == [failed.name]
    assert obtain.CHUNKS_VARIABLE not in os.environ


# ---------------------------------------------------------------------- without a checkout


@pytest.mark.parametrize(
    "command", [("run", NAME), ("verify",), ("verify", "--leave-out", "vae:prior-steinis")]
)
def test_without_a_checkout_the_message_says_that_one_is_needed(command, monkeypatch, tmp_path):
    monkeypatch.setattr(checkout, "DATA", tmp_path / "nowhere")
    found = call(*command)
    assert found.exit_code == 2
    assert "needs a checkout of the repository" in plain(found.stderr)
