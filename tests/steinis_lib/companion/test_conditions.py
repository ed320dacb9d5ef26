import json

import pytest
import xarray as xr

from steinis_lib.companion import conditions as module
from steinis_lib.companion.conditions import conditions, memory, origin
from steinis_lib.companion.registry import EXPERIMENTS

FIRST = {
    "created": "2026-03-01T10:00:00+00:00", "torch": "2.6.0", "machine": "A, 2 cores",
    "commit": "abc",
}  # fmt: skip
LAST = {"created": "2026-03-04T10:00:00+00:00"}


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ([], "computed 2026-03-01 with PyTorch 2.6.0, at commit abc"),
        ([{}], "computed in 2 parts 2026-03-01 with PyTorch 2.6.0, at commit abc"),
        (
            [{}, LAST],
            "computed in 3 parts from 2026-03-01 to 2026-03-04 with PyTorch 2.6.0, at commit abc",
        ),
        (
            [{"machine": "B, 8 cores"}, LAST | {"commit": "def-dirty", "torch": "2.7.0"}],
            "computed in 3 parts on 2 kinds of machine from 2026-03-01 to 2026-03-04 with PyTorch "
            "2.6.0 and 2.7.0, at commits abc and def-dirty",
        ),
    ],
)
def test_a_sentence_says_where_the_data_come_from(others, text):
    parts = [FIRST, *(FIRST | change for change in others)]
    assert origin(xr.DataTree(xr.Dataset(attrs={"provenance": json.dumps(parts)}))) == text


def test_memory_is_that_of_the_largest_experiment_or_was_not_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "MEMORY", tmp_path / "memory.json")
    assert memory(["a"]) == "not measured"
    table = {"a": {"megabytes": 512, "methods": ["x"]}, "b": {"megabytes": 1900, "methods": "yz"}}
    module.MEMORY.write_text(json.dumps(table), "utf-8")
    assert memory(["c"]) == "not measured"
    assert (
        memory(["a"]) == "up to 512 MB for a worker, in a chunk of one method where it was measured"
    )
    assert memory(["a", "b", "c"]).startswith("up to 1,900 MB for a worker, in chunks of 3 methods")


def tree(*parts):
    return xr.DataTree(xr.Dataset(attrs={"provenance": json.dumps(parts)}))


def shown(parameters, *seconds):
    trees = [tree(FIRST | {"seconds": s}) for s in seconds]
    return conditions("rbm", "4.2", parameters, *trees, sizes={"leaders |A|": 5, "dims": (1, 2)})


@pytest.mark.parametrize(
    ("seconds", "text"),
    [((3.2,), "3 s on one core"), ((60, 62), "2 min on one core"), ((5400, 1800), "2.0 h on one ")],
)
def test_the_table_says_what_was_used_and_how_long_it_took(seconds, text):
    parameters = EXPERIMENTS["rbm"].parameters.of_profile("paper")
    table = shown(parameters, *seconds).table.data
    rows = dict(zip(table["setting"], table["on this page"], strict=True))
    assert rows["profile"] == "paper" and rows["seed"] == "1"
    assert rows["leaders |A|"] == "5" and rows["dims"] == "1, 2"
    assert rows["computing time"].startswith(text)
    assert rows["memory"].startswith("up to ")
    assert rows["data"].startswith("computed 2026-03-01 with PyTorch 2.6.0")


def test_the_commands_repeat_what_differs_from_the_profile():
    cls = EXPERIMENTS["rbm"].parameters
    html = shown(cls.of_profile("quick"), 1)._repr_html_()
    assert "steinis run rbm --profile quick\n" in html
    assert "papermill notebooks/04_rbm.ipynb out.ipynb -p profile quick\n" in html
    given = {"n_leaders": 7, "dims": (3, 9)}
    commands = shown(cls.of_profile("quick", given), 1).commands
    assert commands["steinis"].endswith("--profile quick -p 'dims=[3, 9]' -p 'n_leaders=7'")
    assert commands["papermill"].endswith("""-y '{"dims": [3, 9], "n_leaders": 7}'""")


def test_every_parameter_is_there_to_be_unfolded():
    parameters = EXPERIMENTS["rbm"].parameters.of_profile("paper")
    html = shown(parameters, 1)._repr_html_()
    folded = html[html.index("<details>") : html.index("</details>")]
    for name, info in type(parameters).model_fields.items():
        assert f">{name}<" in folded
        assert info.description.split("‖")[0][:12] in folded
