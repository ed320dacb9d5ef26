"""The command ``steinis verify``: judge the claims, and check the stored results."""

from __future__ import annotations

import json
import os
import secrets
from collections import Counter
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from steinis_lib.companion import claims, comparison, obtain, results, verification
from steinis_lib.companion.checkout import CheckoutNeededError
from steinis_lib.companion.comparison import Comparison
from steinis_lib.companion.parameters import ParameterError
from steinis_lib.companion.registry import EXPERIMENTS
from steinis_lib.companion.terminal import err, fail, out, progress_bar
from steinis_lib.companion.verification import ChunkCheck, Request


def verify(
    as_json: Annotated[bool, typer.Option("--json", help="one object, for machines")] = False,
    update: Annotated[
        bool, typer.Option("--update", help="publish the verdicts that the data lead to")
    ] = False,
    again: Annotated[
        bool, typer.Option("--recompute/--no-recompute", help="compute random chunks again")
    ] = True,
    workers: Annotated[
        int | None, typer.Option(min=1, help="processes to recompute with [default: all cores]")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="of the choice of chunks")] = None,
    chunks: Annotated[
        int | None,
        typer.Option(min=1, help="at most so many of each result [default: one of each method]"),
    ] = None,
    minutes: Annotated[
        float,
        typer.Option(
            min=0, help="as many methods, at random, as should take so long; 0: all of them"
        ),
    ] = 7.0,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(
            help="EXPERIMENT:METHOD that is not computed again, * for any; may be repeated"
        ),
    ] = None,
) -> None:
    """Evaluate every claim of the paper from the stored results, and check these.

    Verdicts are computed from the stored results at the paper's sizes, under every reading of each
    claim. Then one chunk of each method, chosen at random, is computed again and compared with what
    is stored, for as many methods as --minutes allows; with --chunks, fewer, and with --leave-out,
    none of some methods. Numbers must agree within a tolerance that was measured. Where rounding
    errors grow until they decide the result, only the first transitions must, and the end is
    compared in distribution. A chunk that differs by more is computed again with random numbers
    moved by rounding errors, to see whether these explain it.
    Exits with 1 if a published verdict no longer follows from the data, or if the data differ.
    """
    try:
        left_out = verification.parse_left_out(leave_out or [])
        findings = claims.evaluate(claims.ledger())
    except (CheckoutNeededError, ParameterError) as error:
        raise fail(str(error), 2) from error
    except ValueError as error:
        raise fail(str(error), 1) from error
    if update:
        claims.publish(findings)
    if not as_json:
        out.print(_verdicts(findings))
    problems = claims.discrepancies(findings)
    if problems:
        problems.insert(0, "published verdicts do not follow from the data:")
    seed = secrets.randbelow(10**6) if seed is None else seed
    if again:
        what = "one chunk of each method" if chunks is None else f"{chunks} chunks of each result"
        until = f", of as many as fit into {minutes:g} minutes" if minutes else ""
        err.print(f"Computing {what} again{until} (--seed {seed}):")
        if leave_out:
            err.print(f"Left out: {', '.join(leave_out)}", soft_wrap=True)
    requests = []
    for name, experiment in EXPERIMENTS.items():
        parameters = experiment.parameters.of_profile("paper")
        try:
            if (stored := obtain.stored(name, parameters)) is None:
                continue
        except ValueError as error:
            problems.append(str(error))
            continue
        chosen = verification.choose_chunks(
            experiment, parameters, seed, chunks, left_out.get(name, ())
        )
        requests.append(Request(experiment, parameters, stored, chosen if again else []))
    workers = workers or os.cpu_count() or 1
    if minutes:
        requests = verification.fitting(requests, minutes, workers, seed)
    checks = _recompute(requests, workers)
    records = [_record(request, checks[request.experiment.name]) for request in requests]
    problems += [line for record in records for line in record["problems"]]
    if not as_json:
        for record in records:
            out.print(_described(record), soft_wrap=True)
    total = _summary(records, findings, not problems, seed if again else None)
    if as_json:
        report = {
            "summary": total, "claims": [f.record() for f in findings], "results": records,
        }  # fmt: skip
        typer.echo(json.dumps(report, indent=1, ensure_ascii=False))
    else:
        out.print("summary: " + " ".join(f"{k}={v}" for k, v in total.items()), soft_wrap=True)
    if problems:
        raise fail("\n".join(problems), 1)


def _verdicts(findings: list[claims.Finding]) -> Table:
    table = Table(Column("claim", overflow="fold"), "paper", "ours, 95 % interval", "verdict")
    colours = {"reproduced": "green", "partly": "yellow", "not reproduced": "red"}
    for f in findings:
        style = colours.get(f.verdict, "dim")
        table.add_row(
            f"[bold]{f.claim.id}[/]\n{escape(f.claim.paper)}", escape(f.claim.paper_value),
            escape(f.ours), f"[{style}]{f.verdict}[/]\n{escape(f.robustness)}{_with_pool(f)}",
        )  # fmt: skip
    return table


def _with_pool(f: claims.Finding) -> str:
    """A line on the verdict with a pool of leaders, if there is one."""
    return "" if f.with_pool is None else f"\n{f.with_pool.reading.name}: {f.with_pool.verdict}"


def _recompute(requests: list[Request], workers: int) -> dict[str, list[ChunkCheck]]:
    """Compute the chosen chunks again, with a progress bar: those that take long come first."""
    requests = sorted(requests, key=_seconds_of_a_chunk, reverse=True)
    if not any(request.jobs for request in requests):
        return verification.recompute(requests)
    with progress_bar() as bar:
        row = bar.add_task("recomputing", total=sum(len(request.jobs) for request in requests))
        return verification.recompute(requests, workers=workers, progress=lambda: bar.advance(row))


def _seconds_of_a_chunk(request: Request) -> float:
    """How long a chunk of the result took, the mean over all."""
    made_by = results.attributes(request.stored)["provenance"]
    return float(sum(part["seconds"] for part in made_by) / sum(part["chunks"] for part in made_by))


def _record(request: Request, checks: list[ChunkCheck]) -> dict[str, Any]:
    """What is reported of a result: who made it, how each chunk was compared, what is wrong."""
    name, made_by = request.experiment.name, results.attributes(request.stored)["provenance"]
    wrong = results.check_sum(obtain.stored_path(name, request.parameters))
    problems = [wrong] if wrong else []
    problems += [
        f"{name}: {part['chunks']} chunks come from commit {part['commit']}, which is not all that "
        "they were made with; run again from a clean checkout"
        for part in made_by
        if part["commit"].endswith("-dirty")
    ]
    problems += [line for check in checks for line in check.problems]
    return {
        "experiment": name,
        "made_by": made_by,
        "passed": not problems,
        "largest_deviation": max((c.deviation for k in checks for c in k.comparisons), default=0.0),
        "chunks": [
            {
                "chunk": check.name,
                "method": check.method,
                "failure": check.failure,
                "nudged": check.n_nudged,
                "variables": [_of_variable(c) for c in check.comparisons],
            }
            for check in checks
        ],
        "problems": problems,
    }


def _of_variable(c: Comparison) -> dict[str, Any]:
    found = {"name": c.variable, "compared": c.how, "deviation": c.deviation}
    return found | ({"problem": c.problem} if c.problem else {})


def _described(record: dict[str, Any]) -> str:
    """A result's record for people."""
    agrees = "agrees" if record["chunks"] else "has its checksum"
    lines = [
        f"[bold]{record['experiment']}[/]: {agrees if record['passed'] else '[red]differs[/]'}"
    ]
    for part in record["made_by"]:
        lines.append(
            f"  made by commit {part['commit']} on {part['machine']}, PyTorch {part['torch']}, "
            f"Python {part['python']}, {part['created'][:10]}: {part['chunks']} chunks"
        )
    if record["chunks"]:
        lines.append(
            f"  {len(record['chunks'])} chunks computed again, largest deviation "
            f"{record['largest_deviation']:.2g} of what is allowed"
        )
    if nudged := [chunk["chunk"] for chunk in record["chunks"] if chunk["nudged"]]:
        lines.append(
            "  computed more than once, with moved random numbers, to measure how far rounding "
            f"errors go: {'; '.join(nudged)}"
        )
    for how, what in (
        ("distribution", "compared in distribution only, as rounding errors decide them"),
        ("none", "not compared, as rounding errors decide them and trials are few"),
    ):
        if names := _compared(record, how):
            lines.append(f"  {what}: {names}")
    return "\n".join(lines)


def _compared(record: dict[str, Any], how: str) -> str:
    """The variables that were compared in one way, by method."""
    return "; ".join(
        f"{chunk['method']} ({', '.join(names)})"
        for chunk in record["chunks"]
        if (names := [v["name"] for v in chunk["variables"] if v["compared"] == how])
    )


def _summary(
    records: list[dict[str, Any]], findings: list[claims.Finding], passed: bool, seed: int | None
) -> dict[str, Any]:
    """The numbers of the last line."""
    how = Counter(v["compared"] for r in records for c in r["chunks"] for v in c["variables"])
    return {
        "passed": "yes" if passed else "no",
        "claims": len(findings),
        "readings": sum(len(f.readings) for f in findings),
        "results": len(records),
        "chunks": sum(len(r["chunks"]) for r in records),
        "by_numbers": how["numbers"],
        "in_distribution": how["distribution"],
        "not_compared": how["none"],
        "nudged": sum(c["nudged"] > 0 for r in records for c in r["chunks"]),
        "largest_deviation": round(max((r["largest_deviation"] for r in records), default=0.0), 4),
        "false_alarms_below": 2 * how["distribution"] * comparison.LEVEL,
        "seed": seed,
    }
