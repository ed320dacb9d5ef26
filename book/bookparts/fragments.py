"""Fragments that pages include: what the stored results cost, and how to cite the companion."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from netCDF4 import Dataset

from bookparts.address import ROOT, Address
from steinis_lib.companion.conditions import memory
from steinis_lib.companion.obtain import stored_path
from steinis_lib.companion.registry import SECTIONS

# ---------------------------------------------------------------- Costs

HEADER = (
    "| Section | Experiment | Chunks | Computing time | Memory | Result on disk | Computed on |\n"
    "|---|---|---:|---:|---|---:|---|"
)


def costs() -> str:
    """Return a table with a row for each result at profile ``paper``, and one for all of them."""
    rows, total = [], (0, 0.0, 0)
    for number, section in enumerate(SECTIONS.values(), 1):
        for experiment in section.experiments:
            path = stored_path(experiment.name, experiment.parameters.of_profile("paper"))
            if path.exists():
                parts = _provenance(path)
                cost = (
                    sum(part["chunks"] for part in parts),
                    sum(part["seconds"] for part in parts),
                    path.stat().st_size,
                )
                machines = "; ".join(dict.fromkeys(part["machine"] for part in parts))
                title = f"{number}. {section.title}"
                needs = memory([experiment.name])
                rows.append(_row(title, f"`{experiment.name}`", *cost, needs, machines))
                total = (total[0] + cost[0], total[1] + cost[1], total[2] + cost[2])
    return "\n".join([HEADER, *rows, _row("**All**", "", *total, "", "")]) + "\n"


def _provenance(path: Path) -> list[dict[str, Any]]:
    """Return the parts in which a stored result was computed, without reading its arrays."""
    with Dataset(path) as file:
        parts: list[dict[str, Any]] = json.loads(file.provenance)
    return parts


def _row(
    title: str, name: str, chunks: int, seconds: float, n_bytes: int, needs: str, machines: str
) -> str:
    minutes = max(seconds / 60, 1)
    time = f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
    cells = (title, name, chunks, time, needs, f"{n_bytes / 1e6:.1f} MB", machines)
    return f"| {' | '.join(map(str, cells))} |"


# ---------------------------------------------------------------- Citing


def read_citation() -> dict[str, Any]:
    """Return what ``CITATION.cff`` says of the companion."""
    citation: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    return citation


def citations(citation: dict[str, Any], address: Address) -> str:
    """Return how to cite the companion, for BibTeX and in APA style, with its address if set."""
    authors = " and ".join(author["name"] for author in citation["authors"])
    title, version = citation["title"], citation["version"]
    year = str(citation.get("date-released", ""))[:4]
    fields = {
        "title": f"{{{title}}}",
        "author": f"{{{{{authors}}}}}",
        "version": f"{{{version}}}",
        "note": "{Computer software}",
        **({"year": f"{{{year}}}"} if year else {}),
        **({"url": f"{{{address.repository}}}"} if address.repository else {}),
    }
    entry = ",\n".join(f"  {name:<9} = {value}" for name, value in fields.items())
    apa = f"{authors}. ({year or 'n.d.'}). *{title}* (Version {version}) [Computer software]."
    link = f" <{address.repository}>" if address.repository else ""
    return f"```bibtex\n@misc{{steinis_companion,\n{entry}\n}}\n```\n\n{apa}{link}\n"
