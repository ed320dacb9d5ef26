import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from steinis_lib.companion import figures
from steinis_lib.companion.figure_axes import label_ends, mark, plain_number, settle
from steinis_lib.companion.intervals import Estimate


@pytest.fixture(autouse=True)
def style():
    """Use the project's style, and leave matplotlib as it was."""
    with mpl.rc_context():
        plt.switch_backend("agg")
        figures.use_style()
        yield
    plt.close("all")


def labels(axes):
    return {text.get_text(): text for text in axes.texts}


def end(axes, x, y):
    """A point of the data, as fractions of the axes."""
    return axes.transAxes.inverted().transform(axes.transData.transform((x, y)))


def test_labels_stand_at_the_curves_ends_in_their_colours_and_apart():
    _, axes = plt.subplots(figsize=(6, 4))
    x = np.linspace(0, 1, 5)
    ends = {"a": 0.5, "b": 0.505, "c": 0.1, "d": 0.9, "e": 0.502}
    colours = dict(zip(ends, figures.COLOURS, strict=False))
    for label, height in ends.items():
        y = height * x
        figures.band(axes, x, y, y, y, label, colours[label])
    axes.plot(x, x / 3, color="black")  # without a label
    axes.set(xlim=(0, 1), ylim=(0, 1))
    label_ends(axes)
    assert labels(axes) == {}  # not before the figure is complete
    settle(axes.figure)
    found = labels(axes)
    assert set(found) == set(ends)
    heights = {label: text.xy[1] for label, text in found.items()}
    assert sorted(heights, key=heights.get) == ["c", "a", "e", "b", "d"]  # in the curves' order
    size = mpl.rcParams["font.size"] * axes.figure.dpi / 72 / axes.get_window_extent().height
    assert np.diff(sorted(heights.values())).min() >= size
    assert heights["c"] == pytest.approx(0.1) and heights["d"] == pytest.approx(0.9)
    assert heights["e"] == pytest.approx(0.502, abs=0.01)  # those that move do so both ways
    for label, text in found.items():
        assert 1 < text.xy[0] < 1.1
        assert text.get_color() == figures.COLOURS[colours[label]]


def test_labels_stand_at_the_ends_although_a_later_panel_changes_the_shared_limits():
    figure, (left, right) = plt.subplots(1, 2, sharey=True)
    left.plot([0.0, 1.0], [2.0, 3.0], label="early")
    label_ends(left)
    right.plot([0.0, 1.0], [-90.0, 70.0], label="late")
    label_ends(right)
    settle(figure)
    figure.draw_without_rendering()
    assert labels(left)["early"].xy[1] == pytest.approx(end(left, 1.0, 3.0)[1], abs=1e-6)
    assert labels(right)["late"].xy[1] == pytest.approx(end(right, 1.0, 70.0)[1], abs=1e-6)


def test_a_curve_is_labelled_at_its_last_point_that_can_be_drawn():
    figure, axes = plt.subplots()
    axes.plot([0.0, 1.0, 2.0, 3.0], [1.0, 4.0, np.inf, np.nan], label="diverges")
    axes.plot([0.0, 3.0], [np.nan, np.nan], label="nothing")
    axes.set(xlim=(0, 4), ylim=(0, 5))
    label_ends(axes)
    settle(figure)
    (label,) = axes.texts
    assert label.xy[1] == pytest.approx(0.8)
    assert label.xy[0] == pytest.approx(0.25, abs=0.05)


def test_crowded_labels_stay_inside_the_axes():
    figure, axes = plt.subplots(figsize=(6, 4))
    for i in range(9):
        axes.plot([0, 1], [0, 0.98 + i / 1000], label=f"curve {i}")
    axes.set(ylim=(0, 1))
    label_ends(axes)
    settle(figure)
    heights = [text.xy[1] for text in axes.texts]
    assert heights == sorted(heights) and max(heights) == pytest.approx(1)
    assert np.diff(heights).min() > 0.03


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (-0.0, "0"), (0.02, "0.02"), (1, "1"), (-10, "−10"), (20000, "20,000"),
        (1e-4, "0.0001"), (1e-5, "10⁻⁵"), (3e-7, "3·10⁻⁷"), (1e6, "10⁶"), (-2e8, "−2·10⁸"),
        (999.9999999999999, "1,000"),
    ],
)  # fmt: skip
def test_numbers_of_axes_are_plain(value, text):
    assert plain_number(value) == text


def ticks(axis):
    axis.figure.draw_without_rendering()
    return [text.get_text() for text in axis.get_ticklabels() if text.get_text()]


def test_logarithmic_axes_have_plain_numbers():
    figure, axes = plt.subplots()
    axes.plot([1, 1000], [0.02, 0.4])
    axes.set(xscale="log", yscale="log")
    settle(figure)
    assert {"1", "10", "100", "1,000"} & set(ticks(axes.xaxis)) >= {"10", "100"}
    assert {"0.02", "0.05", "0.1", "0.2"} <= set(ticks(axes.yaxis))


def test_a_symmetric_logarithmic_axis_has_no_minus_zero():
    figure, axes = plt.subplots()
    axes.plot([0, 1], [-200, 3])
    axes.set_yscale("symlog", linthresh=1)
    settle(figure)
    found = ticks(axes.yaxis)
    assert "0" in found and "−100" in found
    assert not any(label in ("−0", "-0") for label in found)


def test_chosen_ticks_stay():
    figure, axes = plt.subplots()
    axes.plot([1, 8], [1, 2])
    axes.set_xscale("log")
    axes.set_xticks([2, 4], ["two", "four"])
    settle(figure)
    assert ticks(axes.xaxis) == ["two", "four"]


def test_an_estimate_is_drawn_with_its_interval():
    figure, axes = plt.subplots()
    mark(axes, Estimate(2.0, 1.0, 4.0), 3, "red", "_SteinIS", "s")
    settle(figure)
    (container,) = axes.containers
    assert container.lines[0].get_marker() == "s"
    (segment,) = container.lines[2][0].get_segments()
    np.testing.assert_allclose(segment, [[1, 3], [4, 3]])
