"""The files of the repository that are not in the package: data, notebooks, the book."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout that this library runs from, if it does."""

DATA = ROOT / "data"


class CheckoutNeededError(RuntimeError):
    """Something needs the repository's files, and the library was installed without them."""


def need_checkout(what: str) -> None:
    """Refuse to go on if the library does not run from a checkout of the repository.

    Parameters
    ----------
    what
        What needs the files: the beginning of the message.

    Raises
    ------
    CheckoutNeededError
        Saying how to get a checkout.
    """
    if not (DATA / "claims.yaml").is_file():
        raise CheckoutNeededError(
            f"{what} needs a checkout of the repository, with its folders data/ and notebooks/, "
            f"and {ROOT} is none. Clone the repository and run `make install` in it."
        )
