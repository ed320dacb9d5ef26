"""The built book and a browser: where they are, a server, and a record of what goes wrong."""

import functools
import gzip
import http.server
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bookparts.address import read_address
from pdf import find_chromium

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "book" / "_build" / "html"
REQUIRED = os.environ.get("STEINIS_REQUIRE_BROWSER") == "1"
CHROMIUM = find_chromium()
PAGES = sorted(
    path.relative_to(HTML).as_posix()
    for path in HTML.rglob("*.html")
    if not path.relative_to(HTML).as_posix().startswith("_")
)

SITE = read_address().site
NOT_READ = {"genindex.html", "search.html"}
if SITE:
    NOT_READ.add("404.html")  # it loads everything from where the book is published
READ = [page for page in PAGES if page not in NOT_READ]

OVERFLOW = r"""
() => {
  const width = document.documentElement.clientWidth;
  const wide = Math.max(document.documentElement.scrollWidth, document.body.scrollWidth);
  return wide <= width + 1 ? "" : `${wide} px of content on a screen of ${width} px`;
}
"""

SETTLED = """
() => window.MathJax?.startup?.promise
  ? window.MathJax.startup.promise.then(() => true)
  : !document.querySelector(".math, .amsmath")
"""


def need_book(*, module: bool = False) -> None:
    """Skip a test, or a module, if the book is not built; fail if it is required."""
    if not PAGES and not REQUIRED:
        pytest.skip("the book is not built: run `make book`", allow_module_level=module)
    if not module:
        assert PAGES, "the book is not built: run `make book`"


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder, with text compressed as hosts do, and counts the bytes that it sends."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), functools.partial(_Handler, directory=str(folder)))
        self.sent = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.SimpleHTTPRequestHandler):
    compressed = (".html", ".css", ".js", ".svg", ".json")

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        body = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        if path.suffix in self.compressed:
            body = gzip.compress(body, 6)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.server.sent += len(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    with Server(folder) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def open_page(browser: Any, url: str, site: str, mode: str | None = None, **options: Any) -> Any:
    """Open a page in a context of its own; return it, and a list that fills with what goes wrong.

    Without a mode, the page is as a new reader sees it, who has chosen neither light nor dark.
    """
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    if mode:
        context.add_init_script(
            f"localStorage.setItem('mode', '{mode}'); localStorage.setItem('theme', '{mode}');"
        )
    problems: list[str] = []
    page = context.new_page()

    def guard(route: Any) -> None:
        if route.request.url.startswith((site + "/", "data:", "blob:")):
            route.continue_()
        else:
            problems.append(f"request outside the site: {route.request.url}")
            route.abort()

    def note_status(response: Any) -> None:
        if response.status >= 400:
            problems.append(f"status {response.status}: {response.url}")

    def note_message(message: Any) -> None:
        if message.type == "error":
            problems.append(f"console: {message.text}")

    page.route("**/*", guard)
    page.on("response", note_status)
    if options.get("java_script_enabled", True):  # without it, preloaded scripts are given up
        page.on("requestfailed", lambda request: problems.append(f"failed: {request.url}"))
    page.on("pageerror", lambda error: problems.append(f"script error: {error}"))
    page.on("console", note_message)
    page.goto(url, wait_until="load")
    return page, problems
