"""The Sphinx extension that serves numbered figures and tables: links to them, and their files.

Notebooks number their figures and tables and write the files of figures while they run; a mention
such as "Figure 5.3" becomes a link, and below each figure stand links to its files.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

BOOK = Path(__file__).resolve().parents[1]
EXECUTED = BOOK / "sections"
FILES = EXECUTED / "figures"
"""A folder for each notebook, with the files of its figures."""

PUBLISHED = "figures"
"""The folder of the built book that has all these files."""

KINDS = {"csv": "its data (CSV)", "svg": "SVG", "pdf": "PDF"}

_ELEMENT = re.compile(r'<figure class="steinis-(?:figure|table)" id="((?:figure|table)-\d+-\d+)"')
_FIGURE = re.compile(r'<figure class="steinis-figure" id="(figure-\d+-\d+)".*?</figure>', re.DOTALL)
_MENTION = re.compile(r"\b(Figure|Table)[ \u00a0](\d+)\.(\d+)\b")
_NOT_TEXT = {"a", "figcaption", "h1", "h2", "h3", "h4", "title", "svg", "script", "style", "pre"}
_VOID = {"br", "hr", "img", "input", "link", "meta", "wbr"}


def numbered_elements(folder: Path = EXECUTED) -> dict[str, str]:
    """Return the page of each numbered figure and table: ``{"figure-5-3": "sections/05_vae"}``."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.ipynb")):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            for output in cell.get("outputs", ()):
                html = "".join(output.get("data", {}).get("text/html", ""))
                found |= dict.fromkeys(_ELEMENT.findall(html), f"{folder.name}/{path.stem}")
    return found


def with_links(html: str, page: str, pages: dict[str, str], to_root: str) -> str:
    """Return a page on which each mention of a numbered figure or table is a link to it."""

    def link(mention: re.Match[str]) -> str:
        kind, section, count = mention.groups()
        name = f"{kind.lower()}-{section}-{count}"
        if name not in pages:
            return mention[0]
        where = "" if pages[name] == page else f"{to_root}{pages[name]}.html"
        return f'<a class="reference internal" href="{where}#{name}">{mention[0]}</a>'

    depth, parts = 0, []
    for part in re.split(r"(<[^>]*>)", html):
        tag = re.match(r"<(/?)([a-zA-Z][\w-]*)", part)
        if tag is None:
            parts.append(part if depth else _MENTION.sub(link, part))
            continue
        if tag[2].lower() in _NOT_TEXT and tag[2] not in _VOID and not part.endswith("/>"):
            depth += -1 if tag[1] else 1
        parts.append(part)
    return "".join(parts)


def with_files(html: str, files: dict[str, list[str]], to_root: str) -> str:
    """Return a page with links to its figures' files below each of them."""

    def add(figure: re.Match[str]) -> str:
        links = [
            f'<a href="{to_root}{PUBLISHED}/{figure[1]}.{kind}" download>{KINDS[kind]}</a>'
            for kind in files.get(figure[1], ())
        ]
        row = f'<p class="downloads d-print-none">Download {", ".join(links)}</p>' if links else ""
        return figure[0].removesuffix("</figure>") + row + "</figure>"

    return _FIGURE.sub(add, html)


def figure_files() -> dict[str, list[str]]:
    """Return the endings of the files that there are of each figure, in the order of `KINDS`."""
    found: dict[str, list[str]] = {}
    for kind in KINDS:
        for path in sorted(FILES.glob(f"*/*.{kind}")):
            found.setdefault(path.stem, []).append(kind)
    return found


def complete_page(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: nodes.document
) -> None:
    """Add the links to a page."""
    if "body" not in context:
        return
    to_root = "../" * pagename.count("/")
    pages, files = app.env.numbered  # type: ignore[attr-defined]
    body = with_links(context["body"], pagename, pages, to_root)
    context["body"] = with_files(body, files, to_root)


def find(app: Sphinx) -> None:
    """Look once for what is numbered, and for files."""
    app.env.numbered = numbered_elements(), figure_files()  # type: ignore[attr-defined]


def finish(app: Sphinx, error: Exception | None) -> None:
    """Put all files of figures into one folder of the built book."""
    if error is not None or app.builder.name != "html":
        return
    folder = Path(app.outdir) / PUBLISHED
    folder.mkdir(exist_ok=True)
    for path in FILES.glob("*/figure-*"):
        shutil.copyfile(path, folder / path.name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the parts; Sphinx calls this."""
    app.connect("builder-inited", find)
    app.connect("html-page-context", complete_page)
    app.connect("build-finished", finish)
    app.add_css_file("figures.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
