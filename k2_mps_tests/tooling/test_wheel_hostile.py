"""A damaged or hostile wheel causes one clear error, in bounded time and memory.

Each test damages a small wheel in one way.
"""

import json
import os
import resource
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from k2mps.build import doctor
from k2mps.core import errors
from k2mps.wheel import expectations
from k2mps.wheel.archive import WheelFile
from k2mps.wheel.index import write as write_index
from k2mps.wheel.verify import verify

from k2_mps_tests.tooling import support, test_wheel_tools
from k2_mps_tests.tooling.test_build import sandbox  # noqa: F401

NAME = "k2-1.0.dev20231114+mps.cpu.torch2.13.0-cp311-cp311-linux_x86_64.whl"
INFO = "k2-1.0.dev20231114+mps.cpu.torch2.13.0.dist-info"
MEBIBYTE = 1 << 20
HEAD = "Metadata-Version: 2.4\nName: k2\nVersion: 1.0.dev20231114+mps.cpu.torch2.13.0\n"
# These characters set a terminal's title, set a colour, and reverse the direction of text.
ESCAPES = "\x1b]0;title\x07\x1b[31m\u202e"


@pytest.fixture
def good(tmp_path) -> Path:
    """A small wheel that can be read, and whose METADATA and RECORD are right."""
    made = test_wheel_tools.case().written(tmp_path / "wheels")
    return made.rename(made.with_name(NAME))


def verified(path: Path) -> list[str]:
    """Returns the problems that `verify` finds in a wheel if the patched tree has no files."""
    return [str(each) for each in verify(WheelFile(path), expectations.Reference({}, {}, ""))]


def refused(path: Path, read: Callable[[Path], object] = WheelFile) -> str:
    """Reads a wheel, which must be refused; returns the cause that the error gives."""
    with pytest.raises(errors.CheckFailedError, match="is not a wheel of k2-mps") as failure:
        read(path)
    return failure.value.why


def of_folder(path: Path) -> Path:
    return write_index(path.parent)


def rewrite(path: Path, changes: dict[str, bytes | None]) -> None:
    """Replaces, adds or removes files of a wheel; the content None removes a file."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**files, **changes}.items():
            if content is not None:
                archive.writestr(name, content)


# ---- archives that cannot be read


def set_headers(data: bytes, local: int, central: int, kind: str, value: int) -> bytes:
    """Sets a field in the headers of each file of a zip archive; returns the changed archive.

    Args:
      local: the field's offset in the header before a file; 0 changes none of these headers.
      central: the field's offset in the headers of the archive's directory; 0 changes none.
      kind: the field's format, see the module struct.
    """
    changed = bytearray(data)
    for signature, offset in ((b"PK\3\4", local), (b"PK\1\2", central)):
        at = data.find(signature) if offset else -1
        while at >= 0:
            struct.pack_into(kind, changed, at + offset, value)
            at = data.find(signature, at + 1)
    return bytes(changed)


def damage_stream(data: bytes) -> bytes:
    at = data.index(b"k2/__init__.py") + len("k2/__init__.py")
    return data[:at] + b"\xff" * 8 + data[at + 8 :]


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", "not a zip file"),
    "text": (lambda data: b"text" * 100, "not a zip file"),
    "cut off": (lambda data: data[: len(data) // 2], "not a zip file"),
    "encrypted": (lambda data: set_headers(data, 6, 8, "<H", 1), "is encrypted"),
    "method": (lambda data: set_headers(data, 8, 10, "<H", 99), "compressed by method 99"),
    "lzma": (lambda data: set_headers(data, 8, 10, "<H", 14), "compressed by method 14"),
    "stream": (damage_stream, "cannot be read"),
    "size": (lambda data: set_headers(data, 0, 24, "<I", 1 << 20), "cannot be read"),
    "offset": (lambda data: set_headers(data, 0, 42, "<I", 0x7FFFFFFF), "cannot be read"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_archive_is_one_error(empty, good, name):
    change, text = DAMAGES[name]
    good.write_bytes(change(good.read_bytes()))
    said = empty.fails(errors.CheckFailedError.exit_code, "wheel", "index", str(good.parent))
    assert said.count("error: ") == 1 and text in said
    assert text in refused(good)


def test_too_many_files_or_bytes_are_refused(good):
    with pytest.warns(UserWarning), zipfile.ZipFile(good, "a") as archive:
        archive.writestr("k2/__init__.py", "import os\n")
    assert "it has k2/__init__.py twice" in refused(good)
    with zipfile.ZipFile(good, "w") as archive:
        for number in range(1001):
            archive.writestr(str(number), "")
    assert "it has 1001 files, more than 1000" in refused(good)
    with good.open("ab") as stream:
        stream.truncate(17 * MEBIBYTE)
    assert "it has more than 16 MiB" in refused(good)


def bomb(path: Path, mebibytes: int) -> None:
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("k2/big.py", "w") as stream:
            for _ in range(mebibytes):
                stream.write(bytes(MEBIBYTE))


def limited_index(wheel: Path, seconds: float = 20) -> str:
    """Runs `k2mps wheel index`, which must fail; returns what it writes to stderr.

    The command gets 512 MiB of memory, and must take less than `seconds` of CPU time.
    """

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (512 * MEBIBYTE, 512 * MEBIBYTE))

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    began = spent()
    words = [sys.executable, "-m", "k2mps", "wheel", "index", str(wheel.parent)]
    variables = {**os.environ, "PYTHONPATH": str(support.TOOLS)}
    result = subprocess.run(words, capture_output=True, text=True, env=variables, preexec_fn=limit)
    assert spent() - began < seconds
    assert result.returncode == errors.CheckFailedError.exit_code, result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS limits no process's memory")
def test_a_zip_bomb_is_refused_before_it_is_unpacked(good):
    bomb(good, 600)
    assert good.stat().st_size < MEBIBYTE
    assert "its files have more than 64 MiB" in limited_index(good)
    # Now the headers give a size that is smaller than the size of the unpacked file.
    good.write_bytes(set_headers(good.read_bytes(), 22, 24, "<I", 1000))
    assert "cannot be read" in limited_index(good)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS limits no process's memory")
def test_a_large_directory_of_the_archive_is_refused(good):
    """The directory has 15 MiB of entries without names; a wheel may have up to 16 MiB."""
    entry = struct.pack("<4s6H3I5H2I", b"PK\1\2", *[0] * 16)
    count = (15 * MEBIBYTE) // len(entry)
    size = count * len(entry)
    end64 = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, 0)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, size, 1)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    good.write_bytes(entry * count + end64 + locator + end)
    assert f"it has {count} files" in limited_index(good)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_regular_file_is_refused(good, kind):
    good.unlink()
    if kind == "pipe":
        os.mkfifo(good)
    elif kind == "folder":
        good.mkdir()
    else:
        good.symlink_to("/dev/zero")
    assert "cannot be read" in refused(good)


# ---- metadata


ORIGIN = test_wheel_tools.case().description.origin
NO_METADATA = [f"torch ==== {ESCAPES} nonsense;;", "torch; python_version <", "\xff", ""]
NO_METADATA += ["torch; " + "(" * 4000 + 'os_name=="x"' + ")" * 4000]
NO_METADATA += ["torch; " + " or ".join(['os_name=="x"'] * 200_000)]
NO_ORIGIN = [
    b"[[1, 2]]",
    b"null",
    b"[" * 100_000 + b"]" * 100_000,
    b'{"dirty": ' + b"1" * 5000 + b"}",
    b'{"built": 1, "upstream": "https://example.org"}',
    b'{"built": null, "upstream": {"url": [], "commit": 0}}',
    json.dumps({**ORIGIN, "built": "\ud800"}).encode(),
    json.dumps({**ORIGIN, "headers": {"\ud800": "1"}}).encode(),
    b"\xff\xfe",
    None,
    *(
        json.dumps({**ORIGIN, key: value}).encode()
        for key in ("headers", "kernels")
        for value in ([], {"a": 1}, "text")
    ),
]
NO_RECORD = [b'"' + b"a" * 200_000 + b'",,\n', b"a\0b,,\n", b"k2/__init__.py\n", b"\xff\r\r"]


@pytest.mark.parametrize(
    "name, check, content",
    [
        *(
            ("METADATA", "metadata", f"{HEAD}Requires-Dist: {line}\n".encode("latin-1", "replace"))
            for line in NO_METADATA
        ),
        *(("k2mps.json", "origin", content) for content in NO_ORIGIN),
        *(("RECORD", "record", content) for content in NO_RECORD),
    ],
)
def test_invalid_metadata_is_a_problem(good, name, check, content):
    before = verified(good)
    rewrite(good, {f"{INFO}/{name}": content})
    added = set(verified(good)).difference(before)
    assert any(each.startswith(f"[{check}]") for each in added)
    if name != "RECORD":
        assert name in refused(good, of_folder)


def test_a_wheel_without_requires_python_gets_no_page(good):
    rewrite(good, {f"{INFO}/METADATA": HEAD.encode()})
    assert "has no Requires-Python" in refused(good, of_folder)


@pytest.mark.parametrize(
    "name",
    [
        "k2-1.whl",
        "x.whl",
        "k2-é-cp311-cp311-linux_x86_64.whl",
        "-k2-1.0-cp311-cp311-any.whl",
        "k2-1.0+mps.cpu.torch2.13.0-cp311-cp311-macosx_14_0_arm64.manylinux.whl",
    ],
)
def test_an_invalid_name_of_a_wheel_is_refused(good, name):
    assert "its name: " in refused(good.rename(good.with_name(name)))


# ---- what reaches the terminal


def test_control_characters_in_a_wheel_are_not_printed(sandbox, good):  # noqa: F811
    code = errors.CheckFailedError.exit_code
    requires = f"{HEAD}Requires-Dist: torch {ESCAPES}\n".encode()
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    path = good.rename(good.with_name(NAME.replace("cp311", tag)))
    more = {f"k2/{number}.txt": b"" for number in range(100)}
    names = {f"k2/{ESCAPES}.py": b"", "../../evil.py": b"", "/etc/evil": b""}
    rewrite(path, {**names, **more, f"{INFO}/METADATA": requires})
    sandbox.use_installed_torch()
    said = sandbox.fails(code, "wheel", "verify", os.fspath(path))
    assert (
        r"[files] k2/\x1b]0;title\x07\x1b[31m\u202e.py: upstream's wheel has no such file" in said
    )
    assert "[files] ../../evil.py: upstream's wheel has no such file" in said
    # The message lists only the first problems, and counts the other problems.
    assert len(said.splitlines()) < 30 and " more\n" in said
    said += sandbox.fails(code, "wheel", "index", os.fspath(path.parent))
    name = f"k2-{ESCAPES}-cp311-cp311-linux_x86_64.whl"
    path.rename(path.with_name(name))
    said += sandbox.fails(code, "wheel", "index", os.fspath(path.parent))
    assert r"torch \x1b]0;title" in said and r"k2-\x1b]0;title" in said
    assert not set(ESCAPES) & set(said) - set("]0;title[31m")


# ---- libraries


def library(folder: Path, rpath: str) -> bytes:
    (folder / "x.c").write_text("int x(void) { return 0; }\n")
    compiler = next(iter(doctor.compilers(doctor.Device.CPU).values()), "cc")
    command = [compiler, "-shared", "-fPIC", f"-Wl,-rpath,{rpath}", "x.c", "-o", "x.so"]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / "x.so").read_bytes()


@pytest.mark.skipif(sys.platform == "darwin", reason="the test's library is in ELF format")
def test_absolute_rpaths_and_damaged_libraries_are_problems(good, tmp_path):
    """`verify` names each absolute rpath of a library, and each library that cannot be read."""
    name = "_k2.cpython-311-x86_64-linux-gnu.so"
    told = f"[rpath] {name}: looks for libraries in /somewhere"
    for rpath, found in (("$ORIGIN/k2/lib", 0), ("/somewhere", 1), ("$ORIGIN:/somewhere", 1)):
        content = library(tmp_path, rpath)
        rewrite(good, {name: content})
        assert [each for each in verified(good) if "[rpath]" in each] == [told] * found
    for cut in (4, 16, 64, len(content) // 2):
        rewrite(good, {name: content[:cut]})
        assert any(name in each for each in verified(good))
    path = content.index(b"/somewhere")
    rewrite(good, {name: content[:path] + b"\xff" + content[path + 1 :]})
    assert f"[machine] {name}: not ELF that can be read" in "\n".join(verified(good))
