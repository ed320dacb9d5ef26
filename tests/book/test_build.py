"""When an executed notebook can be used again."""

import json
import os
from pathlib import Path

import build
import pytest
from bookparts import numbered


@pytest.fixture
def executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, Path]:
    """An input, and after it an executed notebook with its note and its figures."""
    monkeypatch.setattr(numbered, "FILES", tmp_path / "figures")
    source, output, note = (tmp_path / name for name in ("in.ipynb", "05_x.ipynb", "05_x.json"))
    source.write_text("{}", "utf-8")
    output.write_text("{}", "utf-8")
    note.write_text(json.dumps({"profile": "paper"}), "utf-8")
    (tmp_path / "figures" / "05_x").mkdir(parents=True)
    os.utime(source, (1, 1))
    return source, output, note


def test_it_is_fresh_if_nothing_is_newer(executed: tuple[Path, Path, Path]) -> None:
    source, output, note = executed
    assert build.is_fresh(output, note, [source], "paper")
    assert not build.is_fresh(output, note, [source], "quick")
    os.utime(output, (1, 1))
    assert not build.is_fresh(output, note, [source], "paper")


def test_it_is_not_fresh_without_the_files_of_its_figures(
    executed: tuple[Path, Path, Path],
) -> None:
    source, output, note = executed
    (numbered.FILES / "05_x").rmdir()
    assert not build.is_fresh(output, note, [source], "paper")
