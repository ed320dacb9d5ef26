"""What a page was computed with: its parameters, where its data come from, how to run it again."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import xarray as xr

from steinis_lib.companion import captions
from steinis_lib.companion.checkout import DATA
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.registry import SECTIONS
from steinis_lib.companion.results import attributes
from steinis_lib.companion.tables import Table

MEMORY = DATA / "memory.json"
"""What memory chunks of each experiment take; `benchmarks/memory.py` writes it."""
CAPTION = (
    "What this page was computed with. The profile paper has the paper's sizes, as far as we could "
    "afford them; its results are stored, and the page reads them. The profile quick has the same "
    "code with sizes that take seconds to minutes, for a first look."
)


class Conditions:
    """A table of what a page was computed with, and how to run it again."""

    def __init__(self, table: Table, parameters: Parameters, commands: Mapping[str, str]) -> None:
        self.table, self.parameters, self.commands = table, parameters, commands

    def _repr_html_(self) -> str:
        rows = [
            {"parameter": name, "value": _text(getattr(self.parameters, name)), "what it is": what}
            for name, info in type(self.parameters).model_fields.items()
            for what in [html.escape(info.description or "", quote=False)]
        ]
        body = Table(pd.DataFrame(rows)).markup()
        lines = "".join(f"{html.escape(command)}\n" for command in self.commands.values())
        return (
            f"{self.table._repr_html_()}"
            f"{captions.folded(body, f'Show all {len(rows)} parameters of this run')}"
            "<p>To run this page again from a checkout, by the command line or by papermill:</p>"
            f"<pre tabindex='0'>{lines}</pre>"
            "<p>Both read the stored results where there are some; without these they compute "
            "everything anew.</p>"
        )

    def __repr__(self) -> str:
        return "\n".join([repr(self.table), *self.commands.values()])


def conditions(
    name: str, number: str, parameters: Parameters, *trees: xr.DataTree, sizes: Mapping[str, Any]
) -> Conditions:
    """Return the table of what a page was computed with.

    Parameters
    ----------
    name
        The section.
    number
        The table's.
    parameters
        Those that the notebook ran with.
    *trees
        The results that the page shows, the section's own first.
    sizes
        The sizes that matter most, with what they are.
    """
    rows = {
        "profile": parameters.profile,
        **{key: _text(value) for key, value in sizes.items()},
        "seed": str(parameters.seed),
        "data": origin(trees[0]),
        "computing time": _time(trees),
        "memory": memory([e.name for e in SECTIONS[name].experiments]),
    }
    table = Table(
        pd.DataFrame({"setting": list(rows), "on this page": list(rows.values())}),
        number,
        CAPTION,
        longest=len(rows),
    )
    return Conditions(table, parameters, _commands(name, parameters))


def origin(data: xr.DataTree) -> str:
    """Return when, with what and at which commits a result was computed, for a sentence."""
    parts = attributes(data)["provenance"]
    machines, versions, commits = (
        list(dict.fromkeys(part[key] for part in parts)) for key in ("machine", "torch", "commit")
    )
    split = f" in {len(parts)} parts" if len(parts) > 1 else ""
    if len(machines) > 1:
        split += f" on {len(machines)} kinds of machine"
    first, last = parts[0]["created"][:10], parts[-1]["created"][:10]
    when = first if first == last else f"from {first} to {last}"
    at = "commit" if len(commits) == 1 else "commits"
    return (
        f"computed{split} {when} with PyTorch {' and '.join(versions)}, "
        f"at {at} {' and '.join(commits)}"
    )


def memory(experiments: Sequence[str]) -> str:
    """Return how much memory a worker takes for chunks of these experiments, in words."""
    found = json.loads(MEMORY.read_text("utf-8")) if MEMORY.is_file() else {}
    measured = [found[name] for name in experiments if name in found]
    if not measured:
        return "not measured"
    n_methods = sum(len(one["methods"]) for one in measured)
    largest = max(one["megabytes"] for one in measured)
    chunks = "a chunk of one method" if n_methods == 1 else f"chunks of {n_methods} methods"
    return f"up to {largest:,} MB for a worker, in {chunks} where it was measured"


def _time(trees: tuple[xr.DataTree, ...]) -> str:
    """How long the results took, over all chunks, and on what."""
    parts = [part for tree in trees for part in attributes(tree)["provenance"]]
    seconds = sum(part["seconds"] for part in parts)
    if seconds < 90:
        spent = f"{seconds:.0f} s"
    else:
        spent = f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
    machines = "; ".join(dict.fromkeys(part["machine"] for part in parts))
    return f"{spent} on one core, for the results that this page shows ({machines})"


def _commands(name: str, parameters: Parameters) -> dict[str, str]:
    """The commands that run the page again with the same parameters."""
    section = SECTIONS[name]
    cls = type(parameters)
    profile = cls.of_profile(parameters.profile)
    changed = {
        key: value
        for key in cls.model_fields
        if (value := getattr(parameters, key)) != getattr(profile, key)
    }
    ours = "".join(f" -p '{key}={json.dumps(value)}'" for key, value in changed.items())
    theirs = f" -y '{json.dumps(changed)}'" if changed else ""
    notebook = f"notebooks/{section.notebook}.ipynb"
    return {
        "steinis": f"steinis run {name} --profile {parameters.profile}{ours}",
        "papermill": f"papermill {notebook} out.ipynb -p profile {parameters.profile}{theirs}",
    }


def _text(value: Any) -> str:
    """A value as a table shows it."""
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return str(value)
