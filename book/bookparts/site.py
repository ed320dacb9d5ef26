"""The Sphinx extension that adds what the theme lacks.

On every page: a description, OpenGraph, and readable formulas without scripts. On sections: a
row of links that run or download the notebook. Beside the pages: keywords for the search, a 404
page, a sitemap and light icons. In the built pages: names and roles that screen readers need. In
the API reference: links from names in docstrings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.transforms import SphinxTransform

from bookparts import accessible, api, formulas, icons, metadata, picture
from bookparts.address import BRANCH, Address, read_address

SECTION_PREFIX = "sections/"
PDF = "steinis-companion.pdf"
"""Where the publish workflow puts the book as one PDF, relative to the site."""

# ---------------------------------------------------------------- Pages


def set_address(app: Sphinx, config: Config) -> None:
    """Tell Sphinx where the book is published, so that pages name their canonical address."""
    config.html_baseurl = read_address().site


def complete_page(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: nodes.document
) -> None:
    """Add a page's tags, and a row of links under the title of sections and of the landing page."""
    address = read_address()
    title = _plain(context.get("title") or pagename)
    text = metadata.description(doctree, title)
    found = metadata.tags(title, app.config.html_title, text, f"{pagename}.html", address)
    context["metatags"] = context.get("metatags", "") + found + formulas.WITHOUT_SCRIPTS
    row = ""
    if pagename.startswith(SECTION_PREFIX):
        source = context["pathto"](f"_sources/{pagename}.ipynb", 1)
        row = notebook_row(address, pagename.removeprefix(SECTION_PREFIX), source)
    elif pagename == "index" and address.site:
        row = _row(_link("The whole book as one PDF", address.site + PDF))
    if row:
        context["body"] = context["body"].replace("</h1>", f"</h1>\n{row}", 1)


def missing_page(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Give Sphinx the page that a host shows for an address that does not exist."""
    yield "404", {"title": "This page does not exist", "body": metadata.MISSING}, "page.html"


def finish(app: Sphinx, error: Exception | None) -> None:
    """Write the files beside the pages, and make the pages light and accessible."""
    if error is not None or app.builder.name != "html":
        return
    folder, address = Path(app.outdir), read_address()
    icons.shrink(folder)
    accessible.repair(folder)
    if not address.site:
        return
    missing = folder / "404.html"
    missing.write_text(metadata.absolute(missing.read_text("utf-8"), address.site), "utf-8")
    pages = [f"{name}.html" for name in app.env.found_docs]
    (folder / "sitemap.xml").write_text(metadata.sitemap(pages, address), "utf-8")
    picture.draw(folder / metadata.PICTURE)


# ---------------------------------------------------------------- Rows of links


def places(address: Address, notebook: str) -> list[tuple[str, str]]:
    """Return the services that can run a notebook of the repository, with their links.

    There are none if the repository's address is not set, or is not on GitHub. Colab starts with
    nothing installed, so it needs a notebook that names the repository.
    """
    if not address.on_github:
        return []
    path = quote(f"notebooks/{notebook}.ipynb")
    hub = f"https://mybinder.org/v2/gh/{address.on_github}/{BRANCH}"
    found = [("Run on Binder", f"{hub}?urlpath={quote('lab/tree/' + path, safe='')}")]
    if address.in_notebooks:
        colab = f"https://colab.research.google.com/github/{address.on_github}/blob"
        found.append(("Run on Colab", f"{colab}/{BRANCH}/{path}"))
    return found


def notebook_row(address: Address, notebook: str, download: str) -> str:
    """Return the row under a section's title; `download` is the link of the executed notebook."""
    links = [_link(text, url) for text, url in places(address, notebook)]
    return _row(*links, _link("Download executed notebook", download, " download"))


def _link(text: str, url: str, attributes: str = "") -> str:
    return f'<a class="launch-link" href="{escape(url)}"{attributes}>{text}</a>'


def _row(*links: str) -> str:
    return f'<p class="launch d-print-none">{" · ".join(links)}</p>'


# ---------------------------------------------------------------- Search

KEYWORDS = {
    "index": ("SteinIS", "normalising constant", "log Z"),
    "method": ("Stein variational gradient descent", "particles", "Jacobian determinant"),
    "foundations": ("annealed importance sampling", "leapfrog", "HAIS", "AIS"),
    "glossary": ("definitions", "nats", "ESS", "KSD"),
    "sections/01_gmm_convergence": ("convergence", "KL divergence"),
    "sections/02_gmm_estimation": ("mixtures", "normalising constant"),
    "sections/03_adaptive_is": ("adaptive importance sampling", "population Monte Carlo"),
    "sections/04_rbm": ("RBM", "partition function", "restricted Boltzmann machine"),
    "sections/05_vae": (
        *("VAE", "variational autoencoder", "decoder", "evidence", "marginal likelihood"),
        *("log-likelihood", "MNIST"),
    ),
    "sections/06_running_time": ("speed", "running time"),
    "sections/07_beyond": ("estimate_log_z", "evidence", "marginal likelihood"),
    "sections/08_pooled": ("pool of leaders", "preconditioning", "whitening", "random batch"),
    "benchmarks": ("speed", "benchmark"),
    "clusters": ("Dask", "cluster"),
    "cite": ("BibTeX", "citation"),
    "reproduce": ("hardware", "memory", "disk"),
}
"""Page → words under which it should be found although it says them rarely, or never."""


class AddKeywords(SphinxTransform):
    """Put a page's keywords into the book's index, which the search looks at first."""

    default_priority = 100  # before Sphinx collects the entries of the index

    def apply(self, **kwargs: object) -> None:
        """Add one node with all entries at the beginning of the page."""
        if self.env.docname == "glossary":
            self.step_back()
        if words := KEYWORDS.get(self.env.docname):
            first = next(self.document.findall(nodes.section))
            entries = [("single", word, first["ids"][0], "main", None) for word in words]
            first.insert(1, addnodes.index(entries=entries, inline=False))

    def step_back(self) -> None:
        """Let the search show the glossary's terms after the pages that are about them."""
        for node in self.document.findall(addnodes.index):
            node["entries"] = [(*entry[:3], "", entry[4]) for entry in node["entries"]]


# ----------------------------------------------------------------


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the parts; Sphinx calls this."""
    app.connect("config-inited", set_address)
    app.connect("builder-inited", formulas.add_renderers)
    app.connect("html-page-context", complete_page)
    app.connect("html-collect-pages", missing_page)
    app.connect("missing-reference", api.resolve_name)
    app.connect("autodoc-process-docstring", api.as_restructured_text)
    app.connect("autodoc-process-signature", api.name_defaults)
    app.connect("build-finished", finish)
    app.add_transform(AddKeywords)
    app.add_css_file(icons.STYLE.name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _plain(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", html))
