"""The files that describe the project agree with each other."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import steinis_lib

ROOT = Path(__file__).resolve().parents[1]


def text_of(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


SETTINGS: dict[str, Any] = tomllib.loads(text_of("pyproject.toml"))
PROJECT: dict[str, Any] = SETTINGS["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
LOCK_LINES = [
    line for line in text_of("requirements.lock").splitlines() if not line.startswith("#")
]
PINS = {
    canonicalize_name(name): pin.partition(" ;")[0]
    for name, _, pin in (line.partition("==") for line in LOCK_LINES)
}
RANGES = [
    requirement
    for name, group in {"": PROJECT["dependencies"], **EXTRAS}.items()
    if name not in ("bench", "evidence")  # what benchmarks/ compares with is not in the environment
    for requirement in map(Requirement, group)
    if requirement.name != PROJECT["name"]
]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("**/*.ipynb"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("requirement", RANGES, ids=lambda requirement: requirement.name)
def test_the_lock_satisfies_every_range(requirement: Requirement) -> None:
    version = PINS[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(version, prereleases=True)


def test_every_line_of_the_lock_is_a_plain_pin() -> None:
    python = r'python_version == "(?:{})"'.format("|".join(map(re.escape, PYTHONS)))
    pin = re.compile(rf"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+( ; {python}( or {python})*)?")
    assert [line for line in LOCK_LINES if not pin.fullmatch(line)] == []
    assert len(LOCK_LINES) > 100


def test_the_lock_is_sorted_and_pins_each_package_once() -> None:
    names = [line.partition("==")[0].lower() for line in LOCK_LINES]
    assert names == sorted(names)
    assert len(PINS) == len(LOCK_LINES)


def test_the_lock_was_made_with_every_supported_python() -> None:
    assert f"with Python {', '.join(PYTHONS)} on Linux" in text_of("requirements.lock")


def test_the_method_needs_three_packages_and_the_rest_is_extras() -> None:
    assert {Requirement(text).name for text in PROJECT["dependencies"]} == {
        "torch",
        "numpy",
        "scipy",
    }
    assert set(EXTRAS) == {"arviz", "progress", "companion", "book", "dev", "bench", "evidence"}
    assert f"{PROJECT['name']}[arviz]" in EXTRAS["companion"]


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("companion", "groups"),
    [
        # Functions that need ArviZ or safetensors import them when they are called.
        (False, [PROJECT["dependencies"], EXTRAS["arviz"], ["safetensors"]]),
        (True, [PROJECT["dependencies"], EXTRAS["arviz"], EXTRAS["companion"]]),
    ],
)
def test_every_imported_package_is_declared(companion: bool, groups: list[list[str]]) -> None:
    declared = {canonicalize_name(Requirement(text).name) for group in groups for text in group}
    paths = [
        path
        for path in (ROOT / "steinis_lib").rglob("*.py")
        if ("companion" in path.parts) == companion
    ]
    names = {name for path in paths for name in imported(path)} - {"steinis_lib"}
    distributions = packages_distributions()
    unknown = {
        name
        for name in names - sys.stdlib_module_names
        if not declared & set(map(canonicalize_name, distributions.get(name, [])))
    }
    assert len(names) > 5
    assert unknown == set()


def test_all_places_that_state_the_pythons_agree() -> None:
    first, last = PYTHONS[0], PYTHONS[-1]
    beyond = f"3.{int(last.partition('.')[2]) + 1}"
    assert [f"3.{minor}" for minor in range(11, 11 + len(PYTHONS))] == PYTHONS
    assert PROJECT["requires-python"] == f">={first},<{beyond}"
    assert SETTINGS["tool"]["mypy"]["python_version"] == first
    assert SETTINGS["tool"]["ruff"]["target-version"] == "py" + first.replace(".", "")
    makefile = text_of("Makefile")
    bounds = f"{tuple(map(int, first.split('.')))} <= sys.version_info < "
    assert bounds + f"{tuple(map(int, beyond.split('.')))}" in makefile
    assert (
        f"for p in {' '.join('python' + python for python in PYTHONS)} python3 python;" in makefile
    )
    for path in ("README.md", "CONTRIBUTING.md", "Makefile"):
        assert f"Python {first} to {last}" in text_of(path), path


def test_ci_runs_the_tests_with_every_supported_python() -> None:
    workflow = yaml.safe_load(text_of(".github/workflows/test.yml"))
    job = workflow["jobs"]["test"]
    rows = {row["python"]: row["command"] for row in job["strategy"]["matrix"]["include"]}
    assert list(rows) == PYTHONS
    assert rows == dict.fromkeys(PYTHONS, "make test") | {PYTHONS[0]: ".ci/run"}
    assert job["container"] == "python:${{ matrix.python }}-bookworm"
    (step,) = (step for step in job["steps"] if "run" in step)
    assert step["run"] == "${{ matrix.command }}"
    assert step["env"]["PYTHON"] == "python${{ matrix.python }}"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_read_only_and_pins_its_actions(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text("utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    actions = [step["uses"] for step in steps if "uses" in step]
    assert actions
    assert [a for a in actions if not re.fullmatch(r"[^@]+@[0-9a-f]{40}", a)] == []


def test_results_are_verified_every_week_on_three_systems() -> None:
    workflow = yaml.safe_load(text_of(".github/workflows/verify.yml"))
    job = workflow["jobs"]["verify"]
    systems = [name.partition("-")[0] for name in job["strategy"]["matrix"]["os"]]
    assert systems == ["ubuntu", "macos", "windows"]
    (python,) = (s["with"]["python-version"] for s in job["steps"] if "setup-python" in str(s))
    assert python in PYTHONS
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands[-1] == "steinis verify --minutes 0 --json > verify.json"
    kept = job["steps"][-1]
    assert (kept["if"], kept["with"]["path"]) == ("always()", "verify.json")


def test_ci_verifies_with_two_instruction_sets() -> None:
    found = re.findall(r"^(.*)\.venv/bin/steinis verify (.*)$", text_of(".ci/run"), re.MULTILINE)
    options = "--chunks 3 --minutes 2.5"
    assert found == [("", options), ("ATEN_CPU_CAPABILITY=default ", options)]


def test_every_target_of_make_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):.*## ", text_of("Makefile"), flags=re.MULTILINE))
    assert targets == set(re.findall(r"^\.PHONY: (.*)", text_of("Makefile"), re.M)[0].split())
    for path in ("README.md", "CONTRIBUTING.md", ".ci/run", ".github/workflows/test.yml"):
        text = text_of(path)
        named = re.findall(r"(?:^|`|\$ |\d |command: )make ([a-z]+)", text, flags=re.MULTILINE)
        assert named and set(named) <= targets, path


@pytest.mark.parametrize("minor", range(9, 16))
def test_make_takes_supported_pythons_only(minor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (check,) = re.findall(r"^SUPPORTED := (.*)$", text_of("Makefile"), flags=re.MULTILINE)
    monkeypatch.setattr(sys, "version_info", (3, minor, 1, "final", 0))
    with pytest.raises(SystemExit) as stop:
        exec(check)
    assert (not stop.value.code) == (f"3.{minor}" in PYTHONS)


def test_the_lock_has_pytorch_without_a_build_label_and_no_gpu_libraries() -> None:
    assert PINS["torch"] == "2.13.0"
    assert not [name for name in PINS if name.startswith(("nvidia-", "cuda-", "triton"))]


def test_the_conda_environment_installs_the_lock_and_the_package() -> None:
    environment = yaml.safe_load(text_of("environment.yml"))
    (pip_section,) = (item["pip"] for item in environment["dependencies"] if isinstance(item, dict))
    (python,) = (item for item in environment["dependencies"] if str(item).startswith("python="))
    assert environment["channels"] == ["conda-forge"]
    assert "-r requirements.lock" in pip_section
    assert "-e ." in pip_section
    assert python.removeprefix("python=") in PYTHONS


def test_all_places_that_state_the_version_agree() -> None:
    citation = yaml.safe_load(text_of("CITATION.cff"))
    changelog = text_of("CHANGELOG.md")
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
