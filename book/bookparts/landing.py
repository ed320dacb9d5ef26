"""What the landing page says of the outcome; all of it follows from the ledger and the results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import xarray as xr
from examples import landing_figures
from examples.panels import Drawing
from pybtex.database import parse_file

from bookparts.address import ROOT
from steinis_lib.companion import claims_page
from steinis_lib.companion.claim_places import place_of
from steinis_lib.companion.claims import Finding
from steinis_lib.companion.directions import against_steinis, direction
from steinis_lib.companion.fairness_page import ERROR_RATES, ERRORS, rates_of
from steinis_lib.companion.figures import svg, use_style
from steinis_lib.companion.obtain import stored
from steinis_lib.companion.page import number
from steinis_lib.companion.sections.s6_running_time import statistics as time
from steinis_lib.companion.sections.s7_extensions import statistics as beyond

KEY = "han2017stein"
PAGE = "claims.html"


def fragment(findings: Sequence[Finding]) -> str:
    """Return the beginning of the landing page, from the paper to the three lines on certainty.

    Raises
    ------
    FileNotFoundError
        If a result that a card shows is not stored.
    """
    findings = [f for f in findings if f.verdict != "not yet run"]
    cards = (holds(findings), fails(findings), mends(), costs())
    with mpl.rc_context():
        use_style()
        shown = "\n".join(_card(*card) for card in cards)
    grid = f"::::{{grid}} 1 1 2 2\n:gutter: 3\n\n{shown}\n::::"
    parts = (paper(), outcome(findings), bar(findings), grid, sure(findings))
    return "\n\n".join(parts) + "\n"


def paper() -> str:
    """Return the paper's title, authors, venue, year and link, from the book's references."""
    entry = parse_file(str(ROOT / "book" / "references.bib")).entries[KEY]
    authors = " and ".join(
        " ".join([*person.first_names, *person.last_names]) for person in entry.persons["author"]
    )
    title, venue = (re.sub(r"[{}]", "", entry.fields[k]) for k in ("title", "booktitle"))
    short = match[1] if (match := re.search(r"\((\w+)\)", venue)) else venue
    link = entry.fields["url"]
    return (
        f":::{{div}} paper-line\nThe paper: {authors}, [*{title}*]({link}), {short} "
        f"{entry.fields['year']}.\n:::"
    )


def outcome(findings: Sequence[Finding]) -> str:
    """Return what came out in one sentence."""
    counts = claims_page.counts(findings)
    yes, partly, no = (counts.get(v, 0) for v in ("reproduced", "partly", "not reproduced"))
    text = (
        f"Of {len(findings)} claims of the paper, {yes} are reproduced, {partly} partly, and {no} "
        "are not"
    )
    if no:
        worse = sum(against_steinis(f) for f in findings if f.verdict == "not reproduced")
        text += (
            f"; in {worse} of these {no}, the data are less favourable to SteinIS than the paper is"
        )
    return f"**{text}.**"


def bar(findings: Sequence[Finding]) -> str:
    """Return the counts as a bar; each part is a link to its claims."""
    parts = [
        f'<li class="{claims_page.verdict_class(verdict)}" style="flex-grow: {n}">'
        f'<a href="{PAGE}#{claims_page.verdict_label(verdict)}">'
        f"<strong>{n}</strong> {verdict}</a></li>"
        for verdict, n in claims_page.counts(findings).items()
    ]
    items = "\n".join(parts)
    return (
        f'```{{raw}} html\n<ul class="tally" aria-label="Claims by verdict">\n{items}\n</ul>\n```'
    )


# ---------------------------------------------------------------- Cards

Card = tuple[str, str, Callable[[], Drawing]]
"""A title, a text in Markdown, and what draws the figure."""


def holds(findings: Sequence[Finding]) -> Card:
    """Return the card on claims that are reproduced."""
    yes = [f for f in findings if f.verdict == "reproduced"]
    firm = [f for f in yes if all(judged.verdict == "reproduced" for judged in f.readings)]
    text = (
        f"{len(yes)} claims are reproduced, {len(firm)} of them under every "
        "[reading](readings.md) of the paper:\n\n" + "\n".join(_item(f) for f in firm)
    )
    return "What holds", text, lambda: landing_figures.robustness(findings)


def fails(findings: Sequence[Finding]) -> Card:
    """Return the card on claims that are not reproduced, with the direction of each."""
    no = [f for f in findings if f.verdict == "not reproduced"]
    text = "\n".join(f"{_item(f)}: **{claims_page.plain(direction(f))}**" for f in no)
    return "What fails, and how", text, lambda: landing_figures.rbm_curves(_need("rbm"))


def mends() -> Card:
    """Return the card on what goes beyond the paper."""
    tree, rbm, images = (_need(name) for name in ("beyond", "rbm", "vae"))
    d = max(beyond.RBM_BARS)
    names = {
        "steinis": "SteinIS",
        "steinis-wide": "SteinIS,\nwide kernel",
        "hais-1l-partial": "HAIS-1L",
        "at-modes": "Gaussians\nat modes",
    }
    found = {m: beyond.rmse(beyond.rbm_errors(tree, rbm, m, d)) for m in names}
    rows = [(name, found[m], m in beyond.AT_MODES) for m, name in names.items()]
    k = max(beyond.IMAGE_BARS)
    flow, stein, hais = (
        number(beyond.rmse(beyond.image_errors(tree, images, m, k)).value, 2)
        for m in (beyond.IMAGES, "steinis-wide", "hais-1l-partial")
    )
    at = {m: number(e.value, 2) for m, e in found.items()}
    text = (
        f"Root mean square errors of log Z for RBMs with d = {d}: SteinIS as printed "
        f"{at['steinis']} nats, with a wide kernel {at['steinis-wide']}, HAIS-1L with partial "
        f"refresh {at['hais-1l-partial']}, and Gaussians fitted at the modes {at['at-modes']}. For "
        f"images with d = {k}: SteinIS with a wide kernel {stein}, HAIS-1L {hais}, and a fitted "
        f"Gaussian with a bridge {flow}. The last of each uses fits in place of the maps of "
        "SteinIS; [Section 7](sections/07_beyond.ipynb) has all variants."
    )
    return "What mends it", text, lambda: landing_figures.remedies(rows)


def costs() -> Card:
    """Return the card on running times, and on the time that all results took."""
    tree = _need("running-time")
    lowest, highest = (
        number(pick(time.ratio(tree, "steinis", "hais-1l", d).value for d in time.dims(tree)), 2)
        for pick in (min, max)
    )
    ten = number(time.ratio(tree, "hais-10l", "hais-1l", time.dims(tree)[-1]).value, 2)
    text = (
        f"A transition of SteinIS takes {lowest} to {highest} times as long as one of HAIS-1L, "
        f"and one of HAIS-10L {ten} times at the largest d "
        "([Section 6](sections/06_running_time.ipynb)). What it takes to compute the results of "
        "this book is listed under [reproduce](reproduce.md)."
    )
    return "What it costs", text, lambda: landing_figures.times(tree)


def _card(title: str, text: str, draw: Callable[[], Drawing]) -> str:
    figure, alt = draw()
    picture = f'```{{raw}} html\n<div class="steinis-figure">{svg(figure, alt)}</div>\n```'
    return f":::{{grid-item-card}} {title}\n{picture}\n\n{text}\n:::"


def _item(f: Finding) -> str:
    anchor, words = claims_page.claim_anchor(f.claim), claims_page.claim_text(f.claim)
    return f'- <a href="{PAGE}#{anchor}">{words}</a> ({place_of(f.claim).short})'


def _need(name: str) -> xr.DataTree:
    if (tree := stored(name)) is None:
        raise FileNotFoundError(
            f"the landing page shows a result of {name!r}, and none is stored with the parameters "
            "of profile paper: take data/results from git, or run "
            f"`steinis run {name} --profile paper`"
        )
    return tree


# ---------------------------------------------------------------- How sure is this?


def sure(findings: Sequence[Finding]) -> str:
    """Return three lines: how much was judged, how often rules err, and how to check."""
    record = json.loads(ERROR_RATES.read_text("utf-8"))
    entries = [entry for entry in record["claims"].values() if "cases" in entry]
    n_readings = sum(len(f.readings) for f in findings)
    trials = [n for entry in entries for n in entry["trials"]]
    return (
        "## How sure is this?\n\n"
        f"- {len(findings)} claims are judged under {n_readings} [readings](readings.md); an "
        f"interval is over {min(trials):,} to {max(trials):,} trials, images or placements.\n"
        f"- {_errors(entries)}\n"
        "- `steinis verify` computes all verdicts from the stored results, checks the files, and "
        "[computes random parts of the results again](verification.md)."
    )


def _errors(entries: Sequence[dict[str, Any]]) -> str:
    """The largest error rate of any rule, for true claims and for false ones."""
    worst = {
        kind: max(
            rate
            for entry in entries
            for name, rate in rates_of(entry).items()
            if ERRORS[name][1] == kind
        )
        for kind in ("not reproduced", "reproduced")
    }
    return (
        f"On made-up results, none of {len(entries)} rules called a true claim "
        f"“not reproduced” in more than {100 * worst['not reproduced']:.1f} % of cases, or a "
        f"false one “reproduced” in more than {100 * worst['reproduced']:.1f} % "
        "([how fair is this?](fairness.md))."
    )
