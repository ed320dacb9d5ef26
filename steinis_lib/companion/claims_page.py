"""What the book shows of the claims: tables of their verdicts, and of all their readings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from steinis_lib.companion.claim_places import by_section, figure_name, place_of
from steinis_lib.companion.claims import Claim, Finding
from steinis_lib.companion.directions import direction
from steinis_lib.companion.reading_claims import Judged, Range, Verdict, choice_text
from steinis_lib.companion.reading_figures import readings_figure
from steinis_lib.companion.second_looks import why_not

VERDICTS: tuple[Verdict, ...] = ("not reproduced", "partly", "reproduced", "not yet run")
"""In the order in which the page lists them."""


def claims_by_verdict(findings: Sequence[Finding]) -> str:
    """Return a heading for each verdict that occurs, and below it links to its claims."""
    blocks = []
    for verdict in VERDICTS:
        found = [f for f in findings if f.verdict == verdict]
        if not found:
            continue
        title = f"{verdict[0].upper()}{verdict[1:]}: {len(found)}"
        lines = [f"({verdict_label(verdict)})=", f"### {title}", "", *map(_item, found), ""]
        blocks.append("\n".join(lines))
    return "\n".join(blocks)


def claims_by_section(findings: Sequence[Finding]) -> str:
    """Return a heading for each section that tests claims, its counts, and a table of them."""
    blocks = []
    for place, found in by_section(findings).items():
        more = f" {{doc}}`Go to the section <{place.page}>`." if place.page else ""
        lines = [
            f"### {place.name}",
            "",
            f"{_counts(found)}.{more}",
            "",
            ":::{div} claims-table",
            claims_table(found),
            ":::",
            "",
        ]
        blocks.append("\n".join(lines))
    return "\n".join(blocks)


def claims_table(findings: Sequence[Finding]) -> str:
    """Return claims with verdicts, intervals, robustness and rules, as a MyST table."""
    rows = [
        "| Claim, and what is measured | Paper | Ours, 95 % interval | Verdict | Readings "
        "| With a pool |",
        "|---|---|---|---|---|---|",
    ]
    for f in findings:
        c = f.claim
        rows.append(
            f'| <span id="{claim_anchor(c)}"></span><strong>{claim_text(c)}</strong> '
            f"({plain(c.where)})<br>{_measure(f)} | {plain(c.paper_value)} | {plain(f.ours)} "
            f"| {_explained_chip(f)} | {_linked_robustness(f)} | {_with_pool(f)} |"
        )
    return "\n".join(rows) + "\n"


def counts(findings: Sequence[Finding]) -> dict[Verdict, int]:
    """Return how many claims have each verdict that occurs."""
    found = {v: sum(f.verdict == v for f in findings) for v in reversed(VERDICTS)}
    return {verdict: n for verdict, n in found.items() if n}


def claim_text(claim: Claim) -> str:
    """Return a claim's words for Markdown, with a capital where they begin with a plain word."""
    first = claim.paper.split()[0]
    words = claim.paper[0].upper() + claim.paper[1:] if first.isalpha() and first.islower() else ""
    return plain(words or claim.paper)


def claim_anchor(claim: Claim) -> str:
    """Return the name of a claim's place on the page."""
    return f"claim-{claim.id}"


def verdict_label(verdict: Verdict) -> str:
    """Return the name of the place on the page where a verdict's claims are listed."""
    return f"claims-{verdict.replace(' ', '-')}"


def verdict_class(verdict: Verdict) -> str:
    """Return the class in the book's style sheet of what shows a verdict."""
    return f"verdict-{verdict.replace(' ', '-')}"


def _counts(findings: Sequence[Finding]) -> str:
    words = [f"{n} {verdict}" for verdict, n in counts(findings).items()]
    return ", ".join(reversed(words))


def _item(f: Finding) -> str:
    """A line of a list: a link to the claim, where it is tested, and the direction of failure."""
    link = f'<a href="#{claim_anchor(f.claim)}">{claim_text(f.claim)}</a>'
    how = direction(f)
    return f"- {link} ({place_of(f.claim).short})" + (f": **{plain(how)}**" if how else "")


def readings_blocks(findings: Sequence[Finding]) -> str:
    """Return a block for each claim that can be read in several ways: a figure and a table."""
    return "\n".join(_block(f) for f in findings if len(f.readings) > 1)


def _block(f: Finding) -> str:
    """One claim with all its readings."""
    head = (
        f"({_label(f)})=\n"
        f"**{plain(f.claim.paper)}** ({plain(f.claim.where)}). {_linked_chip(f)} "
        f"{plain(_sentence(f.robustness))}\n\n"
        f"Measured: {_measure(f)}\n"
    )
    figure = readings_figure(f)
    shown = "" if figure is None else f"```{{raw}} html\n{figure._repr_html_()}\n```\n"
    rows = [
        f":::{{dropdown}} All {len(f.readings)} readings, and why each could be meant",
        "",
        "| | Reading | Choices | Ours, 95 % interval | Verdict | Why it could be meant |",
        "|---|---|---|---|---|---|",
    ]
    for number, judged in enumerate(f.readings, start=1):
        name = plain(judged.reading.name)
        rows.append(
            f"| {number} | {f'**{name}** (primary)' if judged.reading.primary else name} "
            f"| {plain(_choices(judged))} | {plain(judged.text(f.claim.unit))} "
            f"| {_chip(judged.verdict)} | {plain(judged.reading.why)}{_own_ranges(f, judged)} |"
        )
    return "\n".join((head, shown, *rows, "", ":::", ""))


def _choices(judged: Judged) -> str:
    """A reading's choices in words."""
    words = [choice_text(axis, value) for axis, value in judged.choices.items()]
    if judged.reading.experiment:
        words.append(f"result of {judged.reading.experiment}")
    return ", ".join(words) or "–"


def _own_ranges(f: Finding, judged: Judged) -> str:
    """The ranges of a reading that has its own."""
    if judged.ranges is None or judged.ranges == (f.claim.reproduced, f.claim.partly):
        return ""
    return f" {_rule(*judged.ranges)}"


def _measure(f: Finding) -> str:
    """What is measured, what the interval is over, and what decides the verdict."""
    c = f.claim
    words = [f"{plain(c.measure)}."]
    if c.over:
        words.append(f"Interval over {plain(c.over)}.")
    if f.primary.ranges is not None:
        words.append(_rule(*f.primary.ranges))
    return " ".join(words)


def _rule(reproduced: Range, partly: Range) -> str:
    return f"Reproduced if within {_range(reproduced)}, not reproduced if outside {_range(partly)}."


def _range(bounds: Range) -> str:
    low, high = (f"{bound:g}".replace("inf", "∞") for bound in bounds)
    return f"{low} to {high}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def plain(text: str) -> str:
    """Escape what Markdown would read as more than text, the table's own bars first of all."""
    return re.sub(r"([\\`*_$|<\[\]~^{}])", r"\\\1", text)


def _chip(verdict: Verdict) -> str:
    return f'<span class="verdict {verdict_class(verdict)}">{verdict}</span>'


def _linked_chip(f: Finding) -> str:
    """The verdict as a chip, with a link that names the figure that shows it."""
    return " ".join(filter(None, (_chip(f.verdict), _figure_link(f))))


def _explained_chip(f: Finding) -> str:
    """The verdict as a chip, how the result differs from the claim, and the figure."""
    how = direction(f)
    words = f"<em>{plain(how)}</em>" if how else ""
    return "<br>".join(filter(None, (_chip(f.verdict), words, _figure_link(f))))


def _with_pool(f: Finding) -> str:
    """What comes out with a pool and whitened kernels, and how it is compared; or why nothing."""
    if f.with_pool is None:
        return f"– <small>({plain(why_not(f.claim.id))})</small>"
    ours = "" if f.with_pool.estimate is None else plain(f.with_pool.text(f.claim.unit))
    how = f"<small>{plain(f.with_pool.reading.why)}</small>"
    return "<br>".join(filter(None, (_chip(f.with_pool.verdict), ours, how)))


def _figure_link(f: Finding) -> str:
    if f.claim.figure is None or f.verdict == "not yet run":
        return ""
    return f"{{ref}}`{figure_name(f.claim)} <{f.claim.figure}>`"


def _label(f: Finding) -> str:
    return f"readings-{f.claim.id}"


def _linked_robustness(f: Finding) -> str:
    """The robustness, linked to the table of readings if there is one."""
    text = plain(f.robustness)
    return text if len(f.readings) == 1 else f"{text} ({{ref}}`all <{_label(f)}>`)"
