"""The files that describe the project agree with each other."""

import re
import tomllib
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import steinis_lib

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
LOCK_LINES = [
    line
    for line in (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    if line.strip() and not line.startswith("#")
]
PINS = {
    canonicalize_name(name): version
    for name, _, version in (line.partition("==") for line in LOCK_LINES)
}
RANGES = [
    Requirement(text)
    for name, group in {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}.items()
    if name != "bench"  # what benchmarks/ compares with is not in the environment
    for text in group
]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("**/*.ipynb"))


@pytest.mark.parametrize("requirement", RANGES, ids=lambda requirement: requirement.name)
def test_the_lock_satisfies_every_range(requirement: Requirement) -> None:
    version = PINS[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(version, prereleases=True)


@pytest.mark.parametrize("line", LOCK_LINES)
def test_every_line_of_the_lock_is_a_plain_pin(line: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line)


def test_the_lock_has_pytorch_without_a_build_label_and_no_gpu_libraries() -> None:
    assert PINS["torch"] == "2.13.0"
    assert not [name for name in PINS if name.startswith(("nvidia-", "cuda-", "triton"))]


def test_the_conda_environment_installs_the_lock_and_the_package() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
    (pip_section,) = (item["pip"] for item in environment["dependencies"] if isinstance(item, dict))
    (python,) = (item for item in environment["dependencies"] if str(item).startswith("python="))
    assert environment["channels"] == ["conda-forge"]
    assert "-r requirements.lock" in pip_section
    assert "-e ." in pip_section
    version = python.removeprefix("python=") + ".0"
    assert SpecifierSet(PROJECT["requires-python"]).contains(version)


def test_all_places_that_state_the_version_agree() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    top_entry = re.search(r"^## \[(\d[^\]]*)\]", changelog, flags=re.MULTILINE)
    assert top_entry is not None
    stated = {
        "pyproject.toml": PROJECT["version"],
        "CITATION.cff": citation["version"],
        "CHANGELOG.md": top_entry[1],
        "steinis_lib": steinis_lib.__version__,
    }
    assert len(set(stated.values())) == 1, stated


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_committed_notebook_is_clean_and_takes_parameters(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell for cell in code if cell.outputs or cell.execution_count is not None] == []
    tagged = [cell for cell in code if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == 1
