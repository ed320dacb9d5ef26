import pytest
import torch

from steinis_lib import SVGD, PathIntegration, SteinIS, SteinISState, load_state, save_state
from steinis_lib.path_integration import PathState
from steinis_lib.stein.svgd import SVGDState


@pytest.mark.parametrize(
    ("method", "kind", "sizes"),
    [
        (SteinIS, SteinISState, (9, 5)),
        (SVGD, SVGDState, (9,)),
        (PathIntegration, PathState, (9,)),
    ],
)
def test_a_saved_run_continues_bit_for_bit(skewed, wide, method, kind, sizes, generator, tmp_path):
    sampler = method(skewed)
    state = sampler.run(sampler.init(wide, *sizes, generator, (2,)), 4)
    save_state(state, tmp_path / "run.safetensors")
    restored = load_state(kind, tmp_path / "run.safetensors")
    a, b = sampler.run(state, 6), sampler.run(restored, 6)
    for name in kind.__dataclass_fields__:
        assert torch.equal(getattr(a, name), getattr(b, name))
    assert [p.name for p in tmp_path.iterdir()] == ["run.safetensors"]


def test_damaged_and_foreign_files_are_refused(skewed, wide, generator, tmp_path):
    path = tmp_path / "run.safetensors"
    save_state(SVGD(skewed).init(wide, 9, generator), path)
    with pytest.raises(ValueError, match="holds SVGDState, expected PathState"):
        load_state(PathState, path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match="not a complete state file"):
        load_state(SVGDState, path)
    with pytest.raises(FileNotFoundError):
        load_state(SVGDState, tmp_path / "absent")


def test_an_interrupted_write_leaves_the_old_file(skewed, wide, generator, tmp_path, monkeypatch):
    path = tmp_path / "run.safetensors"
    save_state(SVGD(skewed).init(wide, 9, generator), path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("steinis_lib.states.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save_state(SVGD(skewed).init(wide, 9, generator), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["run.safetensors"]
