import xml.etree.ElementTree as ET

import matplotlib.pyplot as plt
import pandas as pd
import pypdf
import pytest

from steinis_lib.companion import figure_files


@pytest.fixture
def figure():
    plt.switch_backend("agg")
    figure, axes = plt.subplots()
    axes.plot([1, 2], [0.123456789, 3], label="a, b")
    axes.set(xlabel="time", title="left")
    yield figure
    plt.close(figure)


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv(figure_files.VARIABLE, str(tmp_path / "files"))
    return tmp_path / "files"


def test_there_is_a_file_of_each_kind_and_each_can_be_read(figure, folder):
    assert figure_files.write(figure, "figure-1-1", "Figure 1.1. What\nit shows.") == folder
    assert sorted(p.name for p in folder.iterdir()) == [
        "figure-1-1.csv", "figure-1-1.pdf", "figure-1-1.svg",
    ]  # fmt: skip
    lines = (folder / "figure-1-1.csv").read_text("utf-8").splitlines()
    assert lines[0] == "# Figure 1.1. What it shows."
    assert lines[1].startswith("# ") and "x is time" in lines[1]
    data = pd.read_csv(folder / "figure-1-1.csv", comment="#")
    assert data.series.tolist() == ["a, b"] * 2 and data.y.tolist() == [0.123457, 3]
    assert ET.parse(folder / "figure-1-1.svg").getroot().tag.endswith("svg")
    assert len(pypdf.PdfReader(folder / "figure-1-1.pdf").pages) == 1


def test_the_same_figure_gives_the_same_files(figure, folder):
    def written():
        figure_files.write(figure, "figure-1-1", "Figure 1.1.")
        return [path.read_bytes() for path in sorted(folder.iterdir())]

    assert written() == written()
    assert not any(b"CreationDate" in content for content in written())


def test_data_that_are_given_take_the_place_of_what_is_read_off(figure, folder):
    given = pd.DataFrame({"reading": [1], "value": [2.5]})
    figure_files.write(figure, "figure-1-2", "Figure 1.2.", given)
    text = (folder / "figure-1-2.csv").read_text("utf-8")
    assert text == "# Figure 1.2.\nreading,value\n1,2.5\n"


def test_nothing_is_written_where_no_folder_is_named(figure, monkeypatch, tmp_path):
    monkeypatch.delenv(figure_files.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    assert figure_files.write(figure, "figure-1-1", "Figure 1.1.") is None
    assert list(tmp_path.iterdir()) == []
