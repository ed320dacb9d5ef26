"""The demo's page in a real browser: its messages, its controls, and its looks."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import torch
from browsing import need_book

pytestmark = pytest.mark.slow


# What the page says about nonsense


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("line", "", "Type a mixture."),
        ("line", "foo", 'Expected a weight or N, but found "foo" at character 1.'),
        ("line", "0.3 N(-2 1)", 'a comma and a standard deviation, but found "1" at character 10.'),
        ("line", "N(0, 1) +", "Expected a weight or N, but found the end of the text."),
        ("line", "N(0, 1) N(1, 1)", 'Expected "+" or the end of the text, but found "N"'),
        ("line", "N(0, 1", 'Expected a closing bracket ")", but found the end of the text.'),
        ("line", "N(0, 0)", "must lie between 0.05 and 20, but component 1 has 0."),
        ("line", "N(0, 1) + -1 N(1, 1)", "Weights must be positive, but component 2 has"),
        ("line", "0 N(1, 1)", "Weights must be positive, but component 1 has 0."),
        ("line", "N(99, 1)", "Means must lie within ±30, but component 1 has 99."),
        ("line", "N((0, 1), 1)", "Write N(mean, s) on the line; component 1 does not fit."),
        ("plane", "N(0, 1)", "Write N((x, y), s) in the plane; component 1 does not fit."),
        ("plane", "N((0, 0), (1, 1, 1))", "component 1 does not fit."),
        ("line", " + ".join(["N(0, 1)"] * 21), "At most 20 components are allowed"),
        ("line", "<img src=x onerror=alert(1)>", 'found "<" at character 1.'),
    ],
)
def test_a_wrong_mixture_is_explained(
    open_demo: Callable[..., Any], kind: str, text: str, message: str
) -> None:
    q0 = "N((0, 0), 1)" if kind == "plane" else "N(0, 1)"
    page = open_demo("?" + urlencode({"target": kind, "mixture": text, "q0": q0}))
    assert message in page.locator("#demo-mixture-error").inner_text()
    assert page.locator("#demo-mixture").get_attribute("aria-invalid") == "true"
    assert page.get_by_role("button", name="Step").is_disabled()
    page.fill("#demo-mixture", "N((0, 0), 1)" if kind == "plane" else "N(0, 1)")
    page.press("#demo-mixture", "Enter")
    assert page.locator("#demo-mixture-error").inner_text() == ""
    assert page.get_by_role("button", name="Step").is_enabled()


@pytest.mark.parametrize(
    ("query", "name", "message"),
    [
        ("A=1", "A", "Leaders |A| must be a whole number from 2 to 300."),
        ("B=2.5", "B", "Followers |B| must be a whole number from 2 to 1000."),
        ("eps=-1", "eps", "Step ε must be a number from 0.001 to 10."),
        ("eps=", "eps", "Step ε must be a number from 0.001 to 10."),
        ("h=NaN", "h", "Bandwidth × must be a number from 0.05 to 100."),
        ("seed=1e9", "seed", "Seed must be a whole number from 0 to 999999."),
        ("target=nowhere", "target", "The target must be one of line, drawn,"),
        ("q0=N", "q0", 'Expected an opening bracket "(", but found the end of the text.'),
        ("target=drawn&drawing=!", "drawing", "A drawing in the address is 25 digits"),
        (f"target=drawn&drawing={'0' * 25}", "drawing", "The drawing is empty."),
    ],
)
def test_a_wrong_setting_is_explained(
    open_demo: Callable[..., Any], query: str, name: str, message: str
) -> None:
    page = open_demo("?" + query)
    assert message in page.locator(f"#demo-{name}-error").inner_text()
    assert page.get_by_role("button", name="Step").is_disabled()
    assert page.locator("svg:visible").count() == 0, "there is no run to show yet"
    page.get_by_role("button", name="It works").click()
    assert page.locator("svg:visible").count() == 2
    assert page.locator(".demo-error:visible").count() == 0
    assert page.get_by_role("button", name="Step").is_enabled()


def test_a_run_that_leaves_the_numbers_stops_with_a_message(open_demo: Callable[..., Any]) -> None:
    page = open_demo("?target=banana&q0=N((0,0),5)&eps=10&h=100&t=50")
    message = page.locator(".demo-stopped").inner_text()
    assert "left the range of numbers in transition" in message or "All weights are zero" in message
    assert "Lower ε" in message
    assert page.get_by_role("button", name="Step").is_disabled()
    page.get_by_role("button", name="Reset").click()
    assert page.get_by_role("button", name="Step").is_enabled()


# Controls


def readings(page: Any) -> dict[str, list[str]]:
    """Value and remark of each quantity in the table."""
    rows = page.locator(".demo-readings tbody tr").all()
    return {row.locator("th").inner_text(): row.locator("td").all_inner_texts() for row in rows}


def transition(page: Any) -> int:
    return int(page.locator(".demo-transition").inner_text().removeprefix("Transition "))


def test_everything_works_by_keyboard(open_demo: Callable[..., Any]) -> None:
    page = open_demo()
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        name = page.evaluate(
            "() => { const e = document.activeElement;"
            " return e.dataset.preset ?? e.dataset.do ?? e.name ?? e.tagName; }"
        )
        outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
        assert name == "BODY" or outline != "none", f"focus on {name} cannot be seen"
        if name in seen:
            break
        seen.append(name)
    presets = ["works", "rise", "fold", "missed", "answer", "plane", "bent", "banana"]
    fields = ["target", "mixture", "q0", "A", "B", "eps", "h", "seed"]
    assert seen[:20] == [*presets, *fields, "play", "step", "many", "reset"]
    assert "SUMMARY" in seen

    page.focus('[data-do="step"]')
    page.keyboard.press("Enter")
    page.keyboard.press("Space")
    assert transition(page) == 2
    assert "Transition 2." in page.locator("[role=status]").inner_text()
    page.focus("#demo-A")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert page.input_value("#demo-A") == "101"
    assert transition(page) == 0
    page.focus("#demo-target")
    page.keyboard.press("ArrowDown")
    assert page.input_value("#demo-target") == "drawn"
    slider = page.get_by_label("Height at x = −2", exact=True)
    slider.focus()
    before = int(slider.input_value())
    page.keyboard.press("ArrowUp")
    assert int(slider.input_value()) == before + 1
    assert "drawing=" in page.url


def test_play_pauses_and_reset_returns(open_demo: Callable[..., Any]) -> None:
    page = open_demo()
    assert transition(page) == 0, "nothing moves before the reader asks"
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("/[3-9]/.test(document.querySelector('.demo-transition').textContent)")
    page.get_by_role("button", name="Pause").click()
    reached = transition(page)
    page.wait_for_timeout(300)
    assert transition(page) == reached
    assert f"t={reached}" in page.url
    page.get_by_role("button", name="Reset").click()
    assert transition(page) == 0
    assert "t=" not in page.url


def test_the_address_gives_the_same_run_again(open_demo: Callable[..., Any]) -> None:
    page = open_demo()
    page.get_by_role("button", name="Modes in the plane").click()
    page.fill("#demo-seed", "7")
    page.press("#demo-seed", "Enter")
    page.fill("#demo-mixture", "0.5 N((-1, 0), 1) + N((1, 2), (0.5, 1))")
    page.press("#demo-mixture", "Enter")
    page.get_by_role("button", name="Step").click()
    page.get_by_role("button", name="Run 50").click()
    query = urlsplit(page.url).query
    assert parse_qs(query)["t"] == ["51"]
    again = open_demo("?" + query)
    assert transition(again) == 51
    assert readings(again) == readings(page)
    assert urlsplit(again.url).query == query
    for name in ("target", "mixture", "q0", "A", "B", "eps", "h", "seed"):
        assert again.input_value(f"#demo-{name}") == page.input_value(f"#demo-{name}")
    other = open_demo("?" + query.replace("seed=7", "seed=8"))
    assert readings(other) != readings(page)


def test_a_drawing_becomes_the_target(open_demo: Callable[..., Any]) -> None:
    page = open_demo("?target=drawn&A=20&B=30")
    board = page.locator(".demo-sliders").bounding_box()
    before = page.input_value("[aria-label='Height at x = 0']")
    page.mouse.move(board["x"] + 2, board["y"] + board["height"] - 2)
    page.mouse.down()
    page.mouse.move(board["x"] + board["width"] - 2, board["y"] + 2)
    page.mouse.up()
    heights = [int(s.input_value()) for s in page.locator(".demo-sliders input").all()]
    assert heights == sorted(heights)
    assert heights[0] <= 1
    assert heights[-1] >= 34
    assert page.input_value("[aria-label='Height at x = 0']") != before
    (drawing,) = parse_qs(urlsplit(page.url).query)["drawing"]
    assert [int(digit, 36) for digit in drawing] == heights
    expected = torch.tensor(sum(heights) / 35 * 0.5).log()
    shown = float(readings(page)["log Z"][0].replace("−", "-"))
    assert shown == pytest.approx(float(expected), abs=0.01)


def test_changing_between_line_and_plane_fills_in_a_start(open_demo: Callable[..., Any]) -> None:
    page = open_demo()
    for kind in ("plane", "banana", "bent", "drawn", "line"):
        page.select_option("#demo-target", kind)
        assert page.locator(".demo-error:visible").count() == 0
        assert transition(page) == 0


def test_less_motion(open_demo: Callable[..., Any]) -> None:
    page = open_demo(reduced_motion="reduce")
    assert page.locator('[data-do="play"]').is_hidden()
    assert page.locator(".demo-quiet").is_visible()
    page.get_by_role("button", name="Run 50").click()
    assert transition(page) == 50
    normal = open_demo()
    assert normal.locator('[data-do="play"]').is_visible()
    assert normal.locator(".demo-quiet").is_hidden()


def test_the_page_says_when_a_map_has_folded(open_demo: Callable[..., Any]) -> None:
    page = open_demo()
    page.get_by_role("button", name="A map that folds").click()
    assert readings(page)["KL(q‖p)"] == ["0.87", "exact"]
    page.get_by_role("button", name="Step").click()
    now = readings(page)
    assert now["KL(q‖p)"] == ["–", "unknown, as a map folded"]
    assert now["smallest determinant"][0].startswith("−")
    assert now["smallest determinant"][1].endswith("folds met")


# Looks


OVERFLOW = """() => document.documentElement.scrollWidth - document.documentElement.clientWidth"""
SMALLEST_TEXT = """() => Math.min(...[...document.querySelectorAll("#steinis-demo svg text")]
  .map((e) => e.getBoundingClientRect().height))"""
OUTSIDE = """() => [...document.querySelectorAll("#steinis-demo svg text")].filter((e) => {
  const box = e.getBoundingClientRect(), svg = e.ownerSVGElement.getBoundingClientRect();
  return box.left < svg.left - 1 || box.right > svg.right + 1 || box.bottom > svg.bottom + 1;
}).map((e) => e.textContent)"""
OVERLAPS = """() => [...document.querySelectorAll("#steinis-demo svg")].flatMap((svg) => {
  const boxes = [...svg.querySelectorAll("text")].map((e) => [e, e.getBoundingClientRect()]);
  return boxes.flatMap(([a, p], i) => boxes.slice(i + 1)
    .filter(([b, q]) => p.left < q.right - 2 && q.left < p.right - 2 &&
                        p.top < q.bottom - 4 && q.top < p.bottom - 4)
    .map(([b]) => a.textContent + " on " + b.textContent));
})"""


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("query", ["?t=3", "?target=bent&q0=N((0,0),2)&t=3", "?target=drawn&t=1"])
def test_it_fits_the_screen(open_demo: Callable[..., Any], query: str, width: int) -> None:
    page = open_demo(query + "&A=30&B=50", viewport={"width": width, "height": 800})
    assert page.evaluate(OVERFLOW) <= 0
    assert page.evaluate(SMALLEST_TEXT) >= 9
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(OVERLAPS) == []
    page.set_viewport_size({"width": 400, "height": 800})
    page.wait_for_timeout(100)
    assert page.evaluate(OVERFLOW) <= 0


def test_figures_are_described(open_demo: Callable[..., Any]) -> None:
    page = open_demo("?t=2")
    labels = [svg.get_attribute("aria-label") for svg in page.locator("svg[role=img]").all()]
    assert len(labels) == 2
    assert "100 leaders and 300 followers on the line" in labels[0]
    assert "after transition 2" in labels[0]
    page.locator("summary").click()
    rows = page.locator(".demo-log tbody tr")
    rows.last.wait_for()
    assert rows.count() == 3


def test_the_still_figure_stands_in_where_scripts_are_off(open_demo: Callable[..., Any]) -> None:
    assert open_demo().locator(".demo-still").is_hidden()
    assert open_demo(java_script_enabled=False).locator(".demo-still").is_visible()


# In the built book


@pytest.fixture
def built() -> str:
    need_book()
    return "book/demo.html"


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_demo_in_the_book(open_demo: Callable[..., Any], built: str, mode: str) -> None:
    page = open_demo("?t=3", path=built, mode=mode)
    assert transition(page) == 3
    assert page.locator(".demo-still").is_hidden()
    colour = "getComputedStyle(document.querySelector('#steinis-demo svg text')).fill"
    assert page.evaluate(colour) == page.evaluate("getComputedStyle(document.body).color")
    for width in (360, 768, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(100)
        assert page.evaluate(OVERFLOW) <= 0


def test_the_book_without_scripts(open_demo: Callable[..., Any], built: str) -> None:
    page = open_demo(path=built, java_script_enabled=False)
    still = page.locator(".demo-still")
    assert still.locator("svg[role=img]").is_visible()
    assert still.locator("table tbody tr").count() == 4
