"""Run the code of the guide's pages, and keep what it prints, so that the pages can show it.

A block of code that runs is a directive with a name, and what it prints follows it::

    ```{code-block} python
    :name: code-first

    print("text")
    ```

    ```{literalinclude} _generated/guide-first.txt
    :language: text
    :class: code-output
    ```

With the class ``code-table`` besides, lines of the output are not broken on narrow screens.

The blocks of a page share their variables and run in order, in the repository's root. A block with
the class ``elsewhere`` needs a package that this project does not install; only tests run it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import steinis_lib
from steinis_lib.core.files import replacing

BOOK = Path(__file__).resolve().parents[1]
ROOT = BOOK.parent
PAGES = ("guide", "guide/sources", "guide/analyses")
DATA = ROOT / "data" / "guide"

BLOCK = re.compile(
    r"^```\{code-block\} python\n:name: code-([\w-]+)\n(:class: elsewhere\n)?\n(.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A block of code of a page.

    Parameters
    ----------
    name
        Its name on the page, without "code-".
    source
        The code.
    elsewhere
        Whether it needs a package that this project does not install.
    """

    name: str
    source: str
    elsewhere: bool


def text_of(page: str) -> str:
    """Return the Markdown of a page."""
    return (BOOK / f"{page}.md").read_text("utf-8")


def blocks(page: str) -> list[Block]:
    """Return the blocks of code of a page, in order."""
    found = BLOCK.findall(text_of(page))
    return [Block(name, source, bool(elsewhere)) for name, elsewhere, source in found]


def run(code: Iterable[Block], namespace: dict[str, Any]) -> dict[str, str]:
    """Run blocks one after the other with these variables; return what each printed.

    Raises
    ------
    RuntimeError
        If a block raises an exception; it names the block.
    """
    printed = {}
    for block in code:
        output = StringIO()
        try:
            with redirect_stdout(output), chdir(ROOT):
                exec(compile(block.source, f"<code-{block.name}>", "exec"), namespace)
        except Exception as error:
            raise RuntimeError(f"the guide's block code-{block.name} failed: {error}") from error
        printed[block.name] = output.getvalue()
    return printed


def run_page(page: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Run a page's blocks, except those for elsewhere; return what they printed, and variables."""
    namespace: dict[str, Any] = {"__name__": page}
    return run((block for block in blocks(page) if not block.elsewhere), namespace), namespace


def digest(page: str) -> str:
    """Return a digest of what decides what a page's code prints: code, data and library."""
    library = Path(steinis_lib.__file__).parent
    method = (p for p in library.rglob("*.py") if p.relative_to(library).parts[0] != "companion")
    total = hashlib.sha256(repr(blocks(page)).encode())
    for path in (Path(__file__), *sorted(DATA.iterdir()), *sorted(method)):
        total.update(path.read_bytes())
    return total.hexdigest()


def write_outputs(folder: Path) -> None:
    """Write what each page's code prints into a folder, unless the folder has it already."""
    for page in PAGES:
        note = folder / f"guide-{page.replace('/', '-')}.digest"
        now = digest(page)
        if note.is_file() and note.read_text("utf-8") == now:
            continue
        print(f"{page}: running the code of the page", flush=True)
        for name, output in run_page(page)[0].items():
            _write(folder / f"guide-{name}.txt", output)
        _write(note, now)


def _write(path: Path, text: str) -> None:
    with replacing(path) as scratch:
        scratch.write_text(text, "utf-8")
