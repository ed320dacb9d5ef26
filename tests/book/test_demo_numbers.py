"""The demo's numbers in a real browser, against `steinis_lib`; and what its examples teach."""

import itertools
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

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

BANANA_LOG_Z = 1.5138

pytestmark = pytest.mark.slow


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
UNEVEN = mixture((3.0, [-2.0], [0.7]), (0.7, [1.5], [0.8]))
STANDARD = ("N(0, 1)", Gaussian.isotropic(torch.zeros(1)))
ASIDE = ("N(0.5, 1.5)", Gaussian.isotropic(torch.tensor([0.5]), 1.5))
WIDE = ("N((0.2, 0.5), 1.5)", Gaussian.isotropic(torch.tensor([0.2, 0.5]), 1.5))
CASES = {
    # name: demo's target, the same here, q0 in both, ε, multiplier, |A|, |B|, whether maps fold
    "paper's rule": ("line", TWO_TEXT, TWO, STANDARD, 0.1, 1.0, 40, 80, False),
    "wide kernel": ("line", TWO_TEXT, TWO, ASIDE, 0.3, 6.0, 25, 101, False),
    "few particles": (
        *("line", "3 N(-2, 0.7) + 0.7 N(1.5, 0.8)", scaled(UNEVEN, 3.7)),
        *(STANDARD, 0.2, 2.0, 2, 20, False),
    ),
    "fold on the line": ("line", TWO_TEXT, TWO, STANDARD, 1.5, 1.0, 20, 60, True),
    "plane": ("plane", PLANE_TEXT, scaled(PLANE, 2.5), WIDE, 0.2, 1, 30, 80, False),
    "bent": ("bent", "", bent(), WIDE, 0.3, 5.0, 41, 60, False),
    "banana": ("banana", "", banana(), WIDE, 0.05, 8.0, 30, 60, False),
    "fold in the plane": ("bent", "", bent(), WIDE, 3.0, 1.0, 25, 60, True),
}

RUN_IN_BROWSER = """
async ({target, text, q0, leaders, followers, epsilon, multiplier, count}) => {
  const { measure } = await import("./demo/measure.js");
  const { startRun, step } = await import("./demo/steinis.js");
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
    """Assert that numbers agree to a millionth of their size, or to 1e-9."""
    found, expected = torch.as_tensor(found), torch.as_tensor(expected)
    found = found.reshape(expected.shape).double()
    torch.testing.assert_close(found, expected.double(), rtol=1e-6, atol=1e-9, msg=what)


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_the_library(open_demo: Callable[..., Any], name: str) -> None:
    kind, text, target, (q0_text, q0), epsilon, multiplier, m, n, folds = CASES[name]
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
    if target.dim == 1:
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
      const { paretoK } = await import("./demo/measure.js");
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


# The lessons


def history(page: Any, preset: str, count: int) -> list[dict[str, float]]:
    script = """async ({preset, count}) => {
      const { presetFields, validate } = await import("./demo/settings.js");
      const { measure } = await import("./demo/measure.js");
      const { startRun, step } = await import("./demo/steinis.js");
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
