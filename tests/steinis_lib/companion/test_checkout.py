"""What git says of the files that results depend on, in a small repository of the test's own."""

import re
import subprocess

import pytest

from steinis_lib.companion import checkout
from steinis_lib.companion.checkout import UncommittedError, commit, need_committed, uncommitted

UNKNOWN = "unknown (no git checkout)"


def git(folder, *arguments):
    settings = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *settings, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def empty(monkeypatch, tmp_path):
    """The root of a repository without a commit."""
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    git(tmp_path, "init")
    return tmp_path


@pytest.fixture
def root(empty):
    """The root of a repository that holds everything."""
    for name in (
        "steinis_lib/a.py", "steinis_lib/b c.py", "data/vae/d10.json", "data/results/x.nc",
        "pyproject.toml", "README.md",
    ):  # fmt: skip
        write(empty, name, "as committed")
    write(empty, ".gitignore", "__pycache__/")
    git(empty, "add", ".")
    git(empty, "commit", "-m", "All")
    return empty


def write(root, name, text="changed"):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def remove(root, name):
    (root / name).unlink()


def stage(root, name):
    write(root, name)
    git(root, "add", name)


def rename(root, name):
    git(root, "mv", name, "steinis_lib/new.py")


def test_where_git_holds_everything_the_commit_is_named(root):
    assert uncommitted() == []
    assert re.fullmatch("[0-9a-f]{12}", commit())
    need_committed()


@pytest.mark.parametrize(
    ("change", "name", "listed"),
    [
        (write, "steinis_lib/a.py", ["steinis_lib/a.py"]),
        (write, "steinis_lib/b c.py", ["steinis_lib/b c.py"]),
        (write, "steinis_lib/new/ö.py", ["steinis_lib/new/ö.py"]),
        (write, "requirements.lock", ["requirements.lock"]),
        (stage, "data/vae/d10.json", ["data/vae/d10.json"]),
        (stage, "data/mnist/new.gz", ["data/mnist/new.gz"]),
        (remove, "pyproject.toml", ["pyproject.toml"]),
        (rename, "steinis_lib/a.py", ["steinis_lib/a.py", "steinis_lib/new.py"]),
    ],
)
def test_what_git_does_not_hold_is_listed(root, change, name, listed):
    clean = commit()
    change(root, name)
    assert sorted(uncommitted()) == listed
    assert commit() == f"{clean}-dirty"
    with pytest.raises(UncommittedError, match=f"commit: {', '.join(listed)}. Commit them"):
        need_committed()


@pytest.mark.parametrize(
    "name", ["README.md", "data/results/x.nc", "notes.txt", "steinis_lib/__pycache__/a.pyc"]
)
def test_what_results_do_not_depend_on_may_differ(root, name):
    clean = commit()
    write(root, name)
    assert uncommitted() == []
    assert commit() == clean


def test_without_a_commit_nothing_is_held(empty):
    write(empty, "steinis_lib/a.py")
    assert uncommitted() == ["steinis_lib/a.py"]
    assert commit() == UNKNOWN


@pytest.mark.parametrize("around", [False, True], ids=["nowhere", "in another repository"])
def test_without_a_checkout_the_commit_is_unknown(monkeypatch, tmp_path, around):
    if around:
        git(tmp_path, "init")
        git(tmp_path, "commit", "--allow-empty", "-m", "Another's")
    write(tmp_path, "installed/steinis_lib/a.py")
    monkeypatch.setattr(checkout, "ROOT", tmp_path / "installed")
    assert uncommitted() == []
    assert commit() == UNKNOWN


def test_without_git_the_commit_is_unknown(root, monkeypatch):
    write(root, "steinis_lib/a.py")
    monkeypatch.setenv("PATH", "")
    assert uncommitted() == []
    assert commit() == UNKNOWN
