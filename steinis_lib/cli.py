"""The command line: run an experiment's notebook, verify the claims, list what there is."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from steinis_lib import engine, results
from steinis_lib.engine import Task
from steinis_lib.parameters import ParameterError, Parameters

app = typer.Typer(
    help="Stein variational adaptive importance sampling: run, verify, list.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out, err = Console(), Console(stderr=True)


def _fail(message: str, code: int) -> typer.Exit:
    err.print(f"[bold red]error[/] {escape(message)}", soft_wrap=True)
    return typer.Exit(code)


@app.command("list")
def list_experiments(
    name: Annotated[str | None, typer.Argument(help="show this one's parameters")] = None,
) -> None:
    """List the experiments, or the parameters of one."""
    from steinis_lib.experiments import EXPERIMENTS

    if name is None:
        for known in EXPERIMENTS:
            out.print(known)
        return
    if name not in EXPERIMENTS:
        raise _fail(f"no experiment {name!r}; known: {', '.join(EXPERIMENTS)}", 2)
    cls = EXPERIMENTS[name].parameters
    table = Table("parameter", "paper", "quick", "meaning", title=name)
    paper, quick = cls.of_profile("paper"), cls.of_profile("quick")
    for field, info in cls.model_fields.items():
        values = (str(getattr(paper, field)), str(getattr(quick, field)))
        table.add_row(field, *values, escape(info.description or ""))
    out.print(table)


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="an experiment with a notebook; see `steinis list`")],
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", help="NAME=VALUE, may be repeated")
    ] = None,
    profile: Annotated[str, typer.Option(help="quick or paper")] = "quick",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="where the executed notebook goes")
    ] = None,
) -> None:
    """Run an experiment and its notebook with validated parameters."""
    from papermill import PapermillExecutionError

    from steinis_lib.experiments import CHUNKS_VARIABLE, EXPERIMENTS, stored
    from steinis_lib.notebooks import NOTEBOOKS, run_notebook

    if name not in NOTEBOOKS:
        raise _fail(f"no notebook {name!r}; known: {', '.join(NOTEBOOKS)}", 2)
    try:
        given = _parse(parameter or [])
        validated = EXPERIMENTS[name].parameters.of_profile(profile, given)
    except ParameterError as error:
        raise _fail(str(error), 2) from error
    output = output or results.ROOT / "outputs" / f"{name}-{profile}.ipynb"
    with tempfile.TemporaryDirectory() as scratch:
        chunks = engine.CHUNKS if profile == "paper" else Path(scratch)
        if profile == "quick" or stored(name, validated) is None:
            _compute(name, validated, chunks)  # the notebook then finds every chunk done
        os.environ[CHUNKS_VARIABLE] = str(chunks)
        try:
            with out.status("running the notebook"):
                run_notebook(name, output, given, profile)
        except PapermillExecutionError as error:
            kept = output.with_name(f"{output.stem}.failed.ipynb")
            raise _fail(f"a cell failed:\n{error}\nThe notebook so far: {kept}", 1) from error
        finally:
            del os.environ[CHUNKS_VARIABLE]
    out.print(f"executed notebook: {output}", soft_wrap=True)


@app.command()
def verify(
    as_json: Annotated[
        bool, typer.Option("--json", help="a list of objects, for machines")
    ] = False,
    update: Annotated[
        bool, typer.Option("--update", help="publish the verdicts that the data lead to")
    ] = False,
) -> None:
    """Evaluate every claim of the paper from the stored results.

    Exits with 1 if a published verdict no longer follows from the data.
    """
    from steinis_lib import claims

    findings = claims.evaluate(claims.ledger())
    if update:
        claims.publish(findings)
    if as_json:
        typer.echo(json.dumps([f.record() for f in findings], indent=1, ensure_ascii=False))
    else:
        table = Table("claim", "paper", "ours, 95 % interval", "verdict")
        colours = {"reproduced": "green", "partly": "yellow", "not reproduced": "red"}
        for f in findings:
            style = colours.get(f.verdict, "dim")
            table.add_row(
                f"[bold]{f.claim.id}[/]\n{escape(f.claim.paper)}",
                escape(f.claim.paper_value),
                escape(f.ours),
                f"[{style}]{f.verdict}[/]",
            )
        out.print(table)
    wrong = claims.discrepancies(findings)
    if wrong:
        raise _fail("published verdicts do not follow from the data:\n" + "\n".join(wrong), 1)


def _parse(pairs: list[str]) -> dict[str, Any]:
    """NAME=VALUE pairs, values read as YAML scalars or lists."""
    given: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise ParameterError(f"-p {pair}: expected NAME=VALUE, such as -p seed=2")
        if key in given:
            raise ParameterError(f"{key}: given twice")
        if key == "profile":
            raise ParameterError("profile: use --profile quick or --profile paper")
        try:
            given[key] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ParameterError(f"{key}: cannot read the value {text!r}: {error}") from error
    return given


def _compute(name: str, parameters: Parameters, chunks: Path) -> None:
    from steinis_lib.experiments import EXPERIMENTS

    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("chunks"),
        TimeElapsedColumn(), TextColumn("elapsed,"), TimeRemainingColumn(), TextColumn("remaining"),
        console=err,
    ) as bar:  # fmt: skip
        row = bar.add_task(name)

        def progress(done: int, total: int, task: Task | None) -> None:
            bar.update(row, completed=done, total=total)

        engine.compute(EXPERIMENTS[name], parameters, chunks=chunks, progress=progress)


if __name__ == "__main__":
    app()
