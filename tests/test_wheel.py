"""The library as it is installed from a wheel, without a checkout, with and without extras.

Nothing is downloaded: the new environments see packages of the running one through links.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable
from email.parser import HeaderParser
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PACKAGES = Path(sysconfig.get_path("purelib"))
BASE = ("torch", "numpy", "scipy")
OTHERS = (
    *("arviz", "dask", "distributed", "IPython", "matplotlib", "netCDF4", "pandas"),
    *("papermill", "PIL", "pooch", "pydantic", "rich", "safetensors", "typer", "xarray", "yaml"),
)


def readme_example() -> tuple[str, str]:
    """Return the kind, python or pycon, and the code of the README's first Python example."""
    found = re.search(r"```(python|pycon)\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    assert found is not None
    return found[1], found[2]


def needed(names: Iterable[str]) -> dict[str, Distribution]:
    """Return these distributions and all that they need, as far as they are installed."""
    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:  # such as GPU libraries of PyTorch, which it can do without
            continue
        requirements = [Requirement(text) for text in found[name].requires or []]
        waiting += [r.name for r in requirements if r.marker is None or r.marker.evaluate()]
    return found


def top_level(parts: Iterable[Distribution]) -> set[str]:
    """Return the names in site-packages that belong to these distributions."""
    return {
        file.parts[0] for part in parts for file in part.files or [] if file.parts[0] != ".."
    } - {"__pycache__"}


class Environment:
    """A virtual environment with the wheel, which sees some packages of the running one."""

    def __init__(self, folder: Path, wheel: Path, names: Iterable[str]) -> None:
        self.folder, self.bin = folder, folder / "env" / "bin"
        links = folder / "links"
        links.mkdir()
        for name in names:
            (links / name).symlink_to(PACKAGES / name)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
        (packages,) = (folder / "env").glob("lib/python*/site-packages")
        (packages / "links.pth").write_text(f"{links}\n", "utf-8")
        pip("--python", self.bin / "python", "install", "--no-deps", wheel)

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment outside the checkout."""
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return subprocess.run(
            [self.bin / command[0], *command[1:]],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def python(self, code: str) -> str:
        """Run code, which must succeed, and return what it prints."""
        done = self.run("python", "-c", code)
        assert done.returncode == 0, done.stderr
        return done.stdout


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run([*command, "--no-index"], check=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "steinis_lib", source / "steinis_lib", ignore=ignored)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", built, source)
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    names = top_level(needed(BASE).values())
    return Environment(tmp_path_factory.mktemp("bare"), wheel, names)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    extra = [Requirement(text) for text in PROJECT["optional-dependencies"]["companion"]]
    arviz = [Requirement(text) for text in PROJECT["optional-dependencies"]["arviz"]]
    parts = needed([*BASE, *(r.name for r in extra + arviz)])
    parts.pop(canonicalize_name(PROJECT["name"]), None)  # the checkout itself
    return Environment(tmp_path_factory.mktemp("full"), wheel, top_level(parts.values()))


def test_the_wheel_has_the_library_and_asks_for_three_packages(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        files = set(archive.namelist())
        (path,) = (name for name in files if name.endswith("/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(path).decode())
    library = {str(p.relative_to(ROOT)) for p in (ROOT / "steinis_lib").rglob("*.py")}
    assert library | {"steinis_lib/py.typed"} <= files
    assert {name.split("/")[0].partition("-")[0] for name in files} == {
        "steinis_lib",
        "steinis_companion",
    }
    requirements = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    always = {r.name for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})}
    assert always == set(BASE)
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])


def test_the_library_is_imported_from_the_wheel_and_nothing_else_is_there(
    bare: Environment,
) -> None:
    code = "from importlib.util import find_spec; import steinis_lib; print(steinis_lib.__file__);"
    code += f"print([name for name in {OTHERS} if find_spec(name)])"
    place, found = bare.python(code).splitlines()
    assert Path(place).is_relative_to(bare.folder)
    assert found == "[]"


def test_every_module_outside_the_companion_is_imported_without_extras(bare: Environment) -> None:
    modules = sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "steinis_lib").rglob("*.py")
        if "companion" not in path.parts
    )
    assert len(modules) > 20
    bare.python("\n".join(f"import {name}" for name in modules))


def test_the_first_example_of_the_readme_runs_without_extras(bare: Environment) -> None:
    kind, code = readme_example()
    (bare.folder / "example.txt").write_text(code, "utf-8")
    runner = ("-m", "doctest") if kind == "pycon" else ()
    done = bare.run("python", *runner, "example.txt")
    assert done.returncode == 0, done.stdout + done.stderr


def test_saving_a_state_names_the_extra_that_it_needs(bare: Environment) -> None:
    code = """
import torch
from steinis_lib import Gaussian, SteinIS, save_state

target, q0 = Gaussian.isotropic(torch.ones(2)), Gaussian.isotropic(torch.zeros(2))
state = SteinIS(target, q0).init(torch.Generator().manual_seed(0))
try:
    save_state(state, "state.safetensors")
except ImportError as error:
    print(error)
"""
    assert "pip install 'steinis-companion[companion]'" in bare.python(code)


def test_the_command_without_its_extra_names_the_extra(bare: Environment) -> None:
    done = bare.run("steinis", "list")
    assert done.returncode != 0
    assert "pip install 'steinis-companion[companion]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_lists_experiments_without_a_checkout(full: Environment) -> None:
    done = full.run("steinis", "list")
    assert done.returncode == 0, done.stderr
    assert "gmm-convergence" in done.stdout.split()


@pytest.mark.parametrize("arguments", [("verify",), ("run", "rbm")], ids=lambda given: given[0])
def test_the_command_says_that_it_needs_a_checkout(
    full: Environment, arguments: tuple[str, ...]
) -> None:
    done = full.run("steinis", *arguments)
    assert done.returncode != 0
    assert "checkout" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_importing_the_library_leaves_the_extras_alone(full: Environment) -> None:
    code = "import sys, steinis_lib;"
    code += f"print(sorted({{name.partition('.')[0] for name in sys.modules}} & set({OTHERS})))"
    assert full.python(code) == "[]\n"
