"""The notebooks of the book: their parameters cell, and running them with papermill.

The parameters of a section are declared once, in its class of `Parameters`. The notebook's cell
tagged ``parameters`` is made from that class: ``make notebooks`` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steinis_lib.companion.checkout import ROOT, need_checkout
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.registry import SECTIONS
from steinis_lib.core.files import replacing


def run_notebook(
    name: str, output: Path, parameters: Mapping[str, Any] | None = None, profile: str = "quick"
) -> Parameters:
    """Execute a section's notebook with validated parameters and write the result to `output`.

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
        _hide_injected(scratch)
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


def _hide_injected(path: Path) -> None:
    """Keep the cell that papermill adds, but off the book's page."""
    import nbformat

    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell.metadata.tags.append("remove-cell")
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    print("\n".join(f"{name}: parameters cell written" for name in write_parameters_cells()))
