import pytest
import torch

from steinis_lib import SVGD, load_state, save_state
from steinis_lib.path_integration import PathIntegrationState
from steinis_lib.stein.svgd import SVGDState


@pytest.fixture
def state(skewed, wide, generator):
    return SVGD(skewed, wide, n_particles=9).init(generator)


def test_tensors_come_back_as_they_were_and_nothing_else_is_left(state, tmp_path):
    """Also those that share memory, as after `expand`, or are not contiguous."""
    x = torch.arange(3.0)
    odd = SVGDState(x.expand(2, 3).mT, x)
    for saved in (state, odd):
        save_state(saved, tmp_path / "run.safetensors")
        restored = load_state(SVGDState, tmp_path / "run.safetensors")
        assert torch.equal(restored.particles, saved.particles)
        assert torch.equal(restored.transition, saved.transition)
    assert [p.name for p in tmp_path.iterdir()] == ["run.safetensors"]


def test_damaged_and_foreign_files_are_refused(state, tmp_path):
    path = tmp_path / "run.safetensors"
    save_state(state, path)
    with pytest.raises(ValueError, match="holds SVGDState, expected PathIntegrationState"):
        load_state(PathIntegrationState, path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match="not a complete state file"):
        load_state(SVGDState, path)
    with pytest.raises(FileNotFoundError):
        load_state(SVGDState, tmp_path / "absent")


def test_an_interrupted_write_leaves_the_old_file(state, tmp_path, monkeypatch):
    path = tmp_path / "run.safetensors"
    save_state(state, path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("steinis_lib.core.files.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save_state(state, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["run.safetensors"]
