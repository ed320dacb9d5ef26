"""Make requirements.lock: pins for all packages of the environment, for every supported Python.

Each Python resolves the ranges of pyproject.toml, and is bound by the pins that there are already.
So `make lock` adds what is missing and changes nothing else: to renew a pin, delete its line
first; to renew all, delete the file. A package that only some Pythons need gets a marker.
"""

import json
import re
import subprocess
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PYTHONS = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
EXTRAS = ("arviz", "companion", "book", "dev")
ALWAYS = ["setuptools>=77", "wheel"]  # what builds this package
GPU = ("nvidia-", "cuda-", "triton")  # they depend on the computer, so PyTorch chooses them
HEADER = """\
# Every package of the environment, pinned. Made by 'make lock' from pyproject.toml
# with Python {} on Linux.
"""


def ranges() -> list[str]:
    """Return what pyproject.toml asks for, without the extras of this package itself."""
    extras = [text for extra in EXTRAS for text in PROJECT["optional-dependencies"][extra]]
    return [
        text for text in [*PROJECT["dependencies"], *extras] if not text.startswith(PROJECT["name"])
    ]


def resolve(python: str, pins: list[str]) -> list[str]:
    """Return the pins that an empty environment of this Python needs."""
    with tempfile.TemporaryDirectory() as folder:
        constraints, report = Path(folder, "constraints.txt"), Path(folder, "report.json")
        constraints.write_text("\n".join(pins), "utf-8")
        subprocess.run([f"python{python}", "-m", "venv", f"{folder}/env"], check=True)
        subprocess.run(
            [f"{folder}/env/bin/python", "-m", "pip", "install", "--quiet", "--dry-run"]
            + ["--ignore-installed", "--report", str(report), "--constraint", str(constraints)]
            + [*ALWAYS, *ranges()],
            check=True,
        )
        found = [item["metadata"] for item in json.loads(report.read_text("utf-8"))["install"]]
    # The local part of a version (+cpu) depends on the computer as well.
    pinned = [f"{item['name']}=={item['version'].partition('+')[0]}" for item in found]
    return [pin for pin in pinned if not pin.startswith(GPU)]


def main() -> None:
    """Resolve with one Python after the other, and write the lock file."""
    lines = LOCK.read_text("utf-8").splitlines() if LOCK.exists() else []
    pins = [line.partition(";")[0].strip() for line in lines if not line.startswith("#")]
    needed_by: dict[str, list[str]] = {}
    for python in PYTHONS:
        for pin in resolve(python, pins):
            needed_by.setdefault(pin, []).append(python)
        pins = list({*pins, *needed_by})
    text = HEADER.format(", ".join(PYTHONS))
    for pin in sorted(needed_by, key=lambda pin: pin.partition("==")[0].lower()):
        some = " or ".join(f'python_version == "{python}"' for python in needed_by[pin])
        text += pin + ("" if needed_by[pin] == PYTHONS else f" ; {some}") + "\n"
    LOCK.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
