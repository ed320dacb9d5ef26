"""A section is added as CONTRIBUTING describes it, in a copy of the repository, and works."""

import json
import os
import shutil
import subprocess
import sys

import nbformat
import pytest

from steinis_lib.companion.checkout import ROOT

EXPERIMENT = '''
from functools import partial

import torch
import xarray as xr
from pydantic import Field

from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner.experiment import Cell, Chunk, Experiment


class Spread(Parameters):
    """Sizes."""

    QUICK = {"n_trials": 4}
    n_trials: int = Field(40, ge=2, description="independent means")
    n: int = Field(100, ge=1, description="draws in each mean")


def cells(p: Spread) -> list[Cell]:
    scales = {"narrow": 0.5, "wide": 2.0}
    return [Cell(label, p.n_trials, partial(errors_of, scale=s), 10) for label, s in scales.items()]


def errors_of(p: Spread, chunk: Chunk, scale: float) -> xr.Dataset:
    x = scale * torch.randn(chunk.n_trials, p.n, generator=chunk.generator())
    return xr.Dataset({"error": ("trial", x.mean(-1).numpy())})


EXPERIMENT = Experiment("spread", Spread, cells)
'''
STATISTICS = """
from steinis_lib.companion.intervals import mean


def mean_error(tree, width="narrow"):
    return mean(tree[width].error.values)
"""
SECTION = """
from steinis_lib.companion.section import Section
from steinis_lib.companion.sections.s9_spread.experiment import EXPERIMENT
from steinis_lib.companion.sections.s9_spread.statistics import mean_error

SECTION = Section(
    title="How do means spread?",
    notebook="09_spread",
    experiments=(EXPERIMENT,),
    statistics={"mean-is-zero": mean_error},
)
"""
CELLS = (
    'from steinis_lib.companion.page import begin\n\nparameters, data = begin("spread", globals())',
    'print("trials:", data["wide"].sizes["trial"], "draws:", parameters.n)',
)
CLAIM = """
- id: mean-is-zero
  where: nowhere
  paper: means are zero
  paper_value: "0"
  measure: mean over trials
  experiment: spread
  reproduced: [-0.2, 0.2]
  partly: [-1, 1]
  figure: fig-kl-decay
  readings:
    - name: narrow draws
      primary: true
      choices: {width: narrow}
      why: nothing else is said
    - name: wide draws
      choices: {width: wide}
      why: somebody may draw from afar
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the repository with the new section's folder, notebook and claim; no more."""
    root = tmp_path_factory.mktemp("checkout")
    skip = shutil.ignore_patterns("__pycache__")
    for folder in ("steinis_lib", "notebooks"):
        shutil.copytree(ROOT / folder, root / folder, ignore=skip)
    shutil.copytree(ROOT / "data" / "claims", root / "data" / "claims")
    folder = root / "steinis_lib" / "companion" / "sections" / "s9_spread"
    folder.mkdir()
    for name, text in (
        ("experiment", EXPERIMENT), ("statistics", STATISTICS), ("__init__", SECTION),
    ):  # fmt: skip
        (folder / f"{name}.py").write_text(text, "utf-8")
    parameters = nbformat.v4.new_code_cell("", metadata={"tags": ["parameters"]})
    title = nbformat.v4.new_markdown_cell("# Section 9. How do means spread?")
    code = [nbformat.v4.new_code_cell(source) for source in CELLS]
    notebook = nbformat.v4.new_notebook(cells=[title, parameters, *code])
    notebook.metadata["kernelspec"] = {
        "name": "python3", "display_name": "Python 3", "language": "python",
    }  # fmt: skip
    nbformat.write(notebook, root / "notebooks" / "09_spread.ipynb")
    (root / "data" / "claims" / "9_spread.yaml").write_text(CLAIM, "utf-8")
    return root


def steinis(root, *arguments, module="steinis_lib.companion.cli"):
    """Run the command, or another module, from the copy."""
    environment = os.environ | {"PYTHONPATH": str(root), "COLUMNS": "200", "NO_COLOR": "1"}
    environment.pop("STEINIS_CHUNKS", None)
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=root, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_a_new_section_takes_a_folder_a_notebook_and_its_claims(checkout):
    assert "spread" in steinis(checkout, "list").stdout.split()
    listed = steinis(checkout, "list", "spread").stdout
    assert "independent means" in listed and "draws in each mean" in listed

    written = steinis(checkout, module="steinis_lib.companion.notebooks")
    assert written.stdout.splitlines() == ["09_spread: parameters cell written"], written.stderr
    ran = steinis(checkout, "run", "spread", "-p", "n=7")
    assert ran.returncode == 0, ran.stderr
    text = (checkout / "outputs" / "spread-quick.ipynb").read_text("utf-8")
    assert "trials: 4 draws: 7" in text

    ran = steinis(checkout, "run", "spread", "--profile", "paper")
    assert ran.returncode == 0, ran.stderr
    assert (checkout / "data" / "results" / "spread" / "paper.nc").is_file()
    assert steinis(checkout, "verify", "--no-recompute", "--update").returncode == 0
    found = steinis(checkout, "verify", "--json", "--seed", "1")
    assert found.returncode == 0, found.stderr
    report = json.loads(found.stdout)
    assert report["summary"]["passed"] == "yes"
    (record,) = report["results"]
    assert record["experiment"] == "spread" and record["chunks"]
    rows = {row["id"]: row for row in report["claims"]}
    assert rows["mean-is-zero"]["verdict"] == "reproduced"
    narrow, wide = rows["mean-is-zero"]["readings"]
    assert (narrow["name"], wide["choices"]) == ("narrow draws", {"width": "wide"})
    assert wide["ours"] != narrow["ours"] == rows["mean-is-zero"]["ours"]
    assert {row["verdict"] for i, row in rows.items() if i != "mean-is-zero"} == {"not yet run"}
