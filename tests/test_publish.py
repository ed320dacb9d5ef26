"""The repository's address as one setting, and what follows from it: links, cells, the workflow."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import nbformat
import pytest
import setup_cells
import yaml
from bookparts import fragments, metadata, site
from bookparts.address import Address, read_address

from steinis_lib.companion.registry import SECTIONS

ROOT = Path(__file__).resolve().parents[1]
HOME = "https://github.com/owner/name"
NOTEBOOKS = [section.notebook for section in SECTIONS.values()]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def project(folder: Path, **urls: str) -> Path:
    lines = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    path = folder / "pyproject.toml"
    path.write_text(f'[project]\nname = "x"\n[project.urls]\n{lines}', "utf-8")
    return path


def test_without_a_setting_there_is_no_address(tmp_path: Path) -> None:
    assert read_address({}, project(tmp_path)) == Address("", "", in_notebooks=False)


def test_the_projects_setting_gives_both_addresses(tmp_path: Path) -> None:
    found = read_address({}, project(tmp_path, Repository=f"{HOME}.git"))
    assert found == Address(HOME, "https://owner.github.io/name/", in_notebooks=True)


def test_the_environment_goes_first_and_a_documentation_address_is_kept(tmp_path: Path) -> None:
    path = project(tmp_path, Repository=HOME, Documentation="https://book.example/steinis")
    found = read_address({"STEINIS_REPOSITORY": "https://github.com/a/b/"}, path)
    assert (found.repository, found.site) == (
        "https://github.com/a/b",
        "https://book.example/steinis/",
    )
    there = read_address({"STEINIS_SITE": "https://other.example/"}, path)
    assert there.site == "https://other.example/"


def test_a_users_own_pages_are_at_the_top_of_the_host(tmp_path: Path) -> None:
    found = read_address({"STEINIS_REPOSITORY": "https://github.com/Me/me.github.io"})
    assert found.site == "https://me.github.io/"


@pytest.mark.parametrize(
    "url", ["http://github.com/a/b", "github.com/a/b", HOME + "?x=1", "https:"]
)
def test_an_address_that_cannot_be_one_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must be like https://github.com/owner/name"):
        read_address({"STEINIS_REPOSITORY": url})


def test_a_section_offers_what_can_work_and_nothing_else() -> None:
    assert site.places(Address(), "05_vae") == []
    assert site.places(Address("https://git.example/a/b"), "05_vae") == []
    fresh = site.places(Address(HOME), "05_vae")  # its notebooks do not know the repository
    assert [text for text, _ in fresh] == ["Run on Binder"]
    links = dict(site.places(Address(HOME, in_notebooks=True), "05_vae"))
    assert links == {
        "Run on Binder": "https://mybinder.org/v2/gh/owner/name/main"
        "?urlpath=lab%2Ftree%2Fnotebooks%2F05_vae.ipynb",
        "Run on Colab": "https://colab.research.google.com/github/owner/name/blob/main/"
        "notebooks/05_vae.ipynb",
    }
    row = site.notebook_row(Address(), "05_vae", "../_sources/sections/05_vae.ipynb")
    assert row.count("<a ") == 1 and 'href="../_sources/sections/05_vae.ipynb" download' in row


def test_the_citation_has_the_address_where_it_is_set() -> None:
    citation = fragments.read_citation()
    assert HOME not in fragments.citations(citation, Address())
    with_address = fragments.citations(citation, Address(HOME))
    assert f"url       = {{{HOME}}}" in with_address and f"<{HOME}>" in with_address
    assert citation["title"] in with_address and f"Version {citation['version']}" in with_address


def test_citation_file_and_project_name_the_same_repository() -> None:
    stated = PROJECT.get("urls", {}).get("Repository")
    assert fragments.read_citation().get("repository-code") == stated


def test_zenodo_and_citation_file_agree() -> None:
    zenodo = json.loads((ROOT / ".zenodo.json").read_text("utf-8"))
    citation = fragments.read_citation()
    assert zenodo["title"] == citation["title"]
    assert zenodo["license"] == citation["license"]
    assert [c["name"] for c in zenodo["creators"]] == [a["name"] for a in citation["authors"]]


def test_the_sitemap_and_the_missing_page_name_whole_addresses() -> None:
    address = Address(HOME, "https://owner.github.io/name/")
    found = metadata.sitemap(["b&c.html", "a.html"], address)
    assert re.findall("<loc>(.*?)</loc>", found) == [
        "https://owner.github.io/name/a.html",
        "https://owner.github.io/name/b&amp;c.html",
    ]
    page = '<a href="a.html"><a href="#x"><a href="https://b/"><script src="_static/s.js">'
    assert metadata.absolute(page, address.site) == (
        f'<a href="{address.site}a.html"><a href="#x"><a href="https://b/">'
        f'<script src="{address.site}_static/s.js">'
    )


@pytest.mark.parametrize("book", ["", "https://owner.github.io/name/"])
def test_a_page_names_its_address_only_where_there_is_one(book: str) -> None:
    found = metadata.tags("T", "B", 'a "word" & more', "cite.html", Address(book and HOME, book))
    assert 'name="description" content="a &quot;word&quot; &amp; more"' in found
    for name in ("og:url", "og:image"):
        assert (f'property="{name}"' in found) == bool(book)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_first_cell_of_a_notebook_sets_it_up(name: str) -> None:
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    first = notebook.cells[0]
    assert first.source == setup_cells.setup_cell(read_address({}).repository), "make notebooks"
    assert "remove-cell" in first.metadata.tags


def test_the_cell_does_nothing_in_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("something was installed")

    monkeypatch.setattr(subprocess, "run", fail)
    before = list(sys.path)
    exec(setup_cells.setup_cell(HOME), {})
    assert sys.path == before


def run_cell(folder: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a cell in a Python that sees no package of this one."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=folder,
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_library_and_address_the_cell_says_what_to_do(tmp_path: Path) -> None:
    done = run_cell(tmp_path, setup_cells.setup_cell(""))
    assert done.returncode == 1
    assert "STEINIS_REPOSITORY" in done.stderr and "make install" in done.stderr


@pytest.mark.slow
def test_a_notebook_runs_in_a_new_environment_and_folder(tmp_path: Path) -> None:
    """Without a network: the first cell fetches the checkout and installs the library from it.

    The new environment sees all packages but the library, through links.
    """
    source, environment, elsewhere = (tmp_path / name for name in ("source", "env", "elsewhere"))
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("steinis_lib", "data/claims"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-C", str(source)]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "all"]):
        subprocess.run([*git, *command], check=True)

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = environment / "lib" / version / "site-packages"
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.suffix != ".pth" and "steinis" not in path.name:
            (packages / path.name).symlink_to(path)

    elsewhere.mkdir()
    code = setup_cells.setup_cell("") + (
        "\nimport steinis_lib\nprint(steinis_lib.__file__)\n"
        "from steinis_lib.companion import claims\nprint(len(claims.ledger()))\n"
    )
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    settings = {
        "STEINIS_REPOSITORY": str(source),
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this as: build with the packages that are there
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    done = subprocess.run(
        [environment / "bin" / "python", "-c", code],
        cwd=elsewhere,
        env=kept | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    place, n_claims = done.stdout.split()[-2:]
    assert Path(place).is_relative_to(elsewhere / "steinis-companion")
    assert int(n_claims) > 20
    assert list(packages.glob("steinis_companion-*"))


WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "publish.yml").read_text("utf-8"))


def commands(job: str) -> str:
    return "\n".join(step.get("run", "") for step in WORKFLOW["jobs"][job]["steps"])


def test_publishing_builds_prints_checks_links_and_knows_the_address() -> None:
    build = WORKFLOW["jobs"]["build"]
    assert "STEINIS_REPOSITORY" in build["env"]
    done = commands("build")
    assert done.index("make pdf") < done.index("make links") < done.index("results.tar.gz data")
    assert any("upload-pages-artifact" in step.get("uses", "") for step in build["steps"])


def test_only_a_tag_makes_a_release_and_only_main_is_published() -> None:
    triggers = WORKFLOW[True]["push"]  # YAML reads the word "on" as true
    assert triggers == {"branches": ["main"], "tags": ["v*"]}
    jobs = WORKFLOW["jobs"]
    assert jobs["deploy"]["if"] == "github.ref == 'refs/heads/main'"
    assert jobs["release"]["if"] == "startsWith(github.ref, 'refs/tags/v')"
    assert jobs["release"]["permissions"] == {"contents": "write"}
    assert "gh release create" in commands("release")
    for file in ("results.tar.gz", "steinis-companion.pdf"):
        assert file in commands("release")
    assert f"cp book/_build/{site.PDF} book/_build/html/" in commands("build")


def test_the_workflows_pass_their_linter() -> None:
    program = Path(sysconfig.get_path("scripts")) / "zizmor"
    command = [program, "--offline", "--quiet", ROOT / ".github" / "workflows"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
