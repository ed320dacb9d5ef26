"""What decides whether two processes compute the same: our source, and PyTorch."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import torch

import steinis_lib

PACKAGE = Path(steinis_lib.__file__).parent
PRESENTATION = (
    "claims", "cli", "command", "comparison", "figures", "intervals", "labels", "notebooks", "page",
    "rounding", "stability", "statistics", "terminal", "verification",
)  # fmt: skip
"""How the names of modules end that summarise and show results, and cannot change them."""


@cache
def code_digest() -> str:
    """Return a fingerprint of the source that results depend on, and of PyTorch's version."""
    digest = hashlib.sha256(torch.__version__.encode())
    for path in sorted(PACKAGE.rglob("*.py")):
        shows = path.is_relative_to(PACKAGE / "companion") and path.stem.endswith(PRESENTATION)
        if not shows:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def versions() -> str:
    """Return a line that is the same in two processes only if they compute the same."""
    code = f"{steinis_lib.__version__} with code {code_digest()}"
    return f"steinis_lib {code}, torch {torch.__version__}"


code_digest()  # now, before the files can change under a process that runs for long
