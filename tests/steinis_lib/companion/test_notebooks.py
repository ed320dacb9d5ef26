import json
import math
import os
import re
from dataclasses import replace

import nbformat
import papermill
import pytest

from steinis_lib.companion import notebooks, results
from steinis_lib.companion.checkout import ROOT
from steinis_lib.companion.notebooks import parameters_cell, run_notebook
from steinis_lib.companion.parameters import ParameterError
from steinis_lib.companion.registry import EXPERIMENTS, SECTIONS

NAME = "gmm-convergence"
TINY = {
    "n_trials": 2,
    "n_components": 3,
    "n_leaders": 8,
    "n_followers": 6,
    "n_svgd": 9,
    "n_mean_field": 12,
    "leader_counts": [5, 6],
    "wide_multiplier": 5,
    "end_time": 4.0,
    "n_times": 6,
    "n_grid": 101,
}
SMALL_CHECKS = {
    "n_trials": 10,
    "n_followers": 30,
    "ess_threshold": 0.2,
    "max_transitions": 30,
    "n_long_transitions": 5,
}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No chunks from outside."""
    monkeypatch.delenv("STEINIS_CHUNKS", raising=False)


def write(path, *cells):
    """A notebook of a parameters cell and further code cells."""
    first = nbformat.v4.new_code_cell(
        'profile = "quick"\nseed = None\nn_trials = None', metadata={"tags": ["parameters"]}
    )
    notebook = nbformat.v4.new_notebook(cells=[first, *map(nbformat.v4.new_code_cell, cells)])
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.metadata["kernelspec"] = kernel
    nbformat.write(notebook, path)


@pytest.fixture
def tiny_notebook(monkeypatch, tmp_path):
    """Put a notebook of the given cells in the place of the experiment's."""

    def use(*cells):
        path = tmp_path / "tiny.ipynb"
        write(path, *cells)
        monkeypatch.setitem(
            SECTIONS, NAME, replace(SECTIONS[NAME], notebook=str(path.with_suffix("")))
        )

    return use


def texts(notebook):
    """All that a notebook printed or displayed."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            found.append(output.get("text", ""))
            found += [v for v in output.get("data", {}).values() if isinstance(v, str)]
    return "\n".join(found)


def test_the_parameters_cell_is_made_from_the_class_of_parameters():
    source = parameters_cell(EXPERIMENTS[NAME].parameters)
    found, namespace = source.splitlines()[1:], {}
    exec(source, namespace)
    fields = EXPERIMENTS[NAME].parameters.model_fields
    assert [line.split(" = ")[0] for line in found] == list(fields)
    assert all(
        line.endswith(f"  # {info.description}")
        for line, info in zip(found, fields.values(), strict=True)
    )
    del namespace["__builtins__"]
    assert namespace == dict.fromkeys(fields) | {"profile": "quick"}


def test_writing_the_parameters_cells_changes_nothing_else(tiny_notebook, tmp_path, monkeypatch):
    tiny_notebook("x = 1")
    monkeypatch.setattr(notebooks, "SECTIONS", {NAME: SECTIONS[NAME]})
    before = nbformat.read(tmp_path / "tiny.ipynb", as_version=4)
    assert notebooks.write_parameters_cells() == [str(tmp_path / "tiny")]
    after = nbformat.read(tmp_path / "tiny.ipynb", as_version=4)
    assert after.cells[0].source == parameters_cell(EXPERIMENTS[NAME].parameters)
    assert after.cells[1:] == before.cells[1:] and after.metadata == before.metadata
    assert notebooks.write_parameters_cells() == []


def test_a_notebook_without_a_parameters_cell_is_refused(tiny_notebook, tmp_path, monkeypatch):
    tiny_notebook("x = 1")
    monkeypatch.setattr(notebooks, "SECTIONS", {NAME: SECTIONS[NAME]})
    notebook = nbformat.read(tmp_path / "tiny.ipynb", as_version=4)
    notebook.cells[0].metadata.tags = []
    nbformat.write(notebook, tmp_path / "tiny.ipynb")
    with pytest.raises(ValueError, match="has 0 cells tagged `parameters`, expected 1"):
        notebooks.write_parameters_cells()


@pytest.mark.parametrize(
    ("parameters", "profile", "message"),
    [
        ({"n_trails": 3}, "quick", "did you mean n_trials"),
        ({"n_trials": "x"}, "quick", "n_trials"),
        ({"n_trials": 0}, "paper", "n_trials"),
        ({}, "nonsense", "profile"),
        ({"profile": "paper"}, "quick", "profile"),
    ],
)
def test_bad_parameters_are_refused_before_anything_runs(
    monkeypatch, tmp_path, parameters, profile, message
):
    def fail(*arguments, **settings):
        raise AssertionError("a notebook was run")

    monkeypatch.setattr(papermill, "execute_notebook", fail)
    with pytest.raises(ParameterError, match=message):
        run_notebook(NAME, tmp_path / "out.ipynb", parameters, profile)
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_a_failing_cell_keeps_the_notebook_so_far_and_the_earlier_output(tiny_notebook, tmp_path):
    folder = tmp_path / "outputs"
    folder.mkdir()
    output, failed = folder / "out.ipynb", folder / "out.failed.ipynb"
    output.write_text("an earlier result")
    tiny_notebook("print('before')", "1 / (n_trials - 3)", "print('after')")
    with pytest.raises(papermill.PapermillExecutionError, match="ZeroDivisionError"):
        run_notebook(NAME, output, {"n_trials": 3})
    assert output.read_text() == "an earlier result"
    assert sorted(os.listdir(folder)) == ["out.failed.ipynb", "out.ipynb"]
    text = texts(nbformat.read(failed, as_version=4))
    assert "before" in text and "after" not in text

    # Mended, the same command replaces the output and removes what was kept of the failure.
    validated = run_notebook(NAME, output, {"n_trials": 4})
    assert validated.n_trials == 4 and validated.profile == "quick"
    assert os.listdir(folder) == ["out.ipynb"]
    notebook = nbformat.read(output, as_version=4)
    assert "after" in texts(notebook)
    (injected,) = (c for c in notebook.cells if "injected-parameters" in c.metadata.get("tags", []))
    assert "remove-cell" in injected.metadata.tags
    assert "n_trials = 4" in injected.source
    others = [c for c in notebook.cells if c is not injected]
    assert not any("remove-cell" in c.metadata.get("tags", []) for c in others)


@pytest.mark.slow
def test_plain_papermill_with_an_unknown_parameter_stops_early_and_says_why(tmp_path):
    output = tmp_path / "out.ipynb"
    with pytest.raises(papermill.PapermillExecutionError) as caught:
        papermill.execute_notebook(
            SECTIONS[NAME].notebook_path,
            output,
            parameters={"n_trails": 3, "n_leaders": 1},
            cwd=ROOT,
            progress_bar=False,
            kernel_name="python3",
        )
    assert caught.value.ename == "ParameterError"
    assert "n_trails: no such parameter; did you mean n_trials?" in str(caught.value.evalue)
    assert "n_leaders: " in str(caught.value.evalue)
    ran = [c for c in nbformat.read(output, as_version=4).cells if c.get("execution_count")]
    assert "begin(" in ran[-1].source  # the cell after the parameters: nothing was computed


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The real notebook, run with tiny parameters, and smaller checks of Algorithm 1."""
    folder = tmp_path_factory.mktemp("run")
    notebook = nbformat.read(SECTIONS[NAME].notebook_path, as_version=4)
    (setup,) = (c for c in notebook.cells if " = begin(" in c.get("source", ""))
    shrink = f'EXPERIMENTS["algorithm-checks"].parameters.QUICK.update({SMALL_CHECKS!r})'
    registry = "from steinis_lib.companion.registry import EXPERIMENTS"
    setup.source += f"\n{registry}\n{shrink}"
    nbformat.write(notebook, folder / "small.ipynb")
    stored = sorted(results.RESULTS.rglob("*"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("STEINIS_CHUNKS", raising=False)
        patch.setitem(SECTIONS, NAME, replace(SECTIONS[NAME], notebook=str(folder / "small")))
        validated = run_notebook(NAME, folder / "out.ipynb", TINY)
    assert sorted(results.RESULTS.rglob("*")) == stored  # quick stores nothing
    return validated, nbformat.read(folder / "out.ipynb", as_version=4)


@pytest.mark.slow
def test_the_real_notebook_runs_with_given_parameters(executed):
    validated, notebook = executed
    assert validated == EXPERIMENTS[NAME].parameters.of_profile("quick", TINY)
    code = [c for c in notebook.cells if c.cell_type == "code"]
    assert all(c.execution_count for c in code)
    text = texts(notebook)
    rows = dict(re.findall(r"<tr>\s*<td[^>]*>(.*?)</td>\s*<td[^>]*>(.*?)</td>\s*</tr>", text))
    expected = {"profile": "quick", "trials": "2", "leaders |A|": "8", "step ε": "0.2", "seed": "1"}
    assert rows | expected == rows
    assert "steinis run gmm-convergence --profile quick -p &#x27;n_trials=2&#x27;" in text
    assert "SteinIS, |A| = 8" in text and "SVGD, 9" in text and "5 × that bandwidth" in text


@pytest.mark.slow
def test_the_real_notebook_warns_of_nothing(executed):
    outputs = [o for c in executed[1].cells for o in c.get("outputs", [])]
    assert [o.text for o in outputs if o.get("name") == "stderr"] == []
    assert [o for o in outputs if o.output_type == "error"] == []


@pytest.mark.slow
def test_every_figure_of_the_real_notebook_has_a_description_and_unique_ids(executed):
    text = texts(executed[1])
    pictures = re.findall(r"<svg[^>]*>|<img[^>]*>", text)
    assert len(pictures) >= 7
    for picture in pictures:
        assert re.search(r'(aria-label|alt)="[^"]{30,}"', picture)
    ids = re.findall(r'\bid="([^"]+)"', "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL)))
    assert len(set(ids)) == len(ids)


@pytest.mark.slow
def test_the_real_notebooks_numbers_are_numbers(executed):
    markdown = "\n".join(
        o.data["text/markdown"]
        for c in executed[1].cells
        for o in c.get("outputs", [])
        if "text/markdown" in o.get("data", {})
    )
    assert "Continuing" in markdown
    assert not re.search(r"\b(nan|inf)\b", markdown)
    assert math.isfinite(float(re.search(r"differ by at most ([\d.e-]+) in", markdown)[1]))


@pytest.mark.slow
def test_an_executed_notebook_holds_no_path_of_this_computer(executed):
    text = json.dumps(executed[1])
    assert str(ROOT) not in text
    assert os.path.expanduser("~") + os.sep not in text
    assert "papermill" not in executed[1].metadata
    assert not any("papermill" in cell.metadata for cell in executed[1].cells)


@pytest.mark.slow
def test_paths_in_outputs_lose_the_folders_of_this_computer(tiny_notebook, tmp_path):
    tiny_notebook(
        "import sys, pathlib, steinis_lib",
        "print(steinis_lib.__file__, pathlib.Path.home() / 'x', sys.prefix)",
        "{'a': [str(pathlib.Path.home() / 'y')]}",
    )
    output = tmp_path / "out.ipynb"
    run_notebook(NAME, output)
    text = output.read_text("utf-8")
    assert "steinis_lib/__init__.py x" in text and "['y']" in text
    for folder in (str(ROOT), os.path.expanduser("~") + os.sep, str(tmp_path)):
        assert folder not in text


@pytest.mark.slow
def test_figures_leave_files_only_where_a_folder_is_named(tiny_notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("STEINIS_FIGURES", str(tmp_path / "outside"))
    tiny_notebook(
        "from steinis_lib.companion import figures",
        "import matplotlib.pyplot as plt",
        "figure, axes = plt.subplots()\naxes.plot([1, 2], label='a')",
        "figures.show(figure, 'a line', '1.1', 'A line.')",
    )
    run_notebook(NAME, tmp_path / "out.ipynb")
    assert not (tmp_path / "outside").exists()
    run_notebook(NAME, tmp_path / "out.ipynb", figures=tmp_path / "files")
    found = sorted(path.name for path in (tmp_path / "files").iterdir())
    assert found == ["figure-1-1.csv", "figure-1-1.pdf", "figure-1-1.svg"]
    assert os.environ["STEINIS_FIGURES"] == str(tmp_path / "outside")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SECTIONS if name != NAME])
def test_every_notebook_runs_at_the_profile_that_the_command_line_takes(name, tmp_path):
    """Without a word on stderr, with a description of each figure, and without a NaN."""
    run_notebook(name, tmp_path / "out.ipynb")
    notebook = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    outputs = [o for c in notebook.cells for o in c.get("outputs", [])]
    assert [o.text for o in outputs if o.get("name") == "stderr"] == []
    text = texts(notebook)
    pictures = re.findall(r"<svg[^>]*>|<img[^>]*>", text)
    assert pictures
    assert all(re.search(r'(aria-label|alt)="[^"]{30,}"', picture) for picture in pictures)
    words = re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)
    assert not re.search(r"\bnan\b", words)
