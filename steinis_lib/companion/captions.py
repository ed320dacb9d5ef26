"""Numbers and captions of figures and tables, as the HTML that a notebook shows.

A number is that of the section and one that counts, such as "5.3". The element of Figure 5.3 has
the id ``figure-5-3``, so that a link can lead to it.
"""

from __future__ import annotations

import html
from typing import Literal

Kind = Literal["Figure", "Table"]


def identifier(kind: Kind, number: str) -> str:
    """Return the id of a figure's or a table's element, such as ``figure-5-3``."""
    return f"{kind}-{number.replace('.', '-')}".lower()


def numbered(
    body: str, kind: Kind, number: str, caption: str, *, least: int = 0, after: str = ""
) -> str:
    """Return the element of a figure or a table.

    Parameters
    ----------
    body
        Its picture or table, as HTML. It scrolls sideways where the page is too narrow for it.
    caption
        What it shows, in plain text.
    least
        The width in pixels below which a picture's letters would be too small.
    after
        HTML below the caption.
    """
    name = f"{kind} {number}"
    # The theme's script makes scrolling boxes reachable by keyboard; notebooks have no such script.
    box = (
        f'<div class="numbered-box" tabindex="0" role="region" '
        f'aria-label="{name}, scrolls sideways where it is wider than the page">{body}</div>'
    )
    words = (
        f'<figcaption><span class="caption-number">{name}.</span> '
        f"{html.escape(caption, quote=False)}</figcaption>"
    )
    hint = (
        '<p class="scroll-hint" aria-hidden="true">Scroll sideways to see the whole figure.</p>'
        if least
        else ""
    )
    style = f' style="--least:{least}px"' if least else ""
    parts = (box, hint, words) if kind == "Figure" else (words, box)
    return (
        f'<figure class="steinis-{kind.lower()}" id="{identifier(kind, number)}"{style}>'
        f"{''.join(parts)}{after}</figure>"
    )


def folded(body: str, summary: str) -> str:
    """Return HTML that a reader unfolds by a click on the summary."""
    return f"<details><summary>{html.escape(summary, quote=False)}</summary>{body}</details>"
