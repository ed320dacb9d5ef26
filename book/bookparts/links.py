"""Check the links inside the built book: ``make links``. Nothing is fetched."""

from __future__ import annotations

import re
import sys
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

from bookparts.address import ROOT

HTML = ROOT / "book" / "_build" / "html"


def broken(folder: Path) -> list[str]:
    """Return, for each link of a page that leads nowhere, the page and why."""
    found = []
    for path in sorted(folder.rglob("*.html")):
        if path.relative_to(folder).parts[0].startswith("_"):
            continue  # a template of the theme
        text = path.read_text("utf-8")
        links = dict.fromkeys(re.findall(r'\s(?:href|src)="([^"]*)"', _visible(text)))
        problems = (problem(folder, path, unescape(link)) for link in links)
        found += [f"{path.relative_to(folder)}: {why}" for why in problems if why]
    return found


def problem(folder: Path, page: Path, link: str) -> str | None:
    """Return why a link of a page leads nowhere in the folder, or None."""
    if urlsplit(link).scheme or link.startswith("//"):
        return None
    target, anchor = urldefrag(link)
    name = unquote(urlsplit(target).path)
    path = page.parent / name if name else page
    path = path / "index.html" if path.is_dir() else path
    if not path.resolve().is_relative_to(folder.resolve()):
        return f"{link} leads out of the book"
    if not path.is_file():
        return f"{link} names no file"
    if anchor and path.suffix == ".html" and unquote(anchor) not in _ids(path):
        return f"{link} names no part of that page"
    return None


def main() -> int:
    """Print what is broken."""
    if not (HTML / "index.html").is_file():
        print("The book is not built: run `make book` first.", file=sys.stderr)
        return 1
    found = broken(HTML)
    print("\n".join(found) or "No link inside the book is broken.")
    return 1 if found else 0


def _visible(text: str) -> str:
    """A page without its scripts and the source of formulas."""
    return re.sub(r"<script\b[^>]*>.*?</script>", "", text, flags=re.DOTALL)


@cache
def _ids(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r'\sid="([^"]+)"', path.read_text("utf-8")))


if __name__ == "__main__":
    sys.exit(main())
