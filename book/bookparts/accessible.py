"""What the theme's pages lack for readers who use a keyboard or a screen reader."""

from __future__ import annotations

import re
from pathlib import Path

SIDEBAR = '<div id="pst-primary-sidebar" class="bd-sidebar-primary bd-sidebar">'
TOGGLE = re.compile(
    r'(<a class="[a-z ]*reference internal" href="[^"]*">(?P<page>[^<]*)</a><details[^>]*>)'
    r'<summary><span class="toctree-toggle" role="presentation">'
)
PARAMETERS = re.compile(r"<dl>\n(?P<items>(?:<dd>.*</dd>\n)+)</dl>")
SEARCH = re.compile(r'(<button class="btn search-button-field[^"]*")[^>]*>')

REPLACED = {
    # The title of the book stands outside of all landmarks.
    SIDEBAR: f'{SIDEBAR[:-1]} role="region" aria-label="Book">',
    # A role that ARIA has given up, in a list whose items have none.
    ' role="doc-biblioentry"': "",
    '<div role="list" class="citation-list">': '<div class="citation-list">',
    # A corner of a table that is the head of nothing.
    '<th class="head"><p></p></th>': '<td class="head"></td>',
    '<th class="head stub"><p></p></th>': '<td class="head"></td>',
    # The name hides the text that is seen.
    '<summary aria-label="Toggle hidden content">': "<summary>",
}


def repaired(html: str) -> str:
    """Return a page of the book with names, roles and landmarks put right."""
    for old, new in REPLACED.items():
        html = html.replace(old, new)
    html = TOGGLE.sub(
        r'\1<summary aria-label="Pages of \g<page>">'
        r'<span class="toctree-toggle" aria-hidden="true">',
        html,
    )
    html = SEARCH.sub(r'\1 type="button">', html)
    return PARAMETERS.sub(_as_lines, html)


def repair(html_folder: Path) -> None:
    """Put right all pages of a built book."""
    for path in html_folder.rglob("*.html"):
        text = path.read_text("utf-8")
        if (better := repaired(text)) != text:
            path.write_text(better, "utf-8")


def _as_lines(found: re.Match[str]) -> str:
    """The parameters of a long signature as lines: a list of definitions would lack its terms."""
    items = re.sub(r"<dd>(.*)</dd>", r'<span class="sig-line">\1</span>', found["items"])
    return f'<span class="sig-lines">\n{items}</span>'
