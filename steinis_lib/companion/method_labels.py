"""How the pages of sections 4 and 5 show methods: names, curves, and the settings chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steinis_lib.companion.settings import Setting

LABELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "is": ("IS", "olive", {"linestyle": ":"}),
    "steinis": ("SteinIS", "blue", {"marker": "o", "ms": 4}),
    "steinis-double": ("SteinIS, double", "blue", {"marker": "<", "ms": 4, "linestyle": "-."}),
    "steinis-wide": ("SteinIS, wide", "blue", {"marker": "s", "ms": 4, "linestyle": "--"}),
    "steinis-adagrad": ("SteinIS, AdaGrad", "blue", {"marker": "*", "ms": 5, "linestyle": ":"}),
    "steinis-leaders": ("SteinIS, leaders weighed", "grey", {"marker": ".", "ms": 5}),
    "hais-1l": ("HAIS-1L", "orange", {"marker": "^", "ms": 4}),
    "hais-1l-partial": ("HAIS-1L partial", "orange", {"marker": "v", "ms": 4, "linestyle": "--"}),
    "hais-10l": ("HAIS-10L", "red", {"marker": "P", "ms": 5}),
    "ais": ("AIS", "purple", {"marker": "D", "ms": 3}),
    "ais-unadjusted": ("AIS, plain weights", "purple", {"marker": "x", "linestyle": "--"}),
}
"""Method → its name on the page, the name of its colour, and matplotlib's options of its line."""


def in_words(method: str, setting: Setting) -> str:
    """Return what a setting says, such as "α 0.1, β 0.3, bandwidth × 1"."""
    return ", ".join(
        f"{symbol} {getattr(setting, name):.3g}"
        for name, symbol in _symbols(method).items()
        if getattr(setting, name) is not None
    )


def at_an_end(method: str, setting: Setting, options: Sequence[Setting]) -> str:
    """Return which numbers of a setting are the smallest or largest tried; "–" if none is.

    Numbers of which only one or two values were tried do not count.
    """
    found = []
    for name, symbol in _symbols(method).items():
        values = {getattr(option, name) for option in options}
        if len(values) > 2 and getattr(setting, name) in (min(values), max(values)):
            found.append(symbol)
    return ", ".join(found) or "–"


def _symbols(method: str) -> dict[str, str]:
    step = "ε" if method.startswith(("hais", "ais")) else "α"
    return {"alpha": step, "beta": "β", "multiplier": "bandwidth ×", "refresh": "refresh"}
