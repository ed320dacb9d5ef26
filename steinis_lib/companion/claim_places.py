"""Where the book tests a claim: its section, and the name of the figure that shows it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from steinis_lib.companion.claims import Claim, Finding
from steinis_lib.companion.registry import SECTIONS

LABELLED = re.compile(r"^\((?P<label>[\w-]+)\)=\n#+ (?P<heading>[^$`\n]+)$", re.MULTILINE)
"""A label above a heading that is plain text."""


@dataclass(frozen=True)
class Place:
    """A section of the book, or no section.

    Parameters
    ----------
    name, short
        Such as "Section 4. The partition function of an RBM", and "Section 4".
    page
        The page's name for a link from a page of the book's top folder; "" if there is none.
    """

    name: str
    short: str
    page: str = ""


ELSEWHERE = Place("Claims without a section", "no section")


def place_of(claim: Claim) -> Place:
    """Return the section that has the statistic of a claim."""
    for number, section in enumerate(SECTIONS.values(), start=1):
        if claim.id in section.statistics:
            short = f"Section {number}"
            return Place(f"{short}. {section.title}", short, f"sections/{section.notebook}")
    return ELSEWHERE


def by_section(findings: Sequence[Finding]) -> dict[Place, list[Finding]]:
    """Return the claims of each section in the order of the book, and those of none at the end."""
    order = [place_of(f.claim) for f in findings]
    places = sorted(dict.fromkeys(order), key=lambda place: (place == ELSEWHERE, place.page))
    return {p: [f for f, q in zip(findings, order, strict=True) if q == p] for p in places}


def figure_name(claim: Claim) -> str:
    """Return the words for a link to a claim's figure: its section, and the heading above it."""
    short = place_of(claim).short
    heading = _headings().get(claim.figure or "")
    return f"Figure in {short}: {heading}" if heading else f"Figure in {short}"


@cache
def _headings() -> dict[str, str]:
    """Label → the heading below it, in the notebooks of all sections."""
    found: dict[str, str] = {}
    for section in SECTIONS.values():
        if section.notebook_path.exists():
            cells = json.loads(section.notebook_path.read_text("utf-8"))["cells"]
            text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
            found |= {m["label"]: m["heading"] for m in LABELLED.finditer(text)}
    return found
