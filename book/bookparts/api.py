"""The pages of the API reference: one for each package of the library that exports names.

Sphinx fills them from docstrings. A name that several packages export is described once, with the
package that is nearest to the root; the others link to it.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

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
        text += f"Also here, and described elsewhere: {links}.\n\n"
    for name in own:
        text += f"## `{name}`\n\n" + _block(_directive(package, name))
    return text


def summary_tables() -> str:
    """Return, for each package, a table of its public names with what its docstring begins with."""
    home = homes()
    text = ""
    for package in packages():
        full_names = (f"{package.__name__}.{name}" for name in package.__all__)
        own = [full for full in full_names if home[full] == full]
        if own:
            text += f"## From `{package.__name__}`\n\n| Name | What it is |\n|---|---|\n"
        for full in own:
            name = full.rpartition(".")[2]
            what = _first_paragraph(getattr(package, name)).replace("|", r"\|")
            text += f"| {{py:obj}}`~{full}` | {what} |\n"
        text += "\n"
    return text


def write_pages(book: Path, fragments: Path) -> None:
    """Write the reference's pages into the book, and its table into the folder of fragments."""
    folder = book / FOLDER
    folder.mkdir(exist_ok=True)
    for package in packages():
        _write(folder / f"{page_name(package)}.md", page(package))
    _write(fragments / "api_table.md", summary_tables())


def _directive(package: ModuleType, name: str) -> str:
    value = getattr(package, name)
    full = f"{package.__name__}.{name}"
    if inspect.isclass(value):
        return f".. autoclass:: {full}\n   :members:\n   :inherited-members: {NO_MEMBERS_OF}"
    if callable(value):
        return f".. autofunction:: {full}"
    return f".. autodata:: {full}"


def _block(directives: str) -> str:
    return f"```{{eval-rst}}\n{directives}\n```\n\n"


def _first_paragraph(value: object) -> str:
    paragraph = (inspect.getdoc(value) or "").partition("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "`")


def _write(path: Path, text: str) -> None:
    with replacing(path) as scratch:
        scratch.write_text(text, "utf-8")


# ---------------------------------------------------------------- For Sphinx


def resolve_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.Node | None:
    """Link a name in a docstring to the public name that it means; else leave it as text.

    Docstrings name things as Python does where they stand, such as `ImportanceSample`.
    """
    if node.get("refdomain") != "py":
        return None
    name = node["reftarget"].rpartition(".")[2]
    objects = env.get_domain("py").objects  # type: ignore[attr-defined]
    same = [full for full in objects if full.rpartition(".")[2] == name]
    classes = [full for full in same if objects[full].objtype in ("class", "function", "exception")]
    found = classes or same
    if len({(objects[full].docname, objects[full].node_id) for full in found}) != 1:
        return content
    entry = objects[found[0]]
    return make_refnode(
        app.builder, node["refdoc"], entry.docname, entry.node_id, content, found[0]
    )


def as_restructured_text(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Let Sphinx read |A| as a number of leaders, and `scale`² as a name with an exponent.

    Napoleon takes what stands before a colon as a property's type; the text is taken as it is.
    """
    if what == "property":
        lines[:] = [*(inspect.getdoc(thing) or "").splitlines(), ""]
    for i, line in enumerate(lines):
        parts = re.split(r"(``.*?``)", line)
        lines[i] = "".join(part if part.startswith("``") else _escaped(part) for part in parts)


def name_defaults(
    app: Sphinx, what: str, name: str, thing: object, options: object, given: str, returned: str
) -> tuple[str, str] | None:
    """Write the default that a dataclass makes anew each time as "...", which Sphinx can read."""
    return (given.replace("<factory>", "..."), returned) if given else None


def _escaped(text: str) -> str:
    return re.sub(r"(`[^`]+`)(?=[^\s`.,;:!?()\[\]{}'\"/-])", r"\1\\ ", text.replace("|", r"\|"))
