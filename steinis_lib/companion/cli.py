"""The command line: run an experiment's notebook, verify the claims, train models, list."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.markup import escape
from rich.table import Table

from steinis_lib.companion import obtain
from steinis_lib.companion.checkout import (
    ROOT,
    CheckoutNeededError,
    UncommittedError,
    need_checkout,
    need_committed,
)
from steinis_lib.companion.parameters import ParameterError, Parameters
from steinis_lib.companion.registry import EXPERIMENTS, SECTIONS
from steinis_lib.companion.runner import compute as runner
from steinis_lib.companion.runner import workers as running
from steinis_lib.companion.runner.experiment import Chunk
from steinis_lib.companion.runner.store import ChunkError
from steinis_lib.companion.runner.workers import SchedulerError
from steinis_lib.companion.terminal import fail, out, progress_bar
from steinis_lib.companion.train_command import train_vae
from steinis_lib.companion.verify_command import verify

app = typer.Typer(
    help="Stein variational adaptive importance sampling: run, verify, list.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(verify)
app.command("train-vae")(train_vae)


@app.command("list")
def list_experiments(
    name: Annotated[str | None, typer.Argument(help="show this one's parameters")] = None,
) -> None:
    """List the experiments, or the parameters of one."""
    if name is None:
        for known in EXPERIMENTS:
            out.print(known)
        return
    if name not in EXPERIMENTS:
        raise fail(f"no experiment {name!r}; known: {', '.join(EXPERIMENTS)}", 2)
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
    workers: Annotated[
        int, typer.Option(min=1, help="processes on this machine that chunks run in")
    ] = 1,
    scheduler: Annotated[
        str | None,
        typer.Option(help="run chunks on this Dask scheduler's workers, such as tcp://host:8786"),
    ] = None,
) -> None:
    """Run an experiment and its notebook with validated parameters."""
    from papermill import PapermillExecutionError

    from steinis_lib.companion.notebooks import run_notebook

    if name not in SECTIONS:
        raise fail(f"no notebook {name!r}; known: {', '.join(SECTIONS)}", 2)
    try:
        need_checkout("`steinis run`")
        given = _parse(parameter or [])
        validated = EXPERIMENTS[name].parameters.of_profile(profile, given)
        if scheduler is not None:
            running.check_address(scheduler)
    except (CheckoutNeededError, ParameterError, SchedulerError) as error:
        raise fail(str(error), 2) from error
    if scheduler is not None and workers > 1:
        raise fail("give --workers or --scheduler, not both", 2)
    output = output or ROOT / "outputs" / f"{name}-{profile}.ipynb"
    if output.suffix != ".ipynb" or output.is_dir():
        raise fail(f"--output {output}: expected the path of a notebook, ending in .ipynb", 2)
    paper = profile == "paper"
    found = paper and obtain.stored(name, validated) is not None
    if paper and not found:
        try:
            need_committed()
        except UncommittedError as error:
            raise fail(str(error), 2) from error
    with tempfile.TemporaryDirectory() as scratch:
        chunks = runner.CHUNKS if paper else Path(scratch)
        if not found:  # the notebook then finds every chunk done
            _compute(name, validated, chunks, workers, scheduler)
        os.environ[obtain.CHUNKS_VARIABLE] = str(chunks)
        try:
            with out.status("running the notebook"):
                run_notebook(name, output, given, profile)
        except PapermillExecutionError as error:
            kept = output.with_name(f"{output.stem}.failed.ipynb")
            raise fail(f"a cell failed:\n{error}\nThe notebook so far: {kept}", 1) from error
        finally:
            del os.environ[obtain.CHUNKS_VARIABLE]
    out.print(f"executed notebook: {output}", soft_wrap=True)


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


def _compute(
    name: str, parameters: Parameters, chunks: Path, workers: int, scheduler: str | None
) -> None:
    """Compute all chunks with a progress bar; what goes wrong ends the command with a message."""
    with progress_bar() as bar:
        row = bar.add_task(name)

        def progress(done: int, total: int, chunk: Chunk | None) -> None:
            if chunk is None:  # chunks kept from earlier say nothing of the speed
                bar.reset(row, completed=done, total=total)
            else:
                bar.update(row, completed=done)

        try:
            runner.compute(
                EXPERIMENTS[name],
                parameters,
                chunks=chunks,
                progress=progress,
                workers=workers,
                scheduler=scheduler,
            )
        except (ChunkError, SchedulerError, KeyboardInterrupt) as error:
            message = str(error) or "interrupted"
            if chunks == runner.CHUNKS:
                done, total = bar.tasks[row].completed, bar.tasks[row].total
                message += f"\n{done:.0f} of {total:.0f} chunks are kept; the same command goes on"
            code = 2 if isinstance(error, SchedulerError) else 130
            raise fail(message, 1 if isinstance(error, ChunkError) else code) from error


if __name__ == "__main__":
    app()
