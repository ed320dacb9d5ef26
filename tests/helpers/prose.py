"""Sentences of the notebooks that are bound to data: a test says what a page states, and why."""

import json
from functools import cache

import xarray as xr

from steinis_lib.companion import results
from steinis_lib.companion.checkout import ROOT
from steinis_lib.companion.obtain import stored_path
from steinis_lib.companion.registry import EXPERIMENTS


@cache
def _words(notebook: str) -> str:
    cells = json.loads((ROOT / "notebooks" / notebook).read_text("utf-8"))["cells"]
    texts = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return " ".join(" ".join(texts).split())


def in_page(notebook: str, sentence: str) -> bool:
    """Whether the prose of a notebook has these words; line breaks do not matter."""
    return " ".join(sentence.split()) in _words(notebook)


@cache
def result(experiment: str) -> xr.DataTree:
    """The stored result of an experiment at the paper's profile."""
    return results.load(
        stored_path(experiment, EXPERIMENTS[experiment].parameters.of_profile("paper"))
    )
