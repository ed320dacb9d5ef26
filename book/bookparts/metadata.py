"""What search engines and previews of links read: descriptions, OpenGraph, 404 page, sitemap."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape, unescape
from xml.sax.saxutils import escape as xml_escape

from docutils import nodes

from bookparts.address import Address
from bookparts.formulas import mathml

LONGEST = 200
PICTURE = "_images/social.png"
PICTURE_SHOWS = "The paper's title, and leaders and followers on the contours of a density."
MISSING = """\
<h1>This page does not exist</h1>
<p>The address may be mistyped, or the page may have been renamed.</p>
<ul>
  <li><a href="index.html">The beginning of the book</a></li>
  <li><a href="claims.html">All claims and their verdicts</a></li>
  <li><a href="search.html">Search the book</a></li>
</ul>
"""


def description(document: nodes.document | None, title: str) -> str:
    """Return the first sentences of a page, at most 200 characters, or else its title."""
    for paragraph in document.findall(nodes.paragraph) if document is not None else ():
        if isinstance(paragraph.parent, nodes.section | nodes.document) and not any(
            isinstance(part, nodes.image) for part in paragraph.children
        ):
            text = " ".join(_words(paragraph).split())
            if not text.endswith((".", "?")):  # a formula follows, so that a sentence is not whole
                text = text[: max(text.rfind(". "), text.rfind("? ")) + 1]
            if len(text) > 40:
                return shortened(text)
    return title


def shortened(text: str) -> str:
    """Return the sentences at the beginning of a text that fit, or its words with "…"."""
    if len(text) <= LONGEST:
        return text
    ends = [m.end() for m in re.finditer(r"[.?](?= )", text) if 60 <= m.end() <= LONGEST]
    return text[: ends[-1]] if ends else text[: LONGEST - 1].rsplit(" ", 1)[0] + "…"


def tags(title: str, book: str, text: str, page: str, address: Address) -> str:
    """Return a page's tags: the description, and OpenGraph with picture and address if set."""
    found = [
        f'<meta name="description" content="{escape(text)}" />',
        f'<meta property="og:title" content="{escape(title)}" />',
        f'<meta property="og:description" content="{escape(text)}" />',
        f'<meta property="og:site_name" content="{escape(book)}" />',
        '<meta property="og:type" content="article" />',
    ]
    if address.site:
        found += [
            f'<meta property="og:url" content="{escape(address.site + page)}" />',
            f'<meta property="og:image" content="{escape(address.site + PICTURE)}" />',
            '<meta property="og:image:width" content="1200" />',
            '<meta property="og:image:height" content="630" />',
            f'<meta property="og:image:alt" content="{PICTURE_SHOWS}" />',
            '<meta name="twitter:card" content="summary_large_image" />',
        ]
    return "\n".join(found) + "\n"


def sitemap(pages: Iterable[str], address: Address) -> str:
    """Return the sitemap of pages that are given relative to the site."""
    urls = "".join(
        f"  <url><loc>{xml_escape(address.site + page)}</loc></url>\n" for page in sorted(pages)
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{urls}</urlset>\n'
    )


def absolute(html: str, site: str) -> str:
    """Return a page of the top folder with links that work from any folder.

    A host shows the 404 page at the address that does not exist, which may be in some folder.
    """
    return re.sub(r'\b(href|src)="(?!#|[a-z]+:|//)([^"]*)"', rf'\1="{site}\2"', html)


def _words(node: nodes.Node) -> str:
    """The text of a paragraph, with the signs of its formulas."""
    if isinstance(node, nodes.Text):
        return node.astext()
    if isinstance(node, nodes.math):
        return unescape(re.sub(r"<[^>]*>", "", mathml(node.astext(), block=False)))
    return "".join(_words(child) for child in node.children)
