import importlib.util
import sys

import numpy as np
import pytest
import xarray as xr
from markdown_it import MarkdownIt

from steinis_lib.companion import rounding, stability
from steinis_lib.companion.checkout import ROOT
from steinis_lib.companion.comparison import CHAOTIC, FACTOR, compare
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner.experiment import Cell, Experiment
from steinis_lib.companion.stability import Chaotic, in_variations, judge

LIMIT = CHAOTIC / FACTOR


def result(n_trials=200, **variables):
    """A stored result: `log_z` with the standard deviation 2, a time, and what is given."""
    log_z = np.tile([3.0, 7.0], n_trials // 2)
    dataset = xr.Dataset(
        {"log_z": ("trial", log_z), "seconds": ("trial", log_z, {"units": "s"})},
        {"trial": range(n_trials)},
    )
    return dataset.assign(variables)


def cell(group, n=5):
    """A cell's result, and its first chunk."""
    return group, group.isel(trial=slice(n))


def judged(spreads, *groups):
    return judge("toy", "m", [cell(group) for group in groups or [result()]], spreads)


def curve(numbers, n_trials=200):
    """A variable with transitions, of standard deviation 1."""
    values = np.tile([-1.0, 1.0], n_trials // 2)
    return xr.DataArray(
        np.tile(values[:, None], len(numbers)), dims=("trial", "transitions"),
        coords={"transitions": numbers},
    )  # fmt: skip


def test_a_spread_is_counted_in_standard_deviations_over_trials():
    assert float(in_variations(result().log_z, 0.5)) == 0.25


def test_no_spread_is_nothing_also_where_nothing_varies():
    constant = result().log_z * 0 + 1
    assert float(in_variations(constant, 0.0)) == 0
    assert float(in_variations(constant, 1e-15)) == np.inf


def test_a_number_that_was_not_finite_once_is_chaotic():
    found = judged({"log_z": sys.float_info.max}, result() * 0.1)
    assert (found.ratio, len(found.chaotic)) == (np.inf, 1)


def test_a_method_is_stable_below_the_limit_and_chaotic_above():
    assert judged({"log_z": 1.99 * LIMIT}).chaotic == ()
    assert judged({"log_z": 2.01 * LIMIT}).chaotic == (Chaotic("log_z", "", "distribution"),)


def test_the_largest_ratio_and_the_main_numbers_spread_are_kept():
    group = result(ess=("trial", np.tile([0.0, 20.0], 100)))
    found = judged({"log_z": 4e-12, "ess": 1e-10, "seconds": 1e9}, group)
    assert found.ratio == pytest.approx(1e-11)
    assert (found.main, found.spread) == ("log_z", 4e-12)


def test_the_first_variable_that_is_no_time_stands_in_for_log_z():
    assert judged({"bound": 3e-9}, result(bound=curve([1])).drop_vars("log_z")).main == "bound"


def test_too_few_trials_are_not_compared():
    group = result(n_trials=8)
    assert judged({"log_z": 1.0}, group).chaotic == (Chaotic("log_z", "", "none"),)


def test_the_first_chaotic_number_of_transitions_is_told():
    group = result(kl=curve([50, 100, 300, 1000]))
    spread = {"50": 1e-14, "100": 1e-9, "300": 0.1, "1000": 3.0}
    found = judged({"kl": spread}, group)
    assert [c.where for c in found.chaotic] == ["from 300 transitions on"]
    assert found.ratio == 3.0


def test_cells_of_a_method_may_differ():
    """One spread for all cells: the cell that varies less is chaotic first."""
    calm = result()
    found = judged({"log_z": 10 * LIMIT}, calm, calm, calm.assign(log_z=calm.log_z * 100))
    assert [c.where for c in found.chaotic] == ["in 2 of 3 cells"]
    few = result(n_trials=8)
    assert [c.how for c in judged({"log_z": 1.0}, calm, few).chaotic] == ["none"]


def test_a_variable_may_be_in_one_cell_only():
    found = judged({"kl": {"1": 1.0, "2": 1.0}}, result(), result(kl=curve([1, 2])))
    assert [(c.variable, c.where) for c in found.chaotic] == [("kl", "from 1 transitions on")]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99, 1.01, 5.0])
def test_verification_compares_as_the_table_says(share):
    group, chunk = cell(result(kl=curve([5, 10])))
    spreads = {"log_z": share * LIMIT * 2, "kl": {"5": 0.0, "10": share * LIMIT}}
    ways = {(c.variable, c.how) for c in compare(group, chunk, spreads)}
    found = judged(spreads, group)
    assert {v for v, how in ways if how == "distribution"} == {c.variable for c in found.chaotic}
    assert bool(found.chaotic) == (share > 1)


@pytest.mark.parametrize(
    ("x", "power", "digits"),
    [
        (0.0, "0", "0"),
        (1e-12, "10⁻¹²", "1 × 10⁻¹²"),
        (2.6e-13, "10⁻¹²", "3 × 10⁻¹³"),
        (1.0, "10⁰", "1 × 10⁰"),
        (30.0, "10²", "3 × 10¹"),
        (np.inf, "∞", "∞"),
        (sys.float_info.max, "∞", "∞"),
    ],
)
def test_numbers_are_short(x, power, digits):
    assert stability._power_of_ten(x) == power
    assert stability._number(x) == digits


# ---------------------------------------------------------------------------------- the table


def cells(p):
    return [
        Cell("a-10", 200, print, trials_per_chunk=5, method="a"),
        Cell("a-20", 200, print, trials_per_chunk=5, method="a"),
        Cell("b", 200, print, trials_per_chunk=5),
        Cell("c", 200, print),
        Cell("times", 200, print),
        Cell("search", 1, print),
    ]


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """A stored result of four methods; spreads of two were measured."""
    group = result(kl=curve([50, 100]))
    tree = xr.DataTree.from_dict(
        {c.label: group for c in cells(None)}
        | {
            "times": group[["seconds"]],
            "search": xr.Dataset({"score": (("trial", "candidate"), [[1.0, 2.0]])}, {"trial": [0]}),
        }
    )
    toy = Experiment("toy", Parameters, cells)
    monkeypatch.setattr(
        stability, "EXPERIMENTS", {"toy": toy, "not-run": Experiment("not-run", Parameters, cells)}
    )
    monkeypatch.setattr(stability, "stored", {"toy": tree}.get)
    monkeypatch.setattr(rounding, "FILE", tmp_path / "rounding.json")
    rounding.FILE.touch()
    spreads = {
        "a": {"log_z": 4e-13, "kl": {"50": 1e-15, "100": 2e-14}},
        "b": {"log_z": 0.5, "kl": {"50": 1e-9, "100": 1.0}},
        "times": {},
    }
    monkeypatch.setattr(rounding, "measured", lambda: {"toy": spreads})


def test_the_table_has_a_row_for_each_method_that_was_measured(toy):
    text = stability.markdown_table()
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    cells_of_rows = [t.content for t in tokens if t.type == "inline" and t.level == 4]
    assert [cells_of_rows[i : i + 5] for i in range(5, len(cells_of_rows), 5)] == [
        ["`a`", "stable", "10⁻¹²", "`log_z` 4 × 10⁻¹³", "–"],
        [
            "`b`", "**chaotic**", "10⁰", "`log_z` 5 × 10⁻¹",
            "`log_z`: compared in distribution; `kl` from 100 transitions on: "
            "compared in distribution",
        ],
    ]  # fmt: skip
    assert text.startswith("Stable methods: 1 of 2.\n")
    assert "### `toy`" in text and "not-run" not in text


def test_the_table_names_what_was_not_measured(toy):
    assert stability.markdown_table().endswith("counts: `toy: c`.\n")


def test_the_book_is_not_built_without_what_was_measured(monkeypatch, tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("build", ROOT / "book" / "build.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    monkeypatch.setattr(rounding, "FILE", tmp_path / "rounding.json")
    monkeypatch.setattr(build, "run_notebooks", lambda profile: pytest.fail("too late"))
    monkeypatch.setattr(sys, "argv", ["build.py"])
    assert build.main() == 1
    message = capsys.readouterr().err
    assert str(tmp_path / "rounding.json") in message
    assert "python benchmarks/rounding.py" in message
