"""The browser, and the demo in it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browsing import CHROMIUM, HTML, REQUIRED, ROOT, open_page, serving
from playwright.sync_api import sync_playwright


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One headless Chromium for all tests."""
    if CHROMIUM is None:
        (pytest.fail if REQUIRED else pytest.skip)("no Chromium on the path")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The demo's scripts with a bare page, and the built book where there is one."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "demo").symlink_to(ROOT / "book" / "extra" / "demo", target_is_directory=True)
    (folder / "page.html").symlink_to(ROOT / "tests" / "book" / "demo_page.html")
    if HTML.is_dir():
        (folder / "book").symlink_to(HTML, target_is_directory=True)
    with serving(folder) as server:
        yield server.address


@pytest.fixture
def open_demo(browser: Any, host: str) -> Iterator[Callable[..., Any]]:
    """Opens the demo's page; at the end, no page may have met an error or left the site."""
    opened = []

    def open_one(query: str = "", path: str = "page.html", **options: Any) -> Any:
        size = {"width": 1000, "height": 900}
        opened.append(
            open_page(browser, f"{host}/{path}{query}", host, **{"viewport": size, **options})
        )
        return opened[-1][0]

    yield open_one
    for page, _ in opened:
        page.context.close()
    assert [problem for _, problems in opened for problem in problems] == []
