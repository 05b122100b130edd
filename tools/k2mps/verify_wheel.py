"""Taking a wheel apart: is it what it says, and would it load?

For a macOS wheel this takes the place of loading it where there is no Mac:
every symbol that it binds is looked up in the library that it names, as that
library is in torch's own wheel, or is known of macOS 14.  What only running
can show remains unknown.
"""

from __future__ import annotations

import csv
import ctypes
import dataclasses
import email
import hashlib
import io
import posixpath
import re
import struct
import tempfile
import zipfile
from pathlib import Path
from typing import Iterator, Mapping, Optional

from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from k2mps import errors, toolchain
from k2mps.checkout import Checkout
from k2mps.environment import Environment, torch_requirement
from k2mps.project import Project
from k2mps.reporter import Reporter
from k2mps.upstream import Upstream
from k2mps.wheel import PROVENANCE, record_hash

_LIBRARY = re.compile(
    r"_k2\.cpython-\d+-(?:darwin|\w+-linux-gnu)\.so"
    r"|k2/lib/libk2(?:_log|fsa|context)\.(?:dylib|so)"
)
_INFO = {"LICENSE", "METADATA", "RECORD", "WHEEL", "top_level.txt",
         PROVENANCE}
_WRITTEN_BY_CMAKE = "k2/torch_version.py"
_VERSION_LINE = re.compile(rb"__dev_version__ = '[^'\n]*'\n\Z")
_INCLUDE = re.compile(r'(^|\n)#include "([^"\n]+)"[^\n]*')
# Where people and build machines keep their files.
_BUILD_PATH = re.compile(
    rb"/(?:Users|home|root|tmp|private|var|opt|work|mnt|builds?|runner)"
    rb"/[\w.+/-]+"
)
_PACKAGE = "k2/python/"
_KERNELS = "k2/csrc/mps/kernels/"

# Numbers of Apple's <kern/cs_blobs.h>.
_EMBEDDED_SIGNATURE = 0xFADE0CC0
_CODE_DIRECTORY = 0xFADE0C02
_SHA256 = 2


@dataclasses.dataclass(frozen=True)
class Problem:
    """What is wrong with a wheel.

    Attributes:
      check: the name of the check that found it.
      file: in which file of the wheel; empty where it is the wheel's name.
      text: what it is.
    """

    check: str
    file: str
    text: str

    def __str__(self) -> str:
        where = f"{self.file}: " if self.file else ""
        return f"[{self.check}] {where}{self.text}"


@dataclasses.dataclass(frozen=True)
class Reference:
    """What a wheel is compared with.

    Attributes:
      python: the Python files of the patched tree, by path in a wheel.
      kernels: the text of each kernel source that a Mac needs, by name.
      origin: the id of the patched tree.
      build_paths: directories of this machine that no wheel may name.
      torch: torch's package for macOS, which macOS wheels are checked with.
      system: what macOS's libraries export, by install name.
    """

    python: Mapping[str, bytes]
    kernels: Mapping[str, str]
    origin: str
    build_paths: tuple[str, ...] = ()
    torch: Optional[Path] = None
    system: Mapping[str, set[str]] = dataclasses.field(default_factory=dict)


def check(
    wheel: Path,
    project: Project,
    upstream: Upstream,
    checkout: Checkout,
    reporter: Reporter = Reporter(),
) -> None:
    """Verifies a wheel for the Python of .venv.

    Args:
      checkout: a k2 that the series has been applied to.
    Raises:
      WheelVerificationError: it is not what it should be.
    """
    with reporter.task(f"verifying {wheel.name}"):
        reference = gather(wheel, project, upstream, checkout, reporter)
        problems = list(verify(wheel, reference))
    if problems:
        raise errors.WheelVerificationError(
            f"{wheel.name} has {len(problems)} problem(s)",
            why="\n".join(map(str, problems)),
            next_command="k2mps wheel makes a new one",
        )


def gather(
    wheel: Path,
    project: Project,
    upstream: Upstream,
    checkout: Checkout,
    reporter: Reporter,
) -> Reference:
    """What to compare a wheel with.

    Raises:
      WheelVerificationError: it is for another Python, or none at all.
      ConfigError: it is for a torch that upstream.toml does not have.
    """
    environment = Environment(project, reporter)
    environment.install(environment.requirements("wheels"))
    _, version, _, tags = _parsed(wheel)
    if {tag.interpreter for tag in tags} != {environment.python_tag}:
        raise errors.WheelVerificationError(
            f"{wheel.name} is not for {environment.python_tag}",
            why="its symbols are looked up in the Python of .venv",
            next_command="make build PYTHON=... in a clone of its own",
        )
    read = _TreeReader(checkout, upstream.lock.tree)
    names = read.names(_PACKAGE + "k2")
    python = {
        name.removeprefix(_PACKAGE): read.content(name)
        for name in names if name.endswith(".py")
    }
    torch, system, kernels = None, {}, {}
    if any(tag.platform.startswith("macosx") for tag in tags):
        match = re.search(r"torch([\d.]+)$", version.local or "")
        wanted = torch_requirement(upstream.torch, match and match[1])
        torch = toolchain.fetch_torch(project, wanted, reporter)
        zig = toolchain.fetch_zig(project, reporter)
        system = toolchain.system_symbols(torch, zig)
        kernels = {
            posixpath.basename(name): _with_includes(name, read)
            for name in read.names(_KERNELS) if name.endswith(".metal")
        }
    return Reference(
        python, kernels, upstream.lock.tree,
        (str(project.root), str(checkout.directory)), torch, system,
    )


def verify(wheel: Path, reference: Reference) -> Iterator[Problem]:
    """All that is wrong with a wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            files = {
                name: archive.read(name) for name in archive.namelist()
            }
    except (zipfile.BadZipFile, OSError) as error:
        yield Problem("file", "", f"not a zip file that can be read: {error}")
        return
    info = next(
        (posixpath.dirname(name) for name in files
         if name.endswith(".dist-info/WHEEL")), "",
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
        yield from _Images(wheel, files, reference).problems()


# ---- the wheel as an archive


def _files(files, info: str, reference: Reference) -> Iterator[Problem]:
    allowed = {f"{info}/{name}" for name in _INFO}
    allowed |= {*reference.python, _WRITTEN_BY_CMAKE}
    for name in files:
        if name not in allowed and not _LIBRARY.fullmatch(name):
            yield Problem("files", name, "upstream's wheel has no such file")
    needed = {*reference.python, _WRITTEN_BY_CMAKE,
              *(f"{info}/{name}" for name in ("METADATA", "RECORD"))}
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
        elif path != name and rows[path] != [
            record_hash(content), str(len(content))
        ]:
            yield Problem("record", path, "another hash or size is listed")


def _metadata(
    wheel: Path, files, info: str, reference: Reference
) -> Iterator[Problem]:
    metadata, wheel_file = f"{info}/METADATA", f"{info}/WHEEL"
    facts = email.message_from_bytes(files.get(metadata, b""))
    _, version, _, tags = _parsed(wheel)
    if facts["Name"] != "k2" or facts["Version"] != str(version):
        yield Problem(
            "metadata", metadata,
            f"describes {facts['Name']} {facts['Version']}",
        )
    needs = [Requirement(line) for line in facts.get_all("Requires-Dist", [])]
    torch = [str(entry) for entry in needs if entry.name == "torch"]
    match = re.search(r"torch([\d.]+)$", version.local or "")
    if not match or torch != [f"torch=={match[1]}"]:
        yield Problem(
            "metadata", metadata,
            f"requires {torch or 'no torch'}; its version says"
            f" {version.local}",
        )
    about = email.message_from_bytes(files[wheel_file])
    if set(about.get_all("Tag", [])) != {str(tag) for tag in tags}:
        yield Problem("tags", wheel_file, "not the tags of the file's name")
    if about["Root-Is-Purelib"] != "false":
        yield Problem("tags", wheel_file, "claims to be pure Python")
    origin = files.get(f"{info}/{PROVENANCE}", b"").decode(errors="replace")
    if f'"patched_tree": "{reference.origin}"' not in origin:
        yield Problem(
            "origin", f"{info}/{PROVENANCE}",
            f"not made of the patched tree {reference.origin[:12]}",
        )


def _python(files, reference: Reference) -> Iterator[Problem]:
    for name, content in sorted(reference.python.items()):
        found = files.get(name)
        if found is not None and name == "k2/__init__.py":
            found = _VERSION_LINE.sub(b"", found)
        if found is not None and found != content:
            yield Problem("python", name, "not as in the patched tree")


def _paths(files, reference: Reference) -> Iterator[Problem]:
    for name, content in sorted(files.items()):
        if not _LIBRARY.fullmatch(name):
            continue
        found = {path.decode() for path in _BUILD_PATH.findall(content)}
        found |= {
            path for path in reference.build_paths if path.encode() in content
        }
        if found:
            shown = sorted(found)[0]
            yield Problem(
                "paths", name,
                f"names {len(found)} path(s) of a build machine, {shown}",
            )


def _elf_rpaths(files) -> Iterator[Problem]:
    """Where a Linux wheel's libraries look for others."""
    import lief

    lief.logging.disable()
    for name, content in sorted(files.items()):
        if not content.startswith(b"\x7fELF"):
            continue
        binary = lief.ELF.parse(io.BytesIO(content))
        tags = (lief.ELF.DynamicEntry.TAG.RPATH,
                lief.ELF.DynamicEntry.TAG.RUNPATH)
        for entry in binary.dynamic_entries if binary else ():
            for path in entry.paths if entry.tag in tags else ():
                if not path.startswith("$ORIGIN"):
                    yield Problem(
                        "rpath", name, f"looks for libraries in {path}"
                    )


# ---- the Mach-O files


class _Images:
    """The libraries of a macOS wheel, and what is beside them once it is
    installed.

    Args:
      wheel: the wheel, whose name has the tag.
      files: its files.
      reference: what they are checked with.
    """

    def __init__(
        self, wheel: Path, files: Mapping[str, bytes], reference: Reference
    ):
        self._contents = {
            name: content for name, content in files.items()
            if _LIBRARY.fullmatch(name)
        }
        self._reference = reference
        match = re.search(r"macosx_(\d+)_(\d+)_(\w+)\.whl", wheel.name)
        self._minimum = [int(match[1]), int(match[2]), 0]
        self._machine = match[3]
        self._binaries = {}
        self._exports: dict[str, set[str]] = {}

    def problems(self) -> Iterator[Problem]:
        with tempfile.TemporaryDirectory() as folder:
            for number, (name, content) in enumerate(
                sorted(self._contents.items())
            ):
                path = Path(folder, str(number))
                path.write_bytes(content)
                self._binaries[name] = toolchain.parse(path)
            for name, binary in self._binaries.items():
                if binary is None:
                    yield Problem("machine", name, "not Mach-O for arm64")
                    continue
                yield from self._kind(name, binary)
                yield from self._rpaths(name, binary)
                yield from self._symbols(name, binary)
                yield from self._signature(name, binary)
        yield from self._kernels()

    def _kind(self, name: str, binary) -> Iterator[Problem]:
        import lief

        magic = self._contents[name][:4]
        if magic != b"\xcf\xfa\xed\xfe" or self._machine != "arm64":
            yield Problem("machine", name, "not for arm64 alone")
        build = binary.build_version
        macos = lief.MachO.BuildVersion.PLATFORMS.MACOS
        if build is None or build.platform != macos:
            yield Problem("platform", name, "not for macOS")
        elif list(build.minos) > self._minimum:
            needed = ".".join(map(str, build.minos))
            yield Problem(
                "minimum-os", name,
                f"needs macOS {needed}, the wheel's tag promises less",
            )
        install_name = lief.MachO.LoadCommand.TYPE.ID_DYLIB
        for entry in binary.libraries:
            expected = f"@rpath/{posixpath.basename(name)}"
            if entry.command == install_name and entry.name != expected:
                yield Problem(
                    "install-name", name, f"calls itself {entry.name}"
                )

    def _rpaths(self, name: str, binary) -> Iterator[Problem]:
        paths = [entry.path for entry in binary.rpaths]
        for path in paths:
            if not path.startswith("@loader_path"):
                yield Problem("rpath", name, f"looks for libraries in {path}")
        if len(set(paths)) < len(paths):
            # The dynamic linker of newer systems refuses to load such a file.
            yield Problem("rpath", name, "has the same rpath twice")

    def _symbols(self, name: str, binary) -> Iterator[Problem]:
        libraries = _needed(binary)
        known = {
            library: self._exported(name, binary, library)
            for library in libraries
        }
        for library, symbols in known.items():
            if symbols is None:
                yield Problem(
                    "libraries", name,
                    f"needs {library}, which is neither in the wheel, nor of"
                    " torch, nor known of macOS",
                )
        own = self._exports_of(name)
        everywhere = own.union(*(found for found in known.values() if found))
        for symbol, library in sorted(set(_bound(binary))):
            if library in known:
                found = known[library]
                if found is not None and symbol not in found:
                    yield Problem(
                        "symbols", name, f"{library} does not export {symbol}"
                    )
            elif library == "weak":
                if symbol not in everywhere:
                    yield Problem(
                        "symbols", name, f"no library exports {symbol}"
                    )
            elif not _is_pythons(symbol):
                yield Problem(
                    "symbols", name,
                    f"{symbol} is looked for anywhere and is not Python's",
                )

    def _exported(self, name: str, binary, library: str):
        """What a library exports that a file of the wheel needs; None where
        it is not found."""
        if not library.startswith("@rpath/"):
            return self._reference.system.get(library)
        leaf = library.removeprefix("@rpath/")
        for entry in binary.rpaths:
            folder = entry.path.replace(
                "@loader_path", posixpath.dirname(name) or "."
            )
            path = posixpath.normpath(posixpath.join(folder, leaf))
            if path in self._contents:
                return self._exports_of(path)
            torch = self._reference.torch
            if torch and path.startswith("torch/"):
                file = torch.parent / path
                if file.is_file():
                    return self._remembered(
                        path, lambda: toolchain.exports(file)
                    )
        return None

    def _exports_of(self, name: str) -> set[str]:
        binary = self._binaries[name]
        if binary is None:
            return set()
        return self._remembered(
            name, lambda: {entry.name for entry in binary.exported_symbols}
        )

    def _remembered(self, key: str, find) -> set[str]:
        if key not in self._exports:
            self._exports[key] = find()
        return self._exports[key]

    def _signature(self, name: str, binary) -> Iterator[Problem]:
        if not binary.has_code_signature:
            yield Problem("signature", name, "not signed; arm64 demands it")
            return
        wrong = signature_fault(
            self._contents[name], binary.code_signature.data_offset
        )
        if wrong:
            yield Problem("signature", name, wrong)

    def _kernels(self) -> Iterator[Problem]:
        name = "k2/lib/libk2context.dylib"
        content = self._contents.get(name, b"")
        for kernel, text in sorted(self._reference.kernels.items()):
            if text.encode() + b"\0" not in content:
                yield Problem(
                    "kernels", name,
                    f"the text of {kernel} is not in it as in the tree",
                )


def _needed(binary) -> list[str]:
    """The install names of the libraries that a Mach-O file loads."""
    import lief

    own = lief.MachO.LoadCommand.TYPE.ID_DYLIB
    return [entry.name for entry in binary.libraries if entry.command != own]


def _bound(binary) -> Iterator[tuple[str, str]]:
    """Each symbol that a Mach-O file binds, with the library that it names,
    "weak" where any library's will do first come, or "anywhere"."""
    special = {0: "own", -2 & 0xFF: "anywhere", -3 & 0xFF: "weak"}
    for entry in binary.bindings:
        if not entry.has_symbol:
            continue
        if entry.has_library:
            yield entry.symbol.name, entry.library.name
            continue
        kind = special.get(entry.library_ordinal & 0xFF, "anywhere")
        if kind != "own":
            yield entry.symbol.name, kind


def _is_pythons(symbol: str) -> bool:
    """Whether the running Python, the one the wheel is for, exports it."""
    name = symbol.removeprefix("_")
    return bool(re.match(r"_?Py", name)) and hasattr(ctypes.pythonapi, name)


def signature_fault(content: bytes, offset: int) -> str:
    """What is wrong with the code signature of a Mach-O file; empty where
    its hashes are those of the file's pages.

    Args:
      content: the file.
      offset: where its signature begins.
    """
    try:
        magic, _, count = struct.unpack_from(">III", content, offset)
        if magic != _EMBEDDED_SIGNATURE:
            return "its signature cannot be read"
        for number in range(count):
            _, start = struct.unpack_from(
                ">II", content, offset + 12 + 8 * number
            )
            start += offset
            if struct.unpack_from(">I", content, start)[0] == _CODE_DIRECTORY:
                return _directory_fault(content, start, offset)
    except struct.error:
        return "its signature is cut off"
    return "its signature has no hashes"


def _directory_fault(content: bytes, start: int, end: int) -> str:
    """The same for a code directory that begins at `start`."""
    hashes, = struct.unpack_from(">I", content, start + 16)
    pages, limit = struct.unpack_from(">II", content, start + 28)
    size, kind, _, log_page = struct.unpack_from("4B", content, start + 36)
    page = 1 << log_page
    if kind != _SHA256 or limit != end or pages != -(-limit // page):
        return "its signature is not one of the whole file with SHA-256"
    for number in range(pages):
        begin = number * page
        digest = hashlib.sha256(content[begin:min(begin + page, limit)])
        where = start + hashes + number * size
        if digest.digest() != content[where:where + size]:
            return f"page {number} is not the one that was signed"
    return ""


# ---- the patched tree


class _TreeReader:
    """Reads the files of a tree, whether or not it is checked out."""

    def __init__(self, checkout: Checkout, tree: str):
        self._git = checkout.git
        self._tree = tree
        if not self._git.succeeds("cat-file", "-e", f"{tree}^{{tree}}"):
            raise errors.WheelVerificationError(
                "there is nothing to compare the wheel with",
                why=f"{checkout.directory} does not have the patched tree"
                f" {tree[:12]}",
                next_command="k2mps apply",
            )

    def names(self, folder: str) -> list[str]:
        """The paths of the files below a directory."""
        listing = self._git.text(
            "ls-tree", "-r", "--name-only", self._tree, "--", folder
        )
        return listing.splitlines()

    def content(self, name: str) -> bytes:
        return self._git.bytes("cat-file", "blob", f"{self._tree}:{name}")


def _with_includes(name: str, read: _TreeReader) -> str:
    """A kernel's text with the files of k2 that it includes in their place,
    each one once: what Metal is given to compile."""
    text = read.content(name).decode()
    seen = set()
    while match := _INCLUDE.search(text):
        line, header = match[0], match[2]
        body = "" if header in seen else read.content(header).decode()
        seen.add(header)
        text = text.replace(line, "\n" + body)
    return text


def _parsed(wheel: Path):
    try:
        return parse_wheel_filename(wheel.name)
    except InvalidWheelFilename as error:
        raise errors.WheelVerificationError(
            f"{wheel.name} is not the name of a wheel",
            why=str(error),
            next_command="ls build/wheels",
        ) from None
