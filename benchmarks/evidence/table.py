"""What runs found, as Markdown: a line for each run, and a count of what is right.

python -m evidence.table evidence.jsonl
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from evidence.case import GROUPS, Case
from evidence.cases import CASES
from evidence.run import Row, read

STANDARD_ERRORS, NATS = 4.0, 0.05
"""An estimate is right within so many of its standard errors, or within so many nats."""


def right(row: Row) -> bool:
    """Say whether the estimate is right; where the integral is infinite, no estimate is."""
    if row["error"] is None or row["se"] is None:
        return False
    return bool(abs(row["error"]) <= max(STANDARD_ERRORS * row["se"], NATS))


def judged(case: Case, row: Row) -> str:
    """Return how a run went, in one or two words.

    "right" and "false alarm" are right estimates, without and with a warning; "flagged" and
    "silent" are wrong ones. "failed" says that the method refused or stopped. An estimate for a
    case that should be flagged is "flagged", however near it is, or "silent".
    """
    if row["failure"]:
        return "failed"
    warned = bool(row["warnings"])
    if case.expected == "flagged" or not right(row):
        return "flagged" if warned else "silent"
    return "false alarm" if warned else "right"


def table(rows: list[Row]) -> str:
    """Return a line for each run, class after class."""
    lines = [
        "| class | case | method | seed | error | claimed | evaluations | seconds | verdict |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    order = {name: i for i, name in enumerate(CASES)}
    for row in sorted(rows, key=lambda r: (order[r["case"]], r["method"], r["seed"])):
        case = CASES[row["case"]]
        cells = [case.group, case.name, row["method"], str(row["seed"])]
        cells += [_signed(row["error"]), _plain(row["se"]), f"{row['evaluations']:,}"]
        cells += [f"{row['seconds']:.1f}", judged(case, row)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def summary(rows: list[Row]) -> str:
    """Return how often each verdict was given, by method and class."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        case = CASES[row["case"]]
        counts.setdefault((row["method"], case.group), Counter())[judged(case, row)] += 1
    verdicts = ("right", "false alarm", "flagged", "silent", "failed")
    head = ["method", "class", *verdicts]
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    for method in dict.fromkeys(row["method"] for row in rows):
        for group, words in GROUPS.items():
            if found := counts.get((method, group)):
                cells = [method, words, *(str(found[v]) for v in verdicts)]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.4f}"


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="what `evidence.run` wrote")
    rows = read(parser.parse_args().results)
    print(f"{table(rows)}\n{summary(rows)}")


if __name__ == "__main__":
    main()
