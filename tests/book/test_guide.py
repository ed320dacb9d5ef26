"""The guide: its code runs, its first page is right, and its tables are complete."""

import ast
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from examples import guide
from guide_checks import z_score

from steinis_lib import Gaussian, estimate_log_z
from steinis_lib import estimate as package

OUTPUT = re.compile(
    r"\A\n\n```\{literalinclude\} (\S+)\n:language: text\n"
    r":class: code-output(?: code-table)?\n```$",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def first() -> dict[str, Any]:
    return guide.run_page("guide")[1]


# ---------------------------------------------------------------- What readers see


@pytest.mark.parametrize("page", guide.PAGES)
def test_all_python_on_a_page_is_in_blocks_that_run(page: str) -> None:
    text = guide.text_of(page)
    fences = re.findall(r"^\s*```+\s*\{?([\w-]+)\}?(.*)", text, re.MULTILINE)
    python = [kind for kind, rest in fences if "python" in kind + rest or kind == "code-cell"]
    assert len(python) == len(guide.blocks(page)) > 0
    names = [block.name for name in guide.PAGES for block in guide.blocks(name)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("page", guide.PAGES)
def test_no_line_of_code_is_cut_on_a_wide_screen(page: str) -> None:
    lines = [line for block in guide.blocks(page) for line in block.source.splitlines()]
    assert [line for line in lines if len(line) > 75] == []


@pytest.mark.parametrize("page", guide.PAGES)
def test_the_output_of_each_block_that_prints_follows_it(page: str) -> None:
    text = guide.text_of(page)
    prefix = "../" * page.count("/")
    for match in guide.BLOCK.finditer(text):
        name, elsewhere, source = match.groups()
        output = OUTPUT.match(text[match.end() :])
        calls = re.search(r"^\s*(print|report)\(", source, re.MULTILINE)
        prints = calls is not None and not elsewhere and "def report" not in source
        assert (output is not None) == prints, name
        if output:
            assert output[1] == f"{prefix}_generated/guide-{name}.txt"


def test_a_page_is_run_once_until_its_code_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def run_page(page: str) -> tuple[dict[str, str], dict[str, Any]]:
        ran.append(page)
        return {"one": f"{page} printed this\n"}, {}

    monkeypatch.setattr(guide, "run_page", run_page)
    guide.write_outputs(tmp_path)
    guide.write_outputs(tmp_path)
    assert ran == list(guide.PAGES)
    assert (tmp_path / "guide-one.txt").read_text("utf-8") == "guide/analyses printed this\n"
    monkeypatch.setattr(guide, "blocks", lambda page: [guide.Block("one", "1", False)])
    guide.write_outputs(tmp_path)
    assert ran == 2 * list(guide.PAGES)


def test_blocks_share_variables_and_a_failure_names_the_block() -> None:
    one, two = guide.Block("one", "a = 1", False), guide.Block("two", "print(a)", False)
    assert guide.run([one, two], {}) == {"one": "", "two": "1\n"}
    with pytest.raises(RuntimeError, match="code-two failed: name 'a' is not defined"):
        guide.run([two], {})


# ---------------------------------------------------------------- The first page


@pytest.mark.slow
def test_the_first_example(first: dict[str, Any]) -> None:
    found = first["found"]
    x = np.linspace(-6, 6, 4001)
    marginal = np.exp(-(x**4) / 4)
    truth = math.log(math.sqrt(math.pi) * np.trapezoid(marginal, x))
    square = np.trapezoid(marginal * x**2, x) / np.trapezoid(marginal, x)
    assert found.warnings == ()
    assert abs(z_score(found, truth)) < 4
    means, errors = first["means"].tolist(), first["errors"].tolist()
    for mean, error, exact in zip(means, errors, [0, square, square], strict=True):
        assert abs(mean - exact) < 4 * error


@pytest.mark.slow
def test_a_mode_out_of_reach_is_missed_in_silence(first: dict[str, Any]) -> None:
    assert first["truth"] == pytest.approx(math.log(2 * math.sqrt(2 * math.pi)))
    missed = estimate_log_z(first["two_peaks"], dim=1)
    assert missed.warnings == ()
    assert abs(z_score(missed, first["truth"] - math.log(2))) < 4
    assert abs(z_score(first["peaks"], first["truth"])) < 4  # the last of the loop: a wide q0


@pytest.mark.slow
def test_a_spike_beside_a_hill_is_missed_in_silence(first: dict[str, Any]) -> None:
    spiked = first["spiked"]
    assert spiked.warnings == ()
    assert abs(z_score(spiked, 0.0)) < 4  # that of the hill alone


def test_q0_of_the_guide_is_in_64_bit_floats() -> None:
    (code,) = re.findall(r"`(Gaussian\.isotropic\(.*?\))`", guide.text_of("guide"))
    q0 = eval(code, {"Gaussian": Gaussian, "torch": torch, "dim": 3})
    assert q0.mean.dtype == torch.float64
    assert q0.dim == 3


@pytest.mark.slow
def test_a_function_of_one_point_and_a_comparison(first: dict[str, Any]) -> None:
    exact = math.log(2 * math.pi) - 0.5 * math.log(1.75)
    assert abs(z_score(first["gaussian"], exact)) < 4
    y, n = first["y"].numpy(), len(first["y"])
    grid = np.linspace(1e-3, 12, 12000)
    data = -n * np.log(grid) - (y**2).sum() / (2 * grid**2) - n / 2 * math.log(2 * math.pi)
    prior = math.sqrt(2 / math.pi) * np.exp(-(grid**2) / 2)
    spread = math.log(np.trapezoid(np.exp(data) * prior, grid))
    covariance = np.eye(n) + 1.0
    _, log_det = np.linalg.slogdet(2 * math.pi * covariance)
    shifted = -0.5 * (y @ np.linalg.solve(covariance, y) + log_det)
    models = first["comparison"].models
    assert abs(z_score(models["shifted"], shifted)) < 4
    assert abs(z_score(models["spread"], spread)) < 4
    assert abs(first["factor"] - (shifted - spread)) < 4 * first["error"]


# ---------------------------------------------------------------- Doubts and errors


def causes() -> set[str]:
    """Return the causes of all doubts in the package's source."""
    found = set()
    for path in sorted(Path(package.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Doubt":
                named = {keyword.arg: keyword.value for keyword in node.keywords}
                cause = node.args[0] if node.args else named["cause"]
                found.add(ast.literal_eval(cause))  # a cause is written where the doubt is made
    return found


def rows(heading: str) -> list[str]:
    """Return the first column of the table below such a line."""
    table = guide.text_of("guide").partition(f"| {heading} |")[2].partition("\n\n")[0]
    return [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:]]


def test_the_table_has_every_cause_of_doubt_and_no_other() -> None:
    found = causes()
    assert len(found) >= 8
    assert sorted(rows("Cause")) == sorted(found)


def normal(x: torch.Tensor) -> torch.Tensor:
    return -0.5 * x.square().sum(-1)


def in_place(x: torch.Tensor) -> torch.Tensor:
    x *= 2
    return normal(x)


FAILING: dict[str, Callable[[torch.Tensor], Any]] = {
    "log_prob must map (n, d) to (n,)": lambda x: normal(x).sum(),
    "log_prob must return a tensor": lambda x: normal(x).tolist(),
    "log_prob failed for points": lambda x: normal(x) - x[:, 2],
    "log_prob changes the tensor that it is given": in_place,
    "log_prob has no gradient": lambda x: normal(x).detach(),
    "log_prob does not depend on": lambda x: normal(x[:, :1]),
    "log_prob gave other values when it was called again": lambda x: normal(x) + torch.rand(len(x)),
    "log_prob of a point depends on the other points in the call": lambda x: normal(x - x.mean(0)),
    "log_prob is … of … points that q0 drew": lambda x: normal(x) + torch.sqrt(-1 - x[:, 0] ** 2),
    "log_prob is +inf at the point": lambda x: normal(x) + torch.where(x[:, 0] > 0, torch.inf, 0),
    "log_prob rises without end": lambda x: -normal(x),
}


@pytest.mark.parametrize("row", FAILING)
def test_each_error_of_the_table_is_what_such_a_function_gives(row: str) -> None:
    pattern = re.escape(row).replace("…", "(?s:.*)")
    with pytest.raises((ValueError, FloatingPointError), match=pattern):
        estimate_log_z(FAILING[row], dim=2)


def test_the_table_has_these_errors_and_no_other() -> None:
    assert rows("Error") == list(FAILING)
