"""Write the first cell of every notebook: it installs what is missing where there is no checkout.

``make notebooks`` runs this, so that the cells have the repository's address; where none is set,
the cell says what to do instead.
"""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
from bookparts.address import read_address

from steinis_lib.companion.registry import SECTIONS
from steinis_lib.core.files import replacing

IDENTIFIER = "cell-setup"
TAG = "remove-cell"  # the book's page has no use for it

SOURCE = """\
# Where there is no checkout, as on Colab: fetch the repository, and install what it needs.
def _set_up(repository={repository}):
    import importlib.util
    import os
    import subprocess
    import sys
    from pathlib import Path

    found = importlib.util.find_spec("steinis_lib")
    if found and Path(found.origin).parents[1].joinpath("data", "claims").is_dir():
        return
    repository = os.environ.get("STEINIS_REPOSITORY", repository)
    if not repository:
        raise ModuleNotFoundError(
            "The library or its data are missing, and this notebook does not know where their "
            "repository is. Run `make install` in a checkout, and start Jupyter from its .venv; "
            "or set STEINIS_REPOSITORY to the repository's address or folder."
        )
    folder = Path("steinis-companion").resolve()
    if not folder.exists():
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", repository, folder], check=True)
    package = f"{{folder}}[companion]"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", package], check=True)
    sys.path.insert(0, str(folder))  # the folder has the stored results as well
    importlib.invalidate_caches()


_set_up()"""


def setup_cell(repository: str) -> str:
    """Return the source of the cell for a repository's address, which may be empty."""
    return SOURCE.format(repository=json.dumps(repository))


def write_setup_cell(path: Path, repository: str) -> bool:
    """Write the cell into a notebook, and return whether that changed it."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    source = setup_cell(repository)
    first = notebook.cells[0]
    if first.get("id") == IDENTIFIER:
        if first.source == source:
            return False
        first.source = source
    else:
        cell = nbformat.v4.new_code_cell(source, id=IDENTIFIER, metadata={"tags": [TAG]})  # type: ignore[no-untyped-call]
        notebook.cells.insert(0, cell)
    text = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    with replacing(path) as scratch:
        scratch.write_text(text + "\n", "utf-8")
    return True


def main() -> None:
    """Write the cells of all sections' notebooks, and name those that changed."""
    repository = read_address({}).repository
    for section in SECTIONS.values():
        if write_setup_cell(section.notebook_path, repository):
            print(f"{section.notebook}: setup cell written")


if __name__ == "__main__":
    main()
