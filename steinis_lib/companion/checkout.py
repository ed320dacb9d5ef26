"""The files of the repository that are not in the package, and what git says of its files."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout that this library runs from, if it does."""

DATA = ROOT / "data"

SOURCES = ("steinis_lib", "data/vae", "data/mnist", "pyproject.toml", "requirements.lock")
"""The folders and files of the repository that results depend on."""


class CheckoutNeededError(RuntimeError):
    """Something needs the repository's files, and the library was installed without them."""


class UncommittedError(RuntimeError):
    """A result that is to be stored would come from files that git does not hold as they are."""


def need_checkout(what: str) -> None:
    """Refuse to go on if the library does not run from a checkout of the repository.

    Parameters
    ----------
    what
        What needs the files: the beginning of the message.

    Raises
    ------
    CheckoutNeededError
        Saying how to get a checkout.
    """
    if not (DATA / "claims").is_dir():
        raise CheckoutNeededError(
            f"{what} needs a checkout of the repository, with its folders data/ and notebooks/, "
            f"and {ROOT} is not one. Clone the repository and run `make install` in it."
        )


def uncommitted() -> list[str]:
    """Return those of the files that results depend on which differ from the last commit.

    New files count, ignored ones do not. The list is empty where there is no git checkout.
    """
    shown = _git(
        "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--", *SOURCES
    )
    return [entry[3:] for entry in (shown or "").split("\0") if entry]


def need_committed() -> None:
    """Refuse to go on if files that results depend on differ from the last commit.

    Raises
    ------
    UncommittedError
        Naming the first of these files.
    """
    if files := uncommitted():
        first = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
        raise UncommittedError(
            "A result at profile paper is stored with the commit that it comes from, but files "
            f"differ from the last commit: {first}. Commit them, or use --profile quick."
        )


def commit() -> str:
    """Return the checkout's commit, with "-dirty" behind it if `uncommitted` names any file."""
    found = _git("rev-parse", "--short=12", "HEAD")
    if found is None:
        return "unknown (no git checkout)"
    return found.strip() + ("-dirty" if uncommitted() else "")


def _git(*arguments: str) -> str | None:
    """What git says of this checkout, and of no repository around it; None if it cannot."""
    command = ["git", f"--git-dir={ROOT / '.git'}", f"--work-tree={ROOT}", "--no-optional-locks"]
    try:
        run = subprocess.run(
            [*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout
