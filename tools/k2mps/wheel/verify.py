"""Taking a wheel apart: is it what it says, and would it load?

For a macOS wheel this takes the place of loading it where there is no Mac:
every symbol that it binds is looked up in the library that it names, as that
library is in torch's own wheel, or is known of macOS 14.  What only running
can show remains unknown.
"""

from __future__ import annotations

import csv
import email
import io
import json
import posixpath
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from k2mps.build import provenance
from k2mps.core import errors
from k2mps.core.pins import Upstream
from k2mps.core.progress import Reporter
from k2mps.core.project import Project
from k2mps.stack.checkout import Checkout
from k2mps.wheel.contents import record_hash
from k2mps.wheel.expectations import LIBRARY, LOCAL, Problem, Reference, gather, parsed
from k2mps.wheel.images import Images

_INFO = {"LICENSE", "METADATA", "RECORD", "WHEEL", "top_level.txt", provenance.FILE}
_WRITTEN_BY_CMAKE = "k2/torch_version.py"
_VERSION_LINE = re.compile(rb"__dev_version__ = '[^'\n]*'\n\Z")
# Where people and build machines keep their files.
_BUILD_PATH = re.compile(
    rb"/(?:Users|home|root|tmp|private|var|opt|work|mnt|builds?|runner)"
    rb"/[\w.+/-]+"
)


def check(
    wheel: Path,
    project: Project,
    upstream: Upstream,
    checkout: Checkout,
    reporter: Reporter = Reporter(),
    python: str | None = None,
) -> None:
    """Verifies a wheel.

    Args:
      python: the Python that it is for, by name or path; default .venv's.
      checkout: a k2 that the series has been applied to.
    Raises:
      WheelVerificationError: it is not what it should be.
    """
    with reporter.task(f"verifying {wheel.name}"):
        reference = gather(wheel, project, upstream, checkout, reporter, python)
        problems = list(verify(wheel, reference))
    if problems:
        raise errors.WheelVerificationError(
            f"{wheel.name} has {len(problems)} problem(s)",
            why="\n".join(map(str, problems)),
            next_command="k2mps wheel makes a new one",
        )
    if reference.kernels:
        front_end = reference.front_end
        reporter.info(
            f"{len(reference.kernels)} kernel source(s): "
            + (
                "accepted by the emulator's front end for Metal"
                if front_end.command
                else f"not checked as Metal, since {front_end.absent}"
            )
        )


def verify(wheel: Path, reference: Reference) -> Iterator[Problem]:
    """All that is wrong with a wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, OSError) as error:
        yield Problem("file", "", f"not a zip file that can be read: {error}")
        return
    info = next(
        (posixpath.dirname(name) for name in files if name.endswith(".dist-info/WHEEL")), ""
    )
    if not info:
        yield Problem("metadata", "", "there is no .dist-info/WHEEL")
        return
    yield from _files(files, info, reference)
    yield from _record(files, info)
    yield from _metadata(wheel, files, info, reference)
    yield from _python(files, reference)
    yield from _paths(files, reference)
    yield from _elf_rpaths(files)
    if "macosx" in wheel.name:
        yield from Images(wheel, files, reference).problems()


# ---- the wheel as an archive


def _files(files, info: str, reference: Reference) -> Iterator[Problem]:
    allowed = {f"{info}/{name}" for name in _INFO}
    allowed |= {*reference.python, _WRITTEN_BY_CMAKE}
    for name in files:
        if name not in allowed and not LIBRARY.fullmatch(name):
            yield Problem("files", name, "upstream's wheel has no such file")
    needed = {
        *reference.python,
        _WRITTEN_BY_CMAKE,
        *(f"{info}/{name}" for name in ("METADATA", "RECORD")),
    }
    for name in sorted(needed - files.keys()):
        yield Problem("files", name, "missing")
    if not any(name.startswith("_k2.") for name in files):
        yield Problem("files", "_k2", "missing")


def _record(files, info: str) -> Iterator[Problem]:
    name = f"{info}/RECORD"
    text = files.get(name, b"").decode(errors="replace")
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(text)) if row}
    for path in sorted(rows.keys() - files.keys()):
        yield Problem("record", path, "listed but not in the wheel")
    for path, content in sorted(files.items()):
        if path not in rows:
            yield Problem("record", path, "not listed")
        elif path != name and rows[path] != [record_hash(content), str(len(content))]:
            yield Problem("record", path, "another hash or size is listed")


def _metadata(wheel: Path, files, info: str, reference: Reference) -> Iterator[Problem]:
    metadata, wheel_file = f"{info}/METADATA", f"{info}/WHEEL"
    facts = email.message_from_bytes(files.get(metadata, b""))
    _, version, _, tags = parsed(wheel)
    if facts["Name"] != "k2" or facts["Version"] != str(version):
        yield Problem("metadata", metadata, f"describes {facts['Name']} {facts['Version']}")
    needs = [Requirement(line) for line in facts.get_all("Requires-Dist", [])]
    torch = [str(entry) for entry in needs if entry.name == "torch"]
    match = LOCAL.fullmatch(version.local or "")
    if not match or torch != [f"torch=={match[1]}"]:
        yield Problem(
            "metadata",
            metadata,
            f"requires {torch or 'no torch'}; its version says {version.local}",
        )
    about = email.message_from_bytes(files[wheel_file])
    if set(about.get_all("Tag", [])) != {str(tag) for tag in tags}:
        yield Problem("tags", wheel_file, "not the tags of the file's name")
    if about["Root-Is-Purelib"] != "false":
        yield Problem("tags", wheel_file, "claims to be pure Python")
    yield from _origin(files, f"{info}/{provenance.FILE}", version, reference)


def _origin(files, name: str, version: Version, reference: Reference) -> Iterator[Problem]:
    try:
        origin = dict(json.loads(files.get(name, b"")))
    except (TypeError, ValueError):
        yield Problem("origin", name, "not an object in JSON")
        return
    if origin.get("patched_tree") != reference.origin:
        yield Problem("origin", name, f"not made of the patched tree {reference.origin[:12]}")
    match = LOCAL.fullmatch(version.local or "")
    if bool(origin.get("dirty")) != bool(match and match[2]):
        yield Problem("origin", name, f"dirty is {origin.get('dirty')}; the version is {version}")


def _python(files, reference: Reference) -> Iterator[Problem]:
    for name, content in sorted(reference.python.items()):
        found = files.get(name)
        if found is not None and name == "k2/__init__.py":
            found = _VERSION_LINE.sub(b"", found)
        if found is not None and found != content:
            yield Problem("python", name, "not as in the patched tree")


def _paths(files, reference: Reference) -> Iterator[Problem]:
    for name, content in sorted(files.items()):
        if not LIBRARY.fullmatch(name):
            continue
        found = {path.decode() for path in _BUILD_PATH.findall(content)}
        found |= {path for path in reference.build_paths if path.encode() in content}
        if found:
            shown = sorted(found)[0]
            yield Problem("paths", name, f"names {len(found)} path(s) of a build machine, {shown}")


def _elf_rpaths(files) -> Iterator[Problem]:
    """Where a Linux wheel's libraries look for others."""
    import lief

    lief.logging.disable()
    for name, content in sorted(files.items()):
        if not content.startswith(b"\x7fELF"):
            continue
        binary = lief.ELF.parse(io.BytesIO(content))
        tags = (lief.ELF.DynamicEntry.TAG.RPATH, lief.ELF.DynamicEntry.TAG.RUNPATH)
        for entry in binary.dynamic_entries if binary else ():
            for path in entry.paths if entry.tag in tags else ():
                if not path.startswith("$ORIGIN"):
                    yield Problem("rpath", name, f"looks for libraries in {path}")
