"""Packages that only a few functions need: imported when such a function is called."""

from __future__ import annotations

import importlib
import warnings
from types import ModuleType


def needs(package: str, purpose: str, extra: str) -> ModuleType:
    """Import a package that comes with an extra of this distribution.

    Parameters
    ----------
    package
        The module to import, such as "safetensors.torch".
    purpose
        What needs it, the subject of the error message: "Pareto-k".
    extra
        The extra that installs the package.

    Raises
    ------
    ImportError
        If the package is not installed, saying how to install it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ArviZ announces its next version on import
            return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{purpose} needs {package.partition('.')[0]}: pip install 'steinis-companion[{extra}]'"
        ) from error
