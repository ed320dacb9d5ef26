"""The addresses of the repository and of the published book: one setting for both.

The setting is ``Repository`` under ``[project.urls]`` in ``pyproject.toml``, or the environment
variable STEINIS_REPOSITORY, which goes first and which the publish workflow sets. The book's
address follows from it on GitHub Pages; ``Documentation`` or STEINIS_SITE name another one.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
BRANCH = "main"


@dataclass(frozen=True)
class Address:
    """Where the project is on the network; an empty string where it is not."""

    repository: str = ""
    """Such as ``https://github.com/owner/name``, without a slash at the end."""

    site: str = ""
    """Where the built book is published, with a slash at the end."""

    in_notebooks: bool = False
    """Whether the notebooks name the repository, as they do if `pyproject.toml` has its address."""

    @property
    def on_github(self) -> str:
        """Return ``owner/name`` if the repository is on GitHub, else an empty string."""
        parts = urlsplit(self.repository)
        return parts.path.strip("/") if parts.hostname == "github.com" else ""


def read_address(
    environment: Mapping[str, str] = os.environ, project: Path = ROOT / "pyproject.toml"
) -> Address:
    """Return the addresses that are set.

    Raises
    ------
    ValueError
        If an address does not begin with ``https://``, or has something behind the path.
    """
    urls = tomllib.loads(project.read_text("utf-8"))["project"].get("urls", {})
    repository = _checked(environment.get("STEINIS_REPOSITORY") or urls.get("Repository", ""))
    repository = repository.removesuffix("/").removesuffix(".git")
    site = _checked(environment.get("STEINIS_SITE") or urls.get("Documentation", ""))
    if not site:
        site = _pages(Address(repository).on_github)
    return Address(repository, site and site.rstrip("/") + "/", bool(urls.get("Repository")))


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if url and (parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment):
        raise ValueError(
            f"{url!r} cannot be the address of the repository or of the book: it must be like "
            "https://github.com/owner/name, without '?' or '#'. It is set in pyproject.toml under "
            "[project.urls], or by STEINIS_REPOSITORY or STEINIS_SITE."
        )
    return url


def _pages(on_github: str) -> str:
    """The address of a GitHub repository's pages."""
    owner, _, name = on_github.partition("/")
    if not name:
        return ""
    host = f"{owner.lower()}.github.io"
    return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"
