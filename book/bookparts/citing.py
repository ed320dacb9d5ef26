"""How to cite the paper and this companion, from ``CITATION.cff`` and the repository's address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from bookparts.address import ROOT, Address

PAPER_BIBTEX = """\
@inproceedings{han2017stein,
  title     = {Stein Variational Adaptive Importance Sampling},
  author    = {Han, Jun and Liu, Qiang},
  booktitle = {Proceedings of the 33rd Conference on Uncertainty in Artificial Intelligence},
  year      = {2017},
  eprint    = {1704.05201},
  archiveprefix = {arXiv}
}"""

PAPER_APA = (
    "Han, J., & Liu, Q. (2017). Stein variational adaptive importance sampling. "
    "*Proceedings of the Thirty-Third Conference on Uncertainty in Artificial Intelligence*. "
    "<https://arxiv.org/abs/1704.05201>"
)


def read_citation(path: Path = ROOT / "CITATION.cff") -> dict[str, Any]:
    """Return what ``CITATION.cff`` says of the companion."""
    citation: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return citation


def companion_bibtex(citation: dict[str, Any], address: Address) -> str:
    """Return the companion's entry for a BibTeX file, with its address if there is one."""
    fields = {
        "title": f"{{{citation['title']}}}",
        "author": f"{{{{{_authors(citation)}}}}}",
        "version": f"{{{citation['version']}}}",
        "note": "{Computer software}",
    }
    if released := str(citation.get("date-released", "")):
        fields["year"] = f"{{{released[:4]}}}"
    if address.repository:
        fields["url"] = f"{{{address.repository}}}"
    lines = [f"  {name:<9} = {value}" for name, value in fields.items()]
    return "@misc{steinis_companion,\n" + ",\n".join(lines) + "\n}"


def companion_apa(citation: dict[str, Any], address: Address) -> str:
    """Return the companion's reference in APA style, with its address if there is one."""
    year = str(citation.get("date-released", ""))[:4] or "n.d."
    text = f"{_authors(citation)}. ({year}). *{citation['title']}* "
    text += f"(Version {citation['version']}) [Computer software]."
    return text + (f" <{address.repository}>" if address.repository else "")


def fragment(citation: dict[str, Any], address: Address) -> str:
    """Return the Markdown that the page on citing includes."""
    parts = ["## The paper", f"```bibtex\n{PAPER_BIBTEX}\n```", PAPER_APA, "## This companion"]
    bibtex = companion_bibtex(citation, address)
    parts += [f"```bibtex\n{bibtex}\n```", companion_apa(citation, address)]
    return "\n\n".join(parts) + "\n"


def _authors(citation: dict[str, Any]) -> str:
    return " and ".join(
        author.get("name") or f"{author['given-names']} {author['family-names']}"
        for author in citation["authors"]
    )
