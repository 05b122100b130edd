"""Checks a wheel: whether its files and metadata are right, and whether its libraries would load.

On Linux, a macOS wheel cannot be loaded.  Instead, the checks look up each symbol that the wheel's
libraries import, in the library that should export the symbol.  This library must be in the wheel
or in torch's wheel, or must be a library of macOS whose symbols are known.
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
from k2mps.wheel.archive import WheelFile
from k2mps.wheel.contents import record_hash
from k2mps.wheel.expectations import LIBRARY, Problem, Reference, gather
from k2mps.wheel.images import Images, rpath_problems

_INFO = {"LICENSE", "METADATA", "RECORD", "WHEEL", "top_level.txt", provenance.FILE}
# How many problems of a wheel the error lists.
_SHOWN = 20
_WRITTEN_BY_CMAKE = "k2/torch_version.py"
_VERSION_LINE = re.compile(rb"__dev_version__ = '[^'\n]*'\n\Z")
# Matches a path in a folder of a user or of a build machine.
_BUILD_PATH = rb"/(?:Users|home|root|tmp|private|var|opt|work|mnt|builds?|runner)/[\w.+/-]+"


def check(path: Path, environment: Environment, checkout: Checkout) -> None:
    """Raises CheckFailedError if a wheel has problems.

    Args:
      checkout: a checkout of k2, in whose repository the commits of the series are made.
    """
    with environment.reporter.task(f"verifying {path.name}"):
        # The wheel is read before `gather` downloads anything.
        wheel = WheelFile(path)
        problems = list(verify(wheel, gather(wheel, environment, checkout)))
    if problems:
        more = [f"and {len(problems) - _SHOWN} more"] if problems[_SHOWN:] else []
        raise errors.CheckFailedError(
            f"{path.name} has {len(problems)} problem(s)",
            why="\n".join([*map(str, problems[:_SHOWN]), *more]),
            next_command="k2mps wheel makes a new one",
        )


def verify(wheel: WheelFile, reference: Reference) -> Iterator[Problem]:
    """Yields all problems of a wheel."""
    if not wheel.info:
        yield Problem("metadata", wheel.path.name, "there is no .dist-info/WHEEL")
        return
    yield from _files(wheel, reference)
    yield from _record(wheel)
    yield from _metadata(wheel)
    yield from _origin(wheel, reference)
    yield from _paths(wheel, reference)
    if wheel.tag.platform.startswith("macosx"):
        yield from Images(wheel, reference).problems()
    else:
        yield from rpath_problems(wheel)


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
    for name, content in sorted(reference.python.items()):
        packed = files.get(name, content)
        if name == "k2/__init__.py":
            packed = _VERSION_LINE.sub(b"", packed)
        if packed != content:
            where = "this clone" if name.startswith("k2_mac") else "the patched tree"
            yield Problem("python", name, f"not as in {where}")


def _record(wheel: WheelFile) -> Iterator[Problem]:
    files, name = wheel.files, f"{wheel.info}/RECORD"
    if name not in files:  # `_files` reports that RECORD is missing.
        return
    text = files[name].decode(errors="replace")
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(text)) if row}
    for path in sorted(rows.keys() - files.keys()):
        yield Problem("record", path, "listed but not in the wheel")
    for path, content in sorted(files.items()):
        if path not in rows:
            yield Problem("record", path, "not listed")
        elif path != name and rows[path] != [record_hash(content), str(len(content))]:
            yield Problem("record", path, "another hash or size is listed")


def _metadata(wheel: WheelFile) -> Iterator[Problem]:
    metadata, wheel_file = f"{wheel.info}/METADATA", f"{wheel.info}/WHEEL"
    try:
        declared = wheel.metadata
        if (declared.name, declared.version) != ("k2", wheel.version):
            yield Problem("metadata", metadata, f"describes {declared.name} {declared.version}")
        torch = [str(entry) for entry in declared.requires_dist or [] if entry.name == "torch"]
        if torch != [f"torch=={wheel.torch}"]:
            fault = f"requires {torch or 'no torch'}; its version says {wheel.version.local}"
            yield Problem("metadata", metadata, fault)
    except errors.CheckFailedError as error:
        yield Problem("metadata", metadata, error.why)
    about = email.message_from_bytes(wheel.of_info("WHEEL"))
    if about.get_all("Tag") != [str(wheel.tag)]:
        yield Problem("tags", wheel_file, "not the tag of the file's name")
    if about["Root-Is-Purelib"] != "false":
        yield Problem("tags", wheel_file, "claims to be pure Python")
    if wheel.tag.platform.startswith("macosx") and wheel.torch:
        needed = toolchain.platform(wheel.torch)
        if wheel.tag.platform != needed:
            yield Problem("tags", wheel_file, f"torch {wheel.torch} needs {needed}")


def _origin(wheel: WheelFile, reference: Reference) -> Iterator[Problem]:
    name = f"{wheel.info}/{provenance.FILE}"
    try:
        origin = wheel.origin
    except errors.CheckFailedError as error:
        yield Problem("origin", name, error.why)
        return
    if origin["patched_tree"] != reference.origin:
        yield Problem("origin", name, f"not made of the patched tree {reference.origin[:12]}")
    if bool(origin.get("dirty")) != wheel.dirty:
        fault = f"dirty is {origin.get('dirty')}; the version is {wheel.version}"
        yield Problem("origin", name, fault)


def _paths(wheel: WheelFile, reference: Reference) -> Iterator[Problem]:
    pattern = b"|".join([*(re.escape(path.encode()) for path in reference.paths), _BUILD_PATH])
    for name, content in sorted(wheel.files.items()):
        match = re.search(pattern, content) if LIBRARY.fullmatch(name) else None
        if match:
            path = match[0][:200].decode()
            yield Problem("paths", name, f"names {path}, a path of a build machine")
