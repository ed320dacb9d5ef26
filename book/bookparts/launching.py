"""The row under a section's title: where its notebook runs, and how to download it."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from bookparts.address import BRANCH, Address


def places(address: Address, notebook: str) -> list[tuple[str, str]]:
    """Return the services that can run a notebook of the repository, with their links.

    There are none if the repository's address is not set, or is not on GitHub. Colab starts with
    nothing installed, so it needs a notebook that names the repository.
    """
    if not address.on_github:
        return []
    path = quote(f"notebooks/{notebook}.ipynb")
    hub = f"https://mybinder.org/v2/gh/{address.on_github}/{BRANCH}"
    found = [("Run on Binder", f"{hub}?urlpath={quote('lab/tree/' + path, safe='')}")]
    if address.in_notebooks:
        colab = f"https://colab.research.google.com/github/{address.on_github}/blob"
        found.append(("Run on Colab", f"{colab}/{BRANCH}/{path}"))
    return found


def row(address: Address, notebook: str, download: str) -> str:
    """Return the row's HTML; `download` is the link of the executed notebook."""
    links = [
        f'<a class="launch-link" href="{escape(url)}">{text}</a>'
        for text, url in places(address, notebook)
    ]
    links.append(
        f'<a class="launch-link" href="{escape(download)}" download>Download executed notebook</a>'
    )
    return f'<p class="launch d-print-none">{" · ".join(links)}</p>'
