"""The checks of a wheel: is it what it says, and would it load?

Without a Mac, these checks replace loading a macOS wheel: they look up every symbol that the wheel
binds in the library that it names.  torch's wheel has the library, or macOS is known to export
the symbol.
"""

import csv
import email
import io
import re
from collections.abc import Iterator
from pathlib import Path

from k2mps.build import provenance, toolchain
from k2mps.build.environment import Environment
from k2mps.core import errors
from k2mps.stack.checkout import Checkout
from k2mps.wheel.archive import WheelFile, shown
from k2mps.wheel.contents import record_hash
from k2mps.wheel.expectations import LIBRARY, Problem, Reference, gather, parsed
from k2mps.wheel.images import Images

_INFO = {"LICENSE", "METADATA", "RECORD", "WHEEL", "top_level.txt", provenance.FILE}
# How many problems of one wheel are listed.
_SHOWN = 20
_WRITTEN_BY_CMAKE = "k2/torch_version.py"
_VERSION_LINE = re.compile(rb"__dev_version__ = '[^'\n]*'\n\Z")
# Folders of people and build machines.
_BUILD_PATH = re.compile(
    rb"/(?:Users|home|root|tmp|private|var|opt|work|mnt|builds?|runner)"
    rb"/[\w.+/-]+"
)


def check(
    wheel: Path, environment: Environment, checkout: Checkout, python: str | None = None
) -> None:
    """Refuses a wheel with problems.

    Args:
      checkout: a k2 with the series applied.
      python: the wheel's Python, by name or path; default .venv's.
    """
    reporter = environment.reporter
    with reporter.task(f"verifying {shown(wheel.name)}"):
        reference = gather(wheel, environment, checkout, python)
        problems = list(verify(wheel, reference))
    if problems:
        more = [f"and {len(problems) - _SHOWN} more"] if problems[_SHOWN:] else []
        raise errors.CheckFailedError(
            f"{shown(wheel.name)} has {len(problems)} problem(s)",
            why="\n".join([*map(str, problems[:_SHOWN]), *more]),
            next_command="k2mps wheel makes a new one",
        )
    if reference.kernels:
        how = "accepted by the emulator's front end for Metal"
        if reference.unchecked:
            how = f"not checked as Metal, since {reference.unchecked}"
        reporter.info(f"{len(reference.kernels)} kernel source(s): {how}")


def verify(path: Path, reference: Reference) -> Iterator[Problem]:
    """All that is wrong with a wheel."""
    try:
        wheel = WheelFile(path)
    except errors.CheckFailedError as error:
        yield Problem("file", "", error.why)
        return
    if not wheel.info:
        yield Problem("metadata", "", "there is no .dist-info/WHEEL")
        return
    yield from _files(wheel, reference)
    yield from _record(wheel)
    yield from _metadata(wheel)
    yield from _origin(wheel, reference)
    yield from _python(wheel.files, reference)
    yield from _paths(wheel.files, reference)
    yield from _elf_rpaths(wheel.files)
    if "macosx" in path.name:
        yield from Images(wheel, reference).problems()


def _files(wheel: WheelFile, reference: Reference) -> Iterator[Problem]:
    files, info = wheel.files, wheel.info
    ours = {*reference.python, _WRITTEN_BY_CMAKE}
    allowed = ours | {f"{info}/{name}" for name in _INFO}
    for name in files:
        if name not in allowed and not LIBRARY.fullmatch(name):
            yield Problem("files", name, "upstream's wheel has no such file")
    for name in sorted((ours | {f"{info}/METADATA", f"{info}/RECORD"}) - files.keys()):
        yield Problem("files", name, "missing")
    if not any(name.startswith("_k2.") for name in files):
        yield Problem("files", "_k2", "missing")


def _record(wheel: WheelFile) -> Iterator[Problem]:
    files, name = wheel.files, f"{wheel.info}/RECORD"
    text = files.get(name, b"").decode(errors="replace")
    try:
        rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(text)) if row}
    except csv.Error as error:
        yield Problem("record", name, f"cannot be read: {error}")
        return
    for path in sorted(rows.keys() - files.keys()):
        yield Problem("record", path, "listed but not in the wheel")
    for path, content in sorted(files.items()):
        if path not in rows:
            yield Problem("record", path, "not listed")
        elif path != name and rows[path] != [record_hash(content), str(len(content))]:
            yield Problem("record", path, "another hash or size is listed")


def _metadata(wheel: WheelFile) -> Iterator[Problem]:
    metadata, wheel_file = f"{wheel.info}/METADATA", f"{wheel.info}/WHEEL"
    facts = email.message_from_bytes(wheel.files.get(metadata, b""))
    version, tags, version_of_torch, _ = parsed(wheel.path)
    if facts["Name"] != "k2" or facts["Version"] != str(version):
        yield Problem("metadata", metadata, f"describes {facts['Name']!s} {facts['Version']!s}")
    try:
        torch = [str(entry) for entry in wheel.requirements if entry.name == "torch"]
        if torch != [f"torch=={version_of_torch}"]:
            told = f"requires {torch or 'no torch'}; its version says {version.local}"
            yield Problem("metadata", metadata, told)
    except errors.CheckFailedError as error:
        yield Problem("metadata", metadata, error.why)
    about = email.message_from_bytes(wheel.files[wheel_file])
    if set(about.get_all("Tag", [])) != {str(tag) for tag in tags}:
        yield Problem("tags", wheel_file, "not the tags of the file's name")
    for tag in tags:
        if tag.platform.startswith("macosx") and version_of_torch:
            needed = toolchain.platform(version_of_torch)
            if tag.platform != needed:
                yield Problem("tags", wheel_file, f"torch {version_of_torch} needs {needed}")
    if about["Root-Is-Purelib"] != "false":
        yield Problem("tags", wheel_file, "claims to be pure Python")


def _origin(wheel: WheelFile, reference: Reference) -> Iterator[Problem]:
    name = f"{wheel.info}/{provenance.FILE}"
    try:
        origin = wheel.origin
    except errors.CheckFailedError as error:
        yield Problem("origin", name, error.why)
        return
    if origin.get("patched_tree") != reference.origin:
        yield Problem("origin", name, f"not made of the patched tree {reference.origin[:12]}")
    version, _, _, dirty = parsed(wheel.path)
    if bool(origin.get("dirty")) != dirty:
        yield Problem("origin", name, f"dirty is {origin.get('dirty')}; the version is {version}")


def _python(files, reference: Reference) -> Iterator[Problem]:
    for name, content in sorted(reference.python.items()):
        found = files.get(name, content)
        if name == "k2/__init__.py":
            found = _VERSION_LINE.sub(b"", found)
        if found != content:
            yield Problem("python", name, "not as in the patched tree")


def _paths(files, reference: Reference) -> Iterator[Problem]:
    for name, content in sorted(files.items()):
        if not LIBRARY.fullmatch(name):
            continue
        for path in reference.build_paths:
            if path.encode() in content:
                yield Problem("paths", name, f"names {path} of the build machine")
        if found := _BUILD_PATH.search(content):
            path = found[0][:200].decode()
            yield Problem("paths", name, f"names {path}, a path of a build machine")


def _elf_rpaths(files) -> Iterator[Problem]:
    """The folders in which a Linux wheel's libraries look for others."""
    import lief

    lief.logging.disable()
    for name, content in sorted(files.items()):
        if not content.startswith(b"\x7fELF"):
            continue
        binary = lief.ELF.parse(io.BytesIO(content))
        tags = (lief.ELF.DynamicEntry.TAG.RPATH, lief.ELF.DynamicEntry.TAG.RUNPATH)
        if binary is None:
            yield Problem("machine", name, "not ELF that can be read")
            continue
        try:
            for entry in binary.dynamic_entries:
                for path in entry.paths if entry.tag in tags else ():
                    if not path.startswith("$ORIGIN"):
                        yield Problem("rpath", name, f"looks for libraries in {path}")
        except UnicodeDecodeError as error:
            yield Problem("machine", name, f"a name in it cannot be read: {error}")
