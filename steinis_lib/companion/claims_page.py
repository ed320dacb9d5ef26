"""What the book shows of the claims: tables of their verdicts, and of all their readings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from steinis_lib.companion.claims import Finding
from steinis_lib.companion.reading_claims import Judged, Range, Verdict, choice_text
from steinis_lib.companion.reading_figures import readings_figure


def claims_table(findings: Sequence[Finding]) -> str:
    """Return all claims with verdicts, intervals, robustness and rules, as a MyST table."""
    rows = [
        "| Claim | Paper | Ours, 95 % interval | Verdict | Readings | What is measured |",
        "|---|---|---|---|---|---|",
    ]
    for f in findings:
        rows.append(
            f"| {_text(f.claim.paper)} ({_text(f.claim.where)}) | {_text(f.claim.paper_value)} "
            f"| {_text(f.ours)} | {_linked_chip(f)} | {_linked_robustness(f)} | {_measure(f)} |"
        )
    return "\n".join(rows) + "\n"


def brief_table(findings: Sequence[Finding]) -> str:
    """Return the claims that were run with verdicts and robustness, as a MyST table."""
    rows = ["| What the paper says | Verdict | Readings |", "|---|---|---|"]
    rows += [
        f"| {_text(f.claim.paper)} | {_linked_chip(f)} | {_linked_robustness(f)} |"
        for f in findings
        if f.verdict != "not yet run"
    ]
    waiting = sum(f.verdict == "not yet run" for f in findings)
    note = f"\n{waiting} further claims of the paper are not yet run.\n" if waiting else ""
    return "\n".join(rows) + "\n" + note


def readings_blocks(findings: Sequence[Finding]) -> str:
    """Return a block for each claim that can be read in several ways: a figure and a table."""
    return "\n".join(_block(f) for f in findings if len(f.readings) > 1)


def _block(f: Finding) -> str:
    """One claim with all its readings."""
    head = (
        f"({_label(f)})=\n"
        f"**{_text(f.claim.paper)}** ({_text(f.claim.where)}). {_linked_chip(f)} "
        f"{_text(_sentence(f.robustness))}\n\n"
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
        name = _text(judged.reading.name)
        rows.append(
            f"| {number} | {f'**{name}** (primary)' if judged.reading.primary else name} "
            f"| {_text(_choices(judged))} | {_text(judged.text(f.claim.unit))} "
            f"| {_chip(judged.verdict)} | {_text(judged.reading.why)}{_own_ranges(f, judged)} |"
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
    words = [f"{_text(c.measure)}."]
    if c.over:
        words.append(f"Interval over {_text(c.over)}.")
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


def _text(text: str) -> str:
    """Escape what Markdown would read as more than text, the table's own bars first of all."""
    return re.sub(r"([\\`*_$|<\[\]~^{}])", r"\\\1", text)


def _chip(verdict: Verdict) -> str:
    return f'<span class="verdict verdict-{verdict.replace(" ", "-")}">{verdict}</span>'


def _linked_chip(f: Finding) -> str:
    """The verdict as a chip, linked to the figure that shows it."""
    linked = f.claim.figure is not None and f.verdict != "not yet run"
    return _chip(f.verdict) + (f" {{ref}}`figure <{f.claim.figure}>`" if linked else "")


def _label(f: Finding) -> str:
    return f"readings-{f.claim.id}"


def _linked_robustness(f: Finding) -> str:
    """The robustness, linked to the table of readings if there is one."""
    text = _text(f.robustness)
    return text if len(f.readings) == 1 else f"{text} ({{ref}}`all <{_label(f)}>`)"
