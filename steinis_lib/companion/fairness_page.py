"""What the page "How fair is this?" shows: error rates of the rules, and how methods were tuned."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import xarray as xr

from steinis_lib.companion.checkout import DATA
from steinis_lib.companion.claims import Claim
from steinis_lib.companion.method_labels import LABELS
from steinis_lib.companion.obtain import stored
from steinis_lib.companion.registry import SECTIONS
from steinis_lib.companion.sections.s3_adaptive_is.problem import KINDS, RATES
from steinis_lib.companion.settings import TUNED, Axis, axes_of
from steinis_lib.companion.tuning_records import WORDS, tuning_table

ERROR_RATES = DATA / "error_rates.json"
"""What ``benchmarks/error_rates.py`` measured."""
LIMIT = 0.05
"""Each of `rates_of` should be below this."""
ERRORS = {
    "true, in the middle": ("middle", "not reproduced"),
    "true, at the edge": ("edge", "not reproduced"),
    "false, at the edge": ("edge", "reproduced"),
    "false, outside": ("outside", "reproduced"),
}
"""What a claim is → where its value is, and the verdict that is an error then."""

ADAPTIVE = "adaptive"
NAMES = {method: LABELS[method][0] for method in TUNED} | {
    "hais-full": "HAIS",
    "hais-partial": "HAIS partial",
    ADAPTIVE: "adaptive IS",
}
"""Tuned methods by the words in labels of cells → their names on the page."""
PILOT = re.compile(
    rf"(?P<problem>.+?)-(?:tuning|pilot)-(?:refine-(?P<refined>[a-z]+)-)?"
    rf"(?P<method>{'|'.join(sorted(NAMES, key=len, reverse=True))})(?:-(?P<size>[0-9.]+))?"
)
"""The labels of cells that tune: problem, mixture to be refined, method, and d or σ."""
END = "end of the range"
"""What `ends` says of a setting beyond which nothing was tried."""


def rates_of(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the error rates of a claim's rule, for each of `ERRORS`.

    Of two edges the one with the larger rate counts.

    Parameters
    ----------
    entry
        The claim's part of `ERROR_RATES`, with its cases.
    """
    return {name: _rate(entry, where, verdict) for name, (where, verdict) in ERRORS.items()}


def _rate(entry: Mapping[str, Any], where: str, verdict: str) -> float:
    """How often a verdict came out, the largest share of all cases there."""
    counts = [case["counts"] for case in entry["cases"] if case["where"] == where]
    return float(max(found[verdict] / sum(found.values()) for found in counts))


def error_rates_table(claims: Sequence[Claim], path: Path = ERROR_RATES) -> str:
    """Return the error rates of the claims' rules as a MyST table, and below it what is left out.

    Raises
    ------
    FileNotFoundError
        If nothing was measured; it says how to.
    """
    if not path.exists():
        raise FileNotFoundError(
            f"{path}, which has the error rates of the rules, is not there. Take it from git, or "
            "measure anew: python benchmarks/error_rates.py"
        )
    record = json.loads(path.read_text("utf-8"))
    heads = [f"{words}: “{verdict}”" for words, (_, verdict) in ERRORS.items()]
    heads.append("true, in the middle: “reproduced”")
    rows: list[str] = []
    left_out: dict[str, list[str]] = {}
    for claim in claims:
        entry = record["claims"].get(claim.id, {"skipped": "it was not measured"})
        how = f"; {_escaped(entry['how'])}" if "how" in entry else ""
        words = f"{_escaped(claim.paper)} (`{claim.id}`{how})"
        if "skipped" in entry:
            left_out.setdefault(entry["skipped"], []).append(f"`{claim.id}`")
        elif "exact" in entry:
            rows.append(f"| {words} | nothing is random |" + " – |" * len(heads))
        else:
            rows.append(f"| {words} | {_trials(entry)} | {' | '.join(_shares(entry))} |")
    parts = [
        f"| Claim, and what is changed | Trials | {' | '.join(heads)} |",
        "|---|---|" + "---|" * len(heads),
        *rows,
        "",
        f"From {record['repeats']} made-up results at each edge, and half as many elsewhere. “In "
        "the middle” is in the middle of the range `reproduced`, or as far inside of its one end "
        "as `partly` is outside; “at the edge” is at its end, where the claim is just true or just "
        "false; “outside” is at the end of `partly`. Of two edges, the one with the larger rate is "
        "shown. The last column is no error: it says how often the rule comes to the verdict that "
        "is right there.",
        "",
        *(
            f"Left out, because {_escaped(why)}: {', '.join(ids)}.\n"
            for why, ids in left_out.items()
        ),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _trials(entry: Mapping[str, Any]) -> str:
    first, last = entry["trials"][0], entry["trials"][-1]
    return str(first) if first == last else f"{first} to {last}"


def _shares(entry: Mapping[str, Any]) -> list[str]:
    """The rates in words, those that are too large in bold, and how often the rule was right."""
    rates = rates_of(entry).values()
    shown = [f"**{_percent(rate)}**" if rate >= LIMIT else _percent(rate) for rate in rates]
    return [*shown, _percent(_rate(entry, "middle", "reproduced"))]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share else "0"


def tuning_tables(trees: Mapping[str, xr.DataTree | None] | None = None) -> str:
    """Return a block for each experiment that tunes methods, with a MyST table of its searches.

    Parameters
    ----------
    trees
        Experiment → its stored result. Default: those with the parameters of profile `paper`.
    """
    blocks = []
    for section in SECTIONS.values():
        for experiment in section.experiments:
            cells = experiment.cells(experiment.parameters.of_profile("paper"))
            if not any(PILOT.fullmatch(cell.label) for cell in cells):
                continue
            tree = stored(experiment.name) if trees is None else trees.get(experiment.name)
            text = "There is no stored result with the present parameters."
            if tree is not None:
                text = _tuning_table(*tuning_rows(tree))
            blocks.append(f":::{{dropdown}} {section.title}\n\n{text}\n\n:::\n")
    return "\n".join(blocks)


def tuning_rows(tree: xr.DataTree) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row for each search of a result, and the labels of those by another tuner.

    A row is that of `tuning_table`, with "problem" before it.
    """
    rows: list[dict[str, Any]] = []
    others: list[str] = []
    for label, node in tree.children.items():
        found = PILOT.fullmatch(label)
        if found is None:
            continue
        record = node.to_dataset()
        if "failure" not in record:
            others.append(label)
            continue
        method = found["method"]
        for i, (name, axes) in enumerate(_searches(method, record.sizes["trial"])):
            row = tuning_table(record.isel(trial=[i]), axes, name)
            rows.append({"problem": _problem(found, method)} | row)
    return rows, others


def _searches(method: str, n: int) -> list[tuple[str, Sequence[Axis]]]:
    """The name and the axes of each trial of a record; adaptive IS has one for each kind of it.

    No section has axes that differ from these in more than their first values.
    """
    if method != ADAPTIVE:
        return [(NAMES[method], axes_of(method))] * n
    return [
        (f"{NAMES[method]}, {objective}, {update}", (RATES[update],))
        for objective, update in KINDS[:n]
    ]


def _problem(found: re.Match[str], method: str) -> str:
    parts = [found["problem"]]
    if found["refined"]:
        parts.append(f"from the “{found['refined']}” mixture")
    if found["size"]:
        parts.append(f"{'σ' if method == ADAPTIVE else 'd'} = {found['size']}")
    return ", ".join(parts)


def _tuning_table(rows: Sequence[Mapping[str, Any]], others: Sequence[str]) -> str:
    """All searches of a result as a MyST table."""
    lines = [
        "| Problem | Method | Candidates | Score evaluations | Diverged | Folded | Chosen "
        "| Where the chosen values are |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['problem']} | {row['method']} | {row['candidates']} "
        f"| {row['score evaluations']:,} | {row['diverged']} | {row['folded']} | {row['chosen']} "
        f"| {', '.join(f'{word}: {row[word]}' for word in WORDS.values() if row[word] != '–')} |"
        for row in rows
    ]
    note = f"Left out, because another tuner made them: {', '.join(others)}." if others else ""
    return "\n".join([*(lines if rows else ()), "", note]).strip()


def at_an_end(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return, a line each, which chosen values of `tuning_rows` have nothing tried beyond them."""
    return [
        f"{row['problem']}, {row['method']}: {word}"
        for row in rows
        for word in WORDS.values()
        if row[word] == END
    ]


def _escaped(text: str) -> str:
    """Escape what Markdown would read as more than text."""
    return re.sub(r"([\\`*_$|<\[\]~^{}])", r"\\\1", text)
