import subprocess
import sys

import pytest
import torch

from steinis_lib import load_state, save_state
from steinis_lib.core.optional import needs
from steinis_lib.stein import SVGDState


def test_a_package_is_imported():
    assert needs("importlib.metadata", "this test", "companion").version("torch")


@pytest.mark.parametrize(
    ("package", "call", "message"),
    [
        (
            "safetensors.torch",
            lambda path: save_state(SVGDState(torch.zeros(2, 1), torch.tensor(0)), path),
            r"saving states needs safetensors: pip install 'steinis-companion\[companion\]'",
        ),
        (
            "safetensors",
            lambda path: load_state(SVGDState, path),
            r"loading states needs safetensors: pip install 'steinis-companion\[companion\]'",
        ),
    ],
)
def test_a_missing_package_is_named_with_what_installs_it(
    package, call, message, monkeypatch, tmp_path
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=message):
        call(tmp_path / "state")


@pytest.mark.slow
def test_the_library_needs_no_extra_until_it_is_used():
    code = (
        "import sys, steinis_lib; print([n for n in ('arviz', 'safetensors') if n in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
