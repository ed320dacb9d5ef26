"""The notebooks of the book: their parameters cell, and running them with papermill.

The parameters of a section are declared once, in its class of `Parameters`. The notebook's cell
tagged ``parameters`` is made from that class: ``make notebooks`` writes it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from steinis_lib.companion import figure_files
from steinis_lib.companion.checkout import ROOT, need_checkout
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.registry import SECTIONS
from steinis_lib.core.files import replacing


def run_notebook(
    name: str,
    output: Path,
    parameters: Mapping[str, Any] | None = None,
    profile: str = "quick",
    figures: Path | None = None,
) -> Parameters:
    """Execute a section's notebook with validated parameters and write the result to `output`.

    With `figures`, the files of its figures go into that folder.

    Returns
    -------
    Parameters
        Those that the notebook ran with.

    Raises
    ------
    ParameterError
        If a parameter is unknown, of the wrong type or out of range; nothing is run then.
    papermill.PapermillExecutionError
        If a cell fails; the notebook up to there is kept beside `output`, as
        ``<stem>.failed.ipynb``, and an earlier `output` is left as it was.
    """
    import papermill

    given = dict(parameters or {})
    need_checkout("a notebook")
    section = SECTIONS[name]
    validated = section.experiments[0].parameters.of_profile(profile, given)
    failed = output.with_name(f"{output.stem}.failed.ipynb")
    with replacing(output) as scratch:
        try:
            with _files_of_figures_in(figures):
                papermill.execute_notebook(
                    section.notebook_path,
                    scratch,
                    parameters={"profile": profile, **given},
                    cwd=ROOT,
                    progress_bar=False,
                    kernel_name="python3",
                    start_timeout=120,
                )
        except papermill.PapermillExecutionError:
            scratch.replace(failed)
            raise
        _tidy(scratch)
    failed.unlink(missing_ok=True)
    return validated


def parameters_cell(cls: type[Parameters]) -> str:
    """Return the source of a parameters cell: each parameter, and what it means.

    Papermill reads it line by line, so a description must not contain "=".
    """
    lines = ["# None keeps the profile's value. `make notebooks` writes this cell."]
    for name, info in cls.model_fields.items():
        value = '"quick"' if name == "profile" else "None"
        lines.append(f"{name} = {value}  # {info.description}")
    return "\n".join(lines)


def write_parameters_cells() -> list[str]:
    """Write the parameters cell of every section's notebook; return the names of those changed.

    Raises
    ------
    ValueError
        If a notebook has not exactly one cell tagged ``parameters``.
    """
    import nbformat

    changed = []
    for section in SECTIONS.values():
        notebook = nbformat.read(section.notebook_path, as_version=4)  # type: ignore[no-untyped-call]
        cells = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
        if len(cells) != 1:
            raise ValueError(
                f"{section.notebook_path} has {len(cells)} cells tagged `parameters`, expected 1"
            )
        source = parameters_cell(section.experiments[0].parameters)
        if cells[0].source != source:
            cells[0].source = source
            text = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
            with replacing(section.notebook_path) as scratch:
                scratch.write_text(text + "\n", "utf-8")
            changed.append(section.notebook)
    return changed


@contextmanager
def _files_of_figures_in(folder: Path | None) -> Iterator[None]:
    """Tell kernels that start meanwhile where the files of figures go: nowhere, if None."""
    before = os.environ.pop(figure_files.VARIABLE, None)
    if folder is not None:
        os.environ[figure_files.VARIABLE] = str(folder)
    try:
        yield
    finally:
        os.environ.pop(figure_files.VARIABLE, None)
        if before is not None:
            os.environ[figure_files.VARIABLE] = before


def _tidy(path: Path) -> None:
    """Keep the cell that papermill adds off the book's page, and this machine out of the notebook.

    Papermill notes paths and times; outputs can name files of the checkout or of the environment.
    """
    import nbformat

    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    notebook.metadata.pop("papermill", None)
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell.metadata.tags.append("remove-cell")
        if "outputs" in cell:
            cell.outputs = [_without_paths(output) for output in cell.outputs]
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]


def _without_paths(value: Any) -> Any:
    """The same text, list or mapping without folders of this machine."""
    if isinstance(value, str):
        for folder in (str(ROOT), sys.prefix, str(Path.home())):
            value = value.replace(f"{folder}{os.sep}", "").replace(folder, ".")
        return value
    if isinstance(value, list):
        return [_without_paths(item) for item in value]
    if isinstance(value, dict):
        return type(value)({key: _without_paths(item) for key, item in value.items()})
    return value


if __name__ == "__main__":
    print("\n".join(f"{name}: parameters cell written" for name in write_parameters_cells()))
