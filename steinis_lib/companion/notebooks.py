"""Running the notebooks of the book with papermill."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steinis_lib.companion import results
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.registry import EXPERIMENTS
from steinis_lib.core.files import replacing

NOTEBOOKS: dict[str, Path] = {
    "gmm-convergence": results.ROOT / "notebooks" / "01_gmm_convergence.ipynb",
    "gmm-estimation": results.ROOT / "notebooks" / "02_gmm_estimation.ipynb",
    "adaptive-comparison": results.ROOT / "notebooks" / "03_adaptive_is.ipynb",
    "rbm": results.ROOT / "notebooks" / "04_rbm.ipynb",
    "vae": results.ROOT / "notebooks" / "05_vae.ipynb",
    "running-time": results.ROOT / "notebooks" / "06_running_time.ipynb",
    "beyond": results.ROOT / "notebooks" / "07_beyond.ipynb",
}
"""Experiment → the notebook that tells it; the notebook's parameters are the experiment's."""


def run_notebook(
    name: str,
    output: Path,
    parameters: Mapping[str, Any] | None = None,
    profile: str = "quick",
) -> Parameters:
    """Execute a notebook with validated parameters and write the result to `output`.

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
    validated = EXPERIMENTS[name].parameters.of_profile(profile, given)
    failed = output.with_name(f"{output.stem}.failed.ipynb")
    with replacing(output) as scratch:
        try:
            papermill.execute_notebook(
                NOTEBOOKS[name],
                scratch,
                parameters={"profile": profile, **given},
                cwd=results.ROOT,
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


def _hide_injected(path: Path) -> None:
    """Keep the cell that papermill adds, but off the book's page."""
    import nbformat

    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell.metadata.tags.append("remove-cell")
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
