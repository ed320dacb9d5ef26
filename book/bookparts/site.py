"""The Sphinx extension that adds what the theme lacks.

On every page: a description, OpenGraph, and readable formulas without scripts. On sections: a
row of links that run or download the notebook. Beside the pages: keywords for the search, a 404
page, a sitemap and light icons. In the API reference: links from names in docstrings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

from bookparts import formulas, icons, launching, metadata, picture
from bookparts.address import read_address
from bookparts.searching import AddKeywords

SECTION_PREFIX = "sections/"


def set_address(app: Sphinx, config: Config) -> None:
    """Tell Sphinx where the book is published, so that pages name their canonical address."""
    config.html_baseurl = read_address().site


def complete_page(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: nodes.document
) -> None:
    """Add a page's tags, and the links of a section's notebook."""
    address = read_address()
    title = _plain(context.get("title") or pagename)
    text = metadata.description(doctree, title)
    found = metadata.tags(title, app.config.html_title, text, f"{pagename}.html", address)
    context["metatags"] = context.get("metatags", "") + found + formulas.WITHOUT_SCRIPTS
    if pagename.startswith(SECTION_PREFIX) and "</h1>" in context.get("body", ""):
        source = context["pathto"](f"_sources/{pagename}.ipynb", 1)
        row = launching.row(address, pagename.removeprefix(SECTION_PREFIX), source)
        context["body"] = context["body"].replace("</h1>", f"</h1>\n{row}", 1)


def missing_page(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Give Sphinx the page that a host shows for an address that does not exist."""
    yield "404", {"title": "This page does not exist", "body": metadata.MISSING}, "page.html"


def finish(app: Sphinx, error: Exception | None) -> None:
    """Write the files beside the pages, and make the pages light."""
    if error is not None or app.builder.name != "html":
        return
    folder, address = Path(app.outdir), read_address()
    icons.shrink(folder)
    if not address.site:
        return
    missing = folder / "404.html"
    missing.write_text(metadata.absolute(missing.read_text("utf-8"), address.site), "utf-8")
    pages = [f"{name}.html" for name in app.env.found_docs]
    (folder / "sitemap.xml").write_text(metadata.sitemap(pages, address), "utf-8")
    picture.draw(folder / metadata.PICTURE)


def resolve_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.Node | None:
    """Link a name in a docstring to the public name that it means; else leave it as text.

    Docstrings name things as Python does where they stand, such as `ImportanceSample`.
    """
    if node.get("refdomain") != "py":
        return None
    name = node["reftarget"].rpartition(".")[2]
    objects = env.get_domain("py").objects  # type: ignore[attr-defined]
    same = [full for full in objects if full.rpartition(".")[2] == name]
    classes = [full for full in same if objects[full].objtype in ("class", "function", "exception")]
    found = classes or same
    if len({(objects[full].docname, objects[full].node_id) for full in found}) != 1:
        return content
    entry = objects[found[0]]
    return make_refnode(
        app.builder, node["refdoc"], entry.docname, entry.node_id, content, found[0]
    )


def as_restructured_text(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Let Sphinx read |A| as a number of leaders, and `scale`² as a name with an exponent.

    Napoleon takes what stands before a colon as a property's type; the text is taken as it is.
    """
    if what == "property":
        lines[:] = [*(inspect.getdoc(thing) or "").splitlines(), ""]
    for i, line in enumerate(lines):
        parts = re.split(r"(``.*?``)", line)
        lines[i] = "".join(part if part.startswith("``") else _escaped(part) for part in parts)


def name_defaults(
    app: Sphinx, what: str, name: str, thing: object, options: object, given: str, returned: str
) -> tuple[str, str] | None:
    """Write the default that a dataclass makes anew each time as "...", which Sphinx can read."""
    return (given.replace("<factory>", "..."), returned) if given else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the parts; Sphinx calls this."""
    app.connect("config-inited", set_address)
    app.connect("builder-inited", formulas.add_renderers)
    app.connect("html-page-context", complete_page)
    app.connect("html-collect-pages", missing_page)
    app.connect("missing-reference", resolve_name)
    app.connect("autodoc-process-docstring", as_restructured_text)
    app.connect("autodoc-process-signature", name_defaults)
    app.connect("build-finished", finish)
    app.add_transform(AddKeywords)
    app.add_css_file(icons.STYLE.name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _escaped(text: str) -> str:
    return re.sub(r"(`[^`]+`)(?=[^\s`.,;:!?()\[\]{}'\"/-])", r"\1\\ ", text.replace("|", r"\|"))


def _plain(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", html))
