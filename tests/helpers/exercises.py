"""The exercises of the notebooks: their text, their programs, and what these print."""

import contextlib
import io
import json
import re
from functools import cache

import torch

from steinis_lib.companion.checkout import ROOT
from steinis_lib.companion.registry import SECTIONS

NOTEBOOKS = [section.notebook for section in SECTIONS.values()]
NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")


@cache
def exercises(notebook):
    """The last cell of a notebook."""
    book = json.loads((ROOT / "notebooks" / f"{notebook}.ipynb").read_text("utf-8"))
    text = "".join(book["cells"][-1]["source"])
    assert text.startswith("## Exercises\n"), f"{notebook} does not end with its exercises"
    return text


def page(section):
    (found,) = (name for name in NOTEBOOKS if name.startswith(f"{section:02d}_"))
    return exercises(found)


def says(section, *sentences):
    words = " ".join(page(section).split())
    for sentence in sentences:
        assert " ".join(sentence.split()) in words, sentence


def printed(code):
    """What a block of code prints."""
    output, dtype = io.StringIO(), torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)  # as readers have it
    try:
        with contextlib.redirect_stdout(output):
            exec(compile(code, "exercise", "exec"), {"__name__": "__main__"})
    finally:
        torch.set_default_dtype(dtype)
    return output.getvalue()


def programs(text):
    """The pairs of a program and the output that the solution shows for it."""
    return re.findall(r"```python\n(.*?)```.*?```text\n(.*?)```", text, re.S)


def numbers(output):
    """The numbers in each line of an output."""
    return [[float(n) for n in NUMBER.findall(line)] for line in output.splitlines()]


def changed(section, index, old, new):
    """The numbers that a program prints when one thing in it is changed, a list for each line."""
    code = programs(page(section))[index][0]
    assert code.count(old) == 1, f"{code.count(old)} places in the program have {old}"
    return numbers(printed(code.replace(old, new)))


def same(shown, found):
    """Whether two outputs have the same words, and numbers that differ by rounding errors only."""
    if NUMBER.sub("#", shown).split() != NUMBER.sub("#", found).split():
        return False
    for one, other in zip(NUMBER.findall(shown), NUMBER.findall(found), strict=True):
        unit = 10.0 ** -len(one.partition(".")[2])
        if abs(float(one) - float(other)) > 1.5 * unit + 0.02 * abs(float(one)):
            return False
    return True
