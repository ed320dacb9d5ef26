"""The pages of the API reference: one for each package of the library that exports names.

Sphinx fills them from docstrings. A name that several packages export is described once, with the
package that is nearest to the root; the others link to it.
"""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module
from pathlib import Path
from types import ModuleType

import steinis_lib
from steinis_lib.core.files import replacing

FOLDER = "api"
NO_MEMBERS_OF = "object, tuple, Exception, ValueError, Generic, Protocol, ABC"


def packages() -> list[ModuleType]:
    """Return the library and those of its packages that say in ``__all__`` what is public."""
    below = (
        import_module(f"{steinis_lib.__name__}.{module.name}")
        for module in pkgutil.iter_modules(steinis_lib.__path__)
        if module.ispkg
    )
    return [steinis_lib, *(package for package in below if hasattr(package, "__all__"))]


def homes() -> dict[str, str]:
    """Return, for each public name with its package, the full name under which it is described."""
    found: dict[str, str] = {}
    described: dict[int, str] = {}
    for package in packages():
        for name in package.__all__:
            full = f"{package.__name__}.{name}"
            found[full] = described.setdefault(id(getattr(package, name)), full)
    return found


def page_name(package: ModuleType) -> str:
    """Return the file name of a package's page, without its suffix."""
    return package.__name__.rpartition(".")[2]


def pages() -> list[str]:
    """Return the pages of the reference as the book's table of contents names them."""
    return [f"{FOLDER}/{page_name(package)}" for package in packages()]


def page(package: ModuleType) -> str:
    """Return the Markdown of a package's page."""
    home = homes()
    own: list[str] = []
    elsewhere: list[str] = []
    for name in package.__all__:
        full = f"{package.__name__}.{name}"
        (own if home[full] == full else elsewhere).append(name)
    text = f"# `{package.__name__}`\n\n"
    text += _block(
        f".. automodule:: {package.__name__}\n   :no-members:\n   :no-undoc-members:\n"
        "   :no-inherited-members:\n   :no-index:"
    )
    if elsewhere:
        links = ", ".join(f"{{py:obj}}`~{home[f'{package.__name__}.{n}']}`" for n in elsewhere)
        text += f"Also here, and described with `steinis_lib`: {links}.\n\n"
    for name in own:
        text += f"## `{name}`\n\n" + _block(_directive(package, name))
    return text


def summary_table() -> str:
    """Return a table of all public names with the first sentence that describes each."""
    rows = ["| Name | What it is |", "|---|---|"]
    home = homes()
    for package in packages():
        for name in package.__all__:
            full = f"{package.__name__}.{name}"
            if home[full] == full:
                text = _first_sentence(getattr(package, name)).replace("|", r"\|")
                rows.append(f"| {{py:obj}}`{full}` | {text} |")
    return "\n".join(rows) + "\n"


def write_pages(book: Path, fragments: Path) -> None:
    """Write the reference's pages into the book, and its table into the folder of fragments."""
    folder = book / FOLDER
    folder.mkdir(exist_ok=True)
    for package in packages():
        _write(folder / f"{page_name(package)}.md", page(package))
    _write(fragments / "api_table.md", summary_table())


def _directive(package: ModuleType, name: str) -> str:
    value = getattr(package, name)
    full = f"{package.__name__}.{name}"
    if inspect.isclass(value):
        options = ["members", f"inherited-members: {NO_MEMBERS_OF}"]
        return "\n".join([f".. autoclass:: {full}", *(f"   :{_option(o)}" for o in options)])
    if callable(value):
        return f".. autofunction:: {full}"
    return f".. autodata:: {full}"


def _option(text: str) -> str:
    name, colon, value = text.partition(":")
    return f"{name}:{value}" if colon else f"{name}:"


def _block(directives: str) -> str:
    return f"```{{eval-rst}}\n{directives}\n```\n\n"


def _first_sentence(value: object) -> str:
    paragraph = (inspect.getdoc(value) or "").partition("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "`")


def _write(path: Path, text: str) -> None:
    with replacing(path) as scratch:
        scratch.write_text(text, "utf-8")
