"""The demo in a real browser: its numbers against steinis_lib, its controls, and its manners."""

import functools
import http.server
import itertools
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import torch

from steinis_lib.companion.problems.warped import WarpedMixture
from steinis_lib.core.pareto import pareto_k
from steinis_lib.importance import ImportanceSample
from steinis_lib.stein.kernels import RBF, median_bandwidth
from steinis_lib.stein.ksd import ksd_squared
from steinis_lib.steinis import SteinIS
from steinis_lib.targets.base import Gaussian, LogProb
from steinis_lib.targets.mixtures import GaussianMixture

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "book" / "_build" / "html"
REQUIRED = os.environ.get("STEINIS_REQUIRE_BROWSER") == "1"
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
BANANA_LOG_Z = 1.5138

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The demo's scripts with a bare page, and the built book where there is one."""
    root = tmp_path_factory.mktemp("host")
    (root / "demo").symlink_to(ROOT / "book" / "demo", target_is_directory=True)
    (root / "page.html").symlink_to(Path(__file__).with_name("demo_page.html"))
    if HTML.is_dir():
        (root / "book").symlink_to(HTML, target_is_directory=True)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    handler = functools.partial(Handler, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One headless Chromium for all tests."""
    if CHROMIUM is None:
        (pytest.fail if REQUIRED else pytest.skip)("no Chromium on the path")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_demo(browser: Any, site: str) -> Iterator[Callable[..., Any]]:
    """Opens the demo's page; at the end, no page may have met an error or left the site."""
    problems: list[str] = []
    contexts = []

    def open_page(
        query: str = "", path: str = "page.html", mode: str = "light", **options: Any
    ) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1000, "height": 900}, **options})
        contexts.append(context)
        context.add_init_script(
            f"localStorage.setItem('mode', '{mode}'); localStorage.setItem('theme', '{mode}');"
        )
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(f"script error: {error}"))
        page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((site, "data:", "blob:"))
                else problems.append(f"request outside the site: {request.url}")
            ),
        )
        page.goto(f"{site}/{path}{query}", wait_until="load")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


# The numbers


def mixture(*parts: tuple[float, list[float], list[float]]) -> GaussianMixture:
    weights, means, scales = (torch.tensor(column) for column in zip(*parts, strict=True))
    return GaussianMixture((weights / weights.sum()).log(), means, scales)


def scaled(target: GaussianMixture, total: float) -> Any:
    """The target times a number, which the demo allows."""
    log_total = torch.tensor(total).log()
    return SimpleNamespace(
        dim=target.dim, log_prob=lambda x: target.log_prob(x) + log_total, score=target.score
    )


def banana() -> LogProb:
    return LogProb(lambda x: -(x[:, 0] ** 4) / 4 - (x[:, 1] - x[:, 0] ** 2) ** 2, 2)


def bent() -> WarpedMixture:
    scale = [0.8**0.5, 0.6**0.5]
    return WarpedMixture(
        mixture((0.35, [-2.0, 0.0], scale), (0.3, [0.0, 1.0], scale), (0.35, [2.0, 0.0], scale))
    )


TWO = mixture((0.3, [-2.0], [0.7]), (0.7, [1.5], [0.8]))
TWO_TEXT = "0.3 N(-2, 0.7) + 0.7 N(1.5, 0.8)"
PLANE = mixture((2.0, [-1.0, 0.5], [1.0, 1.0]), (0.5, [1.5, -1.0], [0.5, 2.0]))
PLANE_TEXT = "2 N((-1, .5), 1) + 5e-1 * N((1.5, −1), (0.5, 2))"
WIDE = Gaussian.isotropic(torch.tensor([0.2, 0.5]), 1.5)
CASES = {
    # name: demo's target, the same here, demo's q0, the same here, ε, multiplier, |A|, |B|, fold
    "paper's rule": ("line", TWO_TEXT, TWO, "N(0, 1)", 0.1, 1.0, 40, 80, False),
    "wide kernel": ("line", TWO_TEXT, TWO, "N(0.5, 1.5)", 0.3, 6.0, 25, 101, False),
    "few particles": ("line", f"3 {TWO_TEXT[3:]}", None, "N(0, 1)", 0.2, 2.0, 2, 20, False),
    "fold on the line": ("line", TWO_TEXT, TWO, "N(0, 1)", 1.5, 1.0, 20, 60, True),
    "plane": ("plane", PLANE_TEXT, scaled(PLANE, 2.5), "N((0.2, 0.5), 1.5)", 0.2, 1, 30, 80, False),
    "bent": ("bent", "", bent(), "N((0.2, 0.5), 1.5)", 0.3, 5.0, 41, 60, False),
    "banana": ("banana", "", banana(), "N((0.2, 0.5), 1.5)", 0.05, 8.0, 30, 60, False),
    "fold in the plane": ("bent", "", bent(), "N((0.2, 0.5), 1.5)", 3.0, 1.0, 25, 60, True),
}

RUN_IN_BROWSER = """
async ({target, text, q0, leaders, followers, epsilon, multiplier, count}) => {
  const { measure, startRun, step } = await import("./demo/steinis.js");
  const { validate, DEFAULTS } = await import("./demo/settings.js");
  const { settings, errors } = validate({ ...DEFAULTS, target, mixture: text, q0 });
  if (!settings) throw new Error(JSON.stringify(errors));
  const points = (values) => Float64Array.from(values);
  let run = startRun(settings.target, settings.q0, points(leaders), points(followers),
    { epsilon, multiplier });
  const grid = run.grid && Array.from(run.grid.points);
  const rows = [];
  for (let i = 0; i <= count; i++) {
    const found = measure(run);
    const plain = Object.fromEntries(
      Object.entries(found).map(([name, value]) =>
        [name, ArrayBuffer.isView(value) ? Array.from(value) : value]));
    rows.push({ ...plain, paretoK: String(found.paretoK), leaders: Array.from(run.leaders),
      followers: Array.from(run.followers), logQ: Array.from(run.logQ) });
    if (i < count) run = step(run);
  }
  return { rows, grid, logZ: settings.target.logZ };
}
"""


def close(found: Any, expected: Any, what: str) -> None:
    """Assert that numbers agree to 1e-6, relative to their size or to 1 if they are smaller."""
    found, expected = torch.as_tensor(found), torch.as_tensor(expected)
    found = found.reshape(expected.shape).double()
    torch.testing.assert_close(found, expected.double(), rtol=1e-6, atol=1e-9, msg=what)


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_the_library(open_demo: Callable[..., Any], name: str) -> None:
    kind, text, target, q0_text, epsilon, multiplier, m, n, folds = CASES[name]
    if target is None:  # weights 3 and 0.7
        uneven = mixture((3.0, [-2.0], [0.7]), (0.7, [1.5], [0.8]))
        target = scaled(uneven, 3.7)
    line = target.dim == 1
    q0 = Gaussian.isotropic(torch.tensor([0.5]), 1.5) if "1.5" in q0_text and line else WIDE
    if q0_text == "N(0, 1)":
        q0 = Gaussian.isotropic(torch.zeros(1))
    generator = torch.Generator().manual_seed(3)
    leaders, followers = q0.sample((m,), generator), q0.sample((n,), generator)
    values = {
        "target": kind, "text": text, "q0": q0_text, "epsilon": epsilon, "multiplier": multiplier,
        "leaders": leaders.flatten().tolist(), "followers": followers.flatten().tolist(),
        "count": 50,
    }  # fmt: skip
    answer = open_demo().evaluate(RUN_IN_BROWSER, values)

    kernel = RBF(multiplier=multiplier)
    sampler = SteinIS(target, q0, n_leaders=m, n_followers=n, kernel=kernel, step_size=epsilon)
    state = sampler.start(leaders, followers, q0.log_prob(followers))
    smallest, grid_state = torch.inf, None
    if line:
        grid = torch.tensor(answer["grid"]).unsqueeze(-1)
        weights = q0.log_prob(grid).softmax(-1)
        grid_state = sampler.start(leaders, grid, q0.log_prob(grid))
    for transition, row in enumerate(answer["rows"]):
        sample = sampler.importance_sample(state)
        assert isinstance(sample, ImportanceSample)
        at = f"{name}, transition {transition}: "
        close(row["leaders"], state.leaders, at + "leaders")
        close(row["followers"], state.followers, at + "followers")
        close(row["logQ"], state.log_q, at + "log q")
        close(row["logW"], sample.log_w, at + "log w")
        close(row["logZ"], sample.log_z, at + "log Z")
        close(row["logZError"], sample.log_z_se, at + "standard error")
        close(row["essFraction"], sample.ess / n, at + "ESS")
        expected_k = float(sample.pareto_k)
        close(float(row["paretoK"].replace("Infinity", "inf")), expected_k, at + "k")
        fitted = kernel.fit(state.leaders)
        close(row["ksdSquared"], ksd_squared(target, state.followers, fitted), at + "KSD²")
        assert row["folds"] == int(state.n_folds), at
        if grid_state is None:
            kl = answer["logZ"] - sample.log_w.mean()
            close(row["klError"], sample.log_w.std() / n**0.5, at + "error of KL")
        else:
            log_ratio = grid_state.log_q - target.log_prob(grid_state.followers)
            kl = answer["logZ"] + (weights * log_ratio).sum()
            assert row["folded"] == bool(state.n_folds + grid_state.n_folds > 0), at
        close(row["kl"], kl, at + "KL")
        if transition:
            close(row["smallestDeterminant"], smallest, at + "smallest determinant")
        step_map = sampler.step(state)[1].step_map
        _, log_det, positive = step_map.with_log_det(state.followers)
        sign = torch.where(positive, 1.0, -1.0)
        smallest = min(smallest, float((sign * log_det.exp()).min()))
        state = sampler.step(state)[0]
        grid_state = sampler.step(grid_state)[0] if grid_state is not None else None
    assert (answer["rows"][-1]["folds"] > 0) == folds, "the case does not test what it should"


def test_truth_of_each_target(open_demo: Callable[..., Any]) -> None:
    script = """
    async () => {
      const { validate, presetFields, DEFAULTS } = await import("./demo/settings.js");
      const z = (fields) => validate({ ...DEFAULTS, ...fields }).settings.target.logZ;
      const drawing = "0".repeat(12) + "z" + "0".repeat(12);
      return [
        z({}), z({ mixture: "2 N(0, 1) + N(1, 1)" }), z(presetFields("bent")),
        z(presetFields("banana")), z({ target: "drawn", drawing }),
      ];
    }
    """
    found = torch.tensor(open_demo().evaluate(script))
    expected = torch.tensor([0.0, 3.0, 0.0, 0.0, 0.5])
    expected[1], expected[3], expected[4] = torch.tensor(3.0).log(), BANANA_LOG_Z, -0.6931
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("n", "kind"), [(200, "heavy"), (20, "short"), (50, "equal"), (99, "bad")])
def test_tails(open_demo: Callable[..., Any], n: int, kind: str) -> None:
    generator = torch.Generator().manual_seed(n)
    log_w = 2 * torch.randn(n, generator=generator)
    if kind == "equal":
        log_w = torch.full((n,), 0.7)
    if kind == "bad":  # most weights underflow
        log_w = log_w * 400
    script = """async (values) => {
      const { paretoK } = await import("./demo/steinis.js");
      return String(paretoK(Float64Array.from(values)));
    }"""
    found = open_demo().evaluate(script, log_w.tolist()).replace("Infinity", "inf")
    close(float(found), float(pareto_k(log_w)), kind)


@pytest.mark.parametrize("m", [2, 3, 4, 7])
def test_bandwidth(open_demo: Callable[..., Any], m: int) -> None:
    x = torch.randn(m, 2, generator=torch.Generator().manual_seed(m))
    script = """async (values) => {
      const { bandwidth } = await import("./demo/steinis.js");
      return [bandwidth(Float64Array.from(values), 2, 3),
              bandwidth(new Float64Array(values.length), 2, 3)];
    }"""
    found = open_demo().evaluate(script, x.flatten().tolist())
    close(found, torch.stack([3 * median_bandwidth(x), torch.tensor(3.0)]), "h")


def test_random_numbers(open_demo: Callable[..., Any]) -> None:
    script = """async () => {
      const { randomGenerator } = await import("./demo/random.js");
      const draw = (seed, stream, name) => {
        const random = randomGenerator(seed, stream);
        return Array.from({ length: 4000 }, () => random[name]());
      };
      return [draw(1, 1, "normal"), draw(1, 1, "normal"), draw(1, 2, "normal"),
              draw(2, 1, "normal"), draw(5, 1, "uniform")];
    }"""
    first, again, *others, uniform = map(torch.tensor, open_demo().evaluate(script))
    assert torch.equal(first, again)
    for sample in (first, *others):
        assert abs(sample.mean()) < 0.06
        assert abs(sample.std() - 1) < 0.05
        assert abs((sample < -1).double().mean() - 0.1587) < 0.025
    for one, two in itertools.combinations((first, *others), 2):
        assert abs(torch.corrcoef(torch.stack([one, two]))[0, 1]) < 0.06
    assert 0 < uniform.min() < 0.01
    assert 0.99 < uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.02


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


# The lessons


def history(page: Any, preset: str, count: int) -> list[dict[str, float]]:
    script = """async ({preset, count}) => {
      const { presetFields, validate } = await import("./demo/settings.js");
      const { measure, startRun, step } = await import("./demo/steinis.js");
      const { randomGenerator } = await import("./demo/random.js");
      const { settings: s } = validate(presetFields(preset));
      let run = startRun(s.target, s.q0, s.q0.sample(s.A, randomGenerator(s.seed, 1)),
        s.q0.sample(s.B, randomGenerator(s.seed, 2)), { epsilon: s.eps, multiplier: s.h });
      const found = [];
      for (let i = 0; i <= count; i++) {
        const { logW, ...row } = measure(run);
        found.push({ ...row, truth: s.target.logZ });
        run = step(run);
      }
      return JSON.stringify(found.map((row) =>
        ({ ...row, paretoK: Math.max(-99, Math.min(99, row.paretoK)) })));
    }"""
    rows: list[dict[str, float]] = json.loads(
        page.evaluate(script, {"preset": preset, "count": count})
    )
    return rows


def test_presets_teach_what_they_say(open_demo: Callable[..., Any]) -> None:
    page = open_demo()

    works = history(page, "works", 50)
    assert works[50]["kl"] < 0.2 * works[0]["kl"]
    assert works[50]["essFraction"] > 2 * works[0]["essFraction"]
    assert abs(works[50]["logZ"]) < 2 * works[50]["logZError"]

    rise = history(page, "rise", 200)
    lowest = min(row["kl"] for row in rise)
    assert lowest < 0.6 * rise[0]["kl"]
    assert rise[200]["kl"] > 1.5 * lowest
    assert not rise[200]["folded"]

    fold = history(page, "fold", 50)
    assert fold[1]["smallestDeterminant"] < 0
    assert fold[50]["logZ"] - fold[50]["truth"] > 3 * fold[50]["logZError"]

    missed = history(page, "missed", 50)
    assert missed[50]["essFraction"] > 0.8
    assert missed[50]["paretoK"] < 0.5
    assert missed[50]["logZError"] < 0.05
    assert abs(missed[50]["logZ"] + 0.69) < 0.05

    answer = history(page, "answer", 50)
    assert abs(answer[0]["kl"]) < 1e-9
    assert answer[0]["logZError"] < 1e-9
    assert answer[1]["kl"] > 1e-3
    assert answer[50]["kl"] > 10 * answer[1]["kl"]

    for name in ("plane", "bent", "banana"):
        rows = history(page, name, 50)
        assert rows[50]["kl"] < 0.5 * rows[0]["kl"]
        assert not rows[50]["folded"]
        assert abs(rows[50]["logZ"] - rows[50]["truth"]) < 3 * rows[50]["logZError"]


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
    assert page.locator(".demo-log tbody tr").count() == 3


def test_the_still_figure_stands_in_where_scripts_are_off(open_demo: Callable[..., Any]) -> None:
    assert open_demo().locator(".demo-still").is_hidden()
    assert open_demo(java_script_enabled=False).locator(".demo-still").is_visible()


# In the built book


@pytest.fixture
def built() -> str:
    if not (HTML / "demo.html").is_file():
        (pytest.fail if REQUIRED else pytest.skip)("the book is not built: run `make book`")
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
