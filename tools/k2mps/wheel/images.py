"""Checks of a wheel's Mach-O files, as macOS's dynamic linker does them."""

import functools
import hashlib
import io
import posixpath
import re
import struct
from collections.abc import Iterator

from k2mps.build import toolchain
from k2mps.wheel.archive import WheelFile
from k2mps.wheel.expectations import LIBRARY, Problem, Reference

# Numbers of Apple's <kern/cs_blobs.h>.
_EMBEDDED_SIGNATURE = 0xFADE0CC0
_CODE_DIRECTORY = 0xFADE0C02
_SHA256 = 2


class Images:
    """The libraries of a macOS wheel, and those beside them once the wheel is installed."""

    def __init__(self, wheel: WheelFile, reference: Reference):
        self._contents = {
            name: content
            for name, content in sorted(wheel.files.items())
            if LIBRARY.fullmatch(name)
        }
        self._reference = reference
        match = re.search(r"macosx_(\d+)_(\d+)_(\w+)\.whl", wheel.path.name)
        self._minimum = [int(match[1]), int(match[2]), 0]
        self._machine = match[3]
        self._binaries = {
            name: toolchain.parse(io.BytesIO(content)) for name, content in self._contents.items()
        }

    def problems(self) -> Iterator[Problem]:
        """All that is wrong with the libraries."""
        for name, binary in self._binaries.items():
            if binary is None:
                yield Problem("machine", name, "not Mach-O for arm64")
                continue
            try:
                yield from self._kind(name, binary)
                yield from self._rpaths(name, binary)
                yield from self._symbols(name, binary)
                yield from self._signature(name, binary)
            except UnicodeDecodeError as error:
                yield Problem("machine", name, f"a name in it cannot be read: {error}")
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
            told = f"needs macOS {needed}, the wheel's tag promises less"
            yield Problem("minimum-os", name, told)
        install_name = lief.MachO.LoadCommand.TYPE.ID_DYLIB
        for entry in binary.libraries:
            expected = f"@rpath/{posixpath.basename(name)}"
            if entry.command == install_name and entry.name != expected:
                yield Problem("install-name", name, f"calls itself {entry.name}")

    def _rpaths(self, name: str, binary) -> Iterator[Problem]:
        paths = [entry.path for entry in binary.rpaths]
        for path in paths:
            if not path.startswith("@loader_path"):
                yield Problem("rpath", name, f"looks for libraries in {path}")
        if len(set(paths)) < len(paths):
            # The dynamic linker of newer systems refuses to load such a file.
            yield Problem("rpath", name, "has the same rpath twice")

    def _symbols(self, name: str, binary) -> Iterator[Problem]:
        known = {
            library: self._exported(name, binary, library) for library in toolchain.loaded(binary)
        }
        for library, symbols in known.items():
            if symbols is None:
                told = f"needs {library}, which is neither in the wheel, nor of torch"
                yield Problem("libraries", name, f"{told}, nor known of macOS")
        everywhere = self._exports_of(name).union(*filter(None, known.values()))
        for symbol, library in sorted(set(_bound(binary))):
            if library in known:
                if known[library] is not None and symbol not in known[library]:
                    yield Problem("symbols", name, f"{library} does not export {symbol}")
            elif library == "weak":
                if symbol not in everywhere:
                    yield Problem("symbols", name, f"no library exports {symbol}")
            elif symbol not in self._pythons:
                told = f"{symbol} is looked for anywhere and is not Python's"
                yield Problem("symbols", name, told)

    @functools.cached_property
    def _pythons(self) -> set[str]:
        """The symbols of the wheel's Python, as a Mach-O file names them."""
        return {f"_{name}" for name in self._reference.interpreter.symbols()}

    def _exported(self, name: str, binary, library: str) -> set[str] | None:
        """The symbols of a library that a file of the wheel loads; None for an unknown library."""
        if not library.startswith("@rpath/"):
            return self._reference.system.get(library)
        for entry in binary.rpaths:
            folder = entry.path.replace("@loader_path", posixpath.dirname(name) or ".")
            path = posixpath.normpath(posixpath.join(folder, library.removeprefix("@rpath/")))
            if path in self._contents or path in self._reference.torch:
                return self._exports_of(path)
        return None

    @functools.cache
    def _exports_of(self, path: str) -> set[str]:
        """The symbols that a library of the wheel or of torch exports."""
        if path not in self._contents:
            return self._reference.torch[path]
        binary = self._binaries[path]
        return {symbol.name for symbol in binary.exported_symbols} if binary else set()

    def _signature(self, name: str, binary) -> Iterator[Problem]:
        wrong = "not signed; arm64 demands it"
        if binary.has_code_signature:
            wrong = signature_fault(self._contents[name], binary.code_signature.data_offset)
        if wrong:
            yield Problem("signature", name, wrong)

    def _kernels(self) -> Iterator[Problem]:
        name = "k2/lib/libk2context.dylib"
        content = self._contents.get(name, b"")
        for kernel, text in sorted(self._reference.kernels.items()):
            if text.encode() + b"\0" not in content:
                yield Problem("kernels", name, f"the text of {kernel} is not in it as in the tree")
        for kernel, text in self._reference.refused.items():
            yield Problem("msl", kernel, f"Metal would refuse it: {text}")


def _bound(binary) -> Iterator[tuple[str, str]]:
    """Each symbol that a Mach-O file binds, with its library; or with "weak", where the first
    library that has the symbol serves, or "anywhere"."""
    own, weak = 0, -3 & 0xFF
    for entry in binary.bindings:
        ordinal = entry.library_ordinal & 0xFF
        if entry.has_symbol and entry.has_library:
            yield entry.symbol.name, entry.library.name
        elif entry.has_symbol and ordinal != own:
            yield entry.symbol.name, "weak" if ordinal == weak else "anywhere"


def signature_fault(content: bytes, offset: int) -> str:
    """The fault of the code signature at an offset of a Mach-O file; empty where the signature has
    the hashes of the file's pages."""
    try:
        magic, _, count = struct.unpack_from(">III", content, offset)
        if magic != _EMBEDDED_SIGNATURE:
            return "its signature cannot be read"
        for number in range(count):
            _, start = struct.unpack_from(">II", content, offset + 12 + 8 * number)
            start += offset
            if struct.unpack_from(">I", content, start)[0] == _CODE_DIRECTORY:
                return _directory_fault(content, start, offset)
    except struct.error:
        return "its signature is cut off"
    return "its signature has no hashes"


def _directory_fault(content: bytes, start: int, end: int) -> str:
    """The fault of the code directory at `start`, for a signature at `end`."""
    (hashes,) = struct.unpack_from(">I", content, start + 16)
    pages, limit = struct.unpack_from(">II", content, start + 28)
    size, kind, _, log_page = struct.unpack_from("4B", content, start + 36)
    page = 1 << log_page
    if kind != _SHA256 or limit != end or page < 4096 or pages != -(-limit // page):
        return "its signature is not one of the whole file with SHA-256"
    for number in range(pages):
        begin = number * page
        digest = hashlib.sha256(content[begin : min(begin + page, limit)])
        where = start + hashes + number * size
        if digest.digest() != content[where : where + size]:
            return f"page {number} is not the one that was signed"
    return ""
