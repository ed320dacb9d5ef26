import matplotlib.pyplot as plt
import numpy as np
import pytest

from steinis_lib.companion import figures
from steinis_lib.companion.figure_data import data_of, plain
from steinis_lib.companion.intervals import Estimate


@pytest.fixture
def axes():
    plt.switch_backend("agg")
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


def test_a_curve_has_its_points_and_the_edges_of_its_band(axes):
    figures.band(axes, [1, 2], [5, 6], [4, 4], [7, 9], "SteinIS, wide", "blue")
    axes.plot([1, 2], [0, 1], label="_exact")
    axes.plot([3], [3])
    axes.axhline(9)  # across the panel: no data
    table = data_of(axes.figure)
    assert list(table) == ["panel", "series", "x", "y", "y_low", "y_high"]
    assert table.series.tolist() == ["SteinIS, wide"] * 2 + ["exact"] * 2 + [""]
    assert table.y.tolist() == [5, 6, 0, 1, 3]
    assert table.y_low.tolist()[:2] == [4, 4] and table.y_high.tolist()[:2] == [7, 9]
    assert np.isnan(table.y_low.tolist()[2:]).all()


def test_panels_have_the_names_of_their_titles_and_axes_their_labels(axes):
    figure = axes.figure
    axes.remove()
    left, right = figure.subplots(1, 2, sharey=True)
    left.set(title="$d$ = 10", xlabel="time $t=\\epsilon\\ell$", ylabel="KL$(q\\|p)$, nats")
    left.set_title("$d$ = 10", loc="left")
    left.plot([1], [2])
    right.plot([3], [4])
    table = data_of(figure)
    assert table.panel.tolist() == ["d = 10", "panel 2"]
    assert table.attrs["axes"] == [
        "d = 10: x is time t=εℓ; y is KL(q‖p), nats", "panel 2: x is x; y is KL(q‖p), nats",
    ]  # fmt: skip


def test_intervals_have_their_ends_along_the_axis_that_they_lie_on(axes):
    figures.mark(axes, Estimate(2.0, 1.0, 4.0), 3, "red", "_ours")
    axes.errorbar([1, 2], [5, 6], [[1, 2], [3, 4]], label="theirs", capsize=3)
    table = data_of(axes.figure)
    ours, theirs = table[table.series == "ours"], table[table.series == "theirs"]
    assert ours[["x", "y", "x_low", "x_high"]].values.tolist() == [[2, 3, 1, 4]]
    assert theirs[["y_low", "y_high"]].values.tolist() == [[4, 8], [4, 10]]
    assert table.x.dtype == table.y.dtype == float
    assert len(table) == 3  # caps and lines of intervals are not counted again


def test_bars_have_their_ends_and_heights(axes):
    axes.hist([1, 1, 3], bins=[0, 2, 4], label="_trials")
    table = data_of(axes.figure)
    assert table[["x", "x_low", "x_high", "y"]].values.tolist() == [[1, 0, 2, 2], [3, 2, 4, 1]]
    assert set(table.series) == {"trials"}


def test_dots_contours_and_pixels(axes):
    axes.scatter([1, 2], [3, 4], label="leaders")
    x = np.linspace(-1, 1, 30)
    axes.contour(x, x, np.add.outer(x**2, x**2), levels=[0.25])
    table = data_of(axes.figure)
    assert table[table.series == "leaders"][["x", "y"]].values.tolist() == [[1, 3], [2, 4]]
    circle = table[table.series == "contour 1 at 0.25"]
    assert len(circle) > 20
    np.testing.assert_allclose(np.hypot(circle.x, circle.y), 0.5, atol=0.01)
    axes.clear()
    axes.imshow([[0, 1], [1, 0], [0, 0]])
    table = data_of(axes.figure)
    assert table[["x", "y", "value"]].values.tolist() == [
        [0, 0, 0], [1, 0, 1], [0, 1, 1], [1, 1, 0], [0, 2, 0], [1, 2, 0],
    ]  # fmt: skip


def test_words_at_an_axis_stand_for_the_numbers_of_its_ticks(axes):
    axes.set_yticks([0, 1], ["easy", "hard"])
    axes.set_xticks([1, 2], ["one", "two"])  # not 0, 1, 2: these are numbers
    axes.plot([1, 2, 1], [0.2, 0.9, 5])
    table = data_of(axes.figure)
    assert table.y.tolist() == ["easy", "hard", 5]
    assert table.x.tolist() == [1, 2, 1]


def test_words_as_data_stay_words(axes):
    axes.errorbar(["25", "∞"], [0.5, 0.1], fmt="o")
    assert data_of(axes.figure).x.tolist() == ["25", "∞"]


def test_a_figure_without_data_gives_an_empty_table(axes):
    axes.axvline(1)
    assert data_of(axes.figure).empty


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("KL$(q_t\\|p)$", "KL(q_t‖p)"),
        ("$\\hat Z / Z$", "Ẑ / Z"),
        ("a\nb", "a b"),
        ("|A| = 5", "|A| = 5"),
    ],
)
def test_labels_lose_the_commands_of_formulas(label, text):
    assert plain(label) == text
