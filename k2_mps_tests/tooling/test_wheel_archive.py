"""A file that is no wheel of k2-mps, or is damaged, causes one clear error."""

import dataclasses
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from k2mps.core import errors
from k2mps.wheel.archive import WheelFile
from k2mps.wheel.index import write as write_index

from k2_mps_tests.tooling import wheel_of_k2

NAME = "k2-1.0.dev20231114+mps.cpu.torch2.13.0-cp311-cp311-linux_x86_64.whl"
INFO = "k2-1.0.dev20231114+mps.cpu.torch2.13.0.dist-info"


@pytest.fixture
def good(tmp_path) -> Path:
    """A small wheel that can be read."""
    made = wheel_of_k2.case().written(tmp_path / "wheels")
    return made.rename(made.with_name(NAME))


def refused(path: Path, read: Callable[[Path], object] = WheelFile) -> str:
    """Reads a wheel, which must be refused; returns the cause that the error gives."""
    with pytest.raises(errors.CheckFailedError, match="is not a wheel of k2-mps") as failure:
        read(path)
    return failure.value.why


def read_folder(path: Path) -> Path:
    return write_index(path.parent)


def rewrite(path: Path, changes: dict[str, bytes | None]) -> None:
    """Replaces, adds or removes files of a wheel; the content None removes a file."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**files, **changes}.items():
            if content is not None:
                archive.writestr(name, content)


def damage_stream(data: bytes) -> bytes:
    at = data.index(b"k2/__init__.py") + len("k2/__init__.py")
    return data[:at] + b"\xff" * 8 + data[at + 8 :]


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", "not a zip file"),
    "text": (lambda data: b"text" * 100, "not a zip file"),
    "cut off": (lambda data: data[: len(data) // 2], "not a zip file"),
    "stream": (damage_stream, "cannot be read"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_archive_is_one_error(empty, good, name):
    change, text = DAMAGES[name]
    good.write_bytes(change(good.read_bytes()))
    said = empty.fails(errors.CheckFailedError.exit_code, "wheel", "index", str(good.parent))
    assert said.count("error: ") == 1 and text in said
    assert text in refused(good)


@pytest.mark.parametrize("content", [b"{", b"null", b'{"built": "native"}', None])
def test_a_wheel_without_an_origin_gets_no_page(good, content):
    rewrite(good, {f"{INFO}/k2mps.json": content})
    assert "k2mps.json" in refused(good, read_folder)


@pytest.mark.parametrize(
    "name", ["k2-1.whl", "k2-1.0+mps.cpu.torch2.13.0-cp311-cp311-macosx_14_0_arm64.manylinux.whl"]
)
def test_an_invalid_name_of_a_wheel_is_refused(good, name):
    assert "its name: " in refused(good.rename(good.with_name(name)))


def test_the_torch_of_a_wheel_with_edits_is_in_its_name(good):
    dirty = good.rename(good.with_name(NAME.replace("torch2.13.0", "torch2.13.0.dirty")))
    assert WheelFile(dirty).torch == "2.13.0"


def test_a_name_without_a_version_of_torch_has_none(good):
    assert WheelFile(good.rename(good.with_name("k2-1.0-py3-none-any.whl"))).torch is None


def test_a_time_before_1980_becomes_the_first_time_of_a_zip_file(tmp_path):
    early = wheel_of_k2.case()
    early.description = dataclasses.replace(early.description, time=0)
    with zipfile.ZipFile(early.written(tmp_path)) as archive:
        assert {one.date_time for one in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
