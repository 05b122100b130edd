"""Checks a wheel's libraries for the faults for which the dynamic linker would refuse them."""

import functools
import io
import posixpath
from collections.abc import Iterator

from k2mps.build import toolchain
from k2mps.wheel.archive import WheelFile
from k2mps.wheel.expectations import LIBRARY, Problem, Reference


class Images:
    """The libraries of a macOS wheel, and the libraries of torch that pip installs beside these."""

    def __init__(self, wheel: WheelFile, reference: Reference):
        self._contents = {
            name: content
            for name, content in sorted(wheel.files.items())
            if LIBRARY.fullmatch(name)
        }
        self._reference = reference
        _, major, minor, self._machine = wheel.tag.platform.split("_", 3)
        self._minimum = [int(major), int(minor), 0]
        self._binaries = {
            name: toolchain.parse(io.BytesIO(content)) for name, content in self._contents.items()
        }

    def problems(self) -> Iterator[Problem]:
        """Yields all problems of the wheel's libraries."""
        for name, binary in self._binaries.items():
            if binary is None:
                yield Problem("machine", name, "not Mach-O for arm64")
                continue
            yield from self._kind(name, binary)
            yield from self._symbols(name, binary)
            if not binary.has_code_signature:
                fault = "not signed, but macOS on arm64 requires a signature"
                yield Problem("signature", name, fault)

    def _kind(self, name: str, binary) -> Iterator[Problem]:
        """Checks the machine, the system and the paths in a library; yields its problems."""
        import lief

        magic = self._contents[name][:4]
        if magic != b"\xcf\xfa\xed\xfe" or self._machine != "arm64":
            yield Problem("machine", name, "not for arm64 alone")
        build = binary.build_version
        if build is None or build.platform != lief.MachO.BuildVersion.PLATFORMS.MACOS:
            yield Problem("platform", name, "not for macOS")
        elif list(build.minos) > self._minimum:
            needed = ".".join(map(str, build.minos))
            fault = f"needs macOS {needed}, but the wheel's tag names an older one"
            yield Problem("minimum-os", name, fault)
        install_name = lief.MachO.LoadCommand.TYPE.ID_DYLIB
        for entry in binary.libraries:
            expected = f"@rpath/{posixpath.basename(name)}"
            if entry.command == install_name and entry.name != expected:
                yield Problem("install-name", name, f"calls itself {entry.name}")
        paths = [entry.path for entry in binary.rpaths]
        for path in paths:
            if not path.startswith("@loader_path"):
                yield Problem("rpath", name, f"looks for libraries in {path}")
        if len(set(paths)) < len(paths):
            # Newer versions of macOS do not load a library with a duplicate rpath.
            yield Problem("rpath", name, "has the same rpath twice")

    def _symbols(self, name: str, binary) -> Iterator[Problem]:
        """Checks that the libraries that a library loads export what it imports."""
        exports = {
            library: self._exported(name, binary, library) for library in toolchain.loaded(binary)
        }
        for library, symbols in exports.items():
            if symbols is None:
                fault = f"needs {library}, which is in neither the wheel nor torch"
                yield Problem("libraries", name, f"{fault}, and is no known library of macOS")
        loaded_exports = [symbols for symbols in exports.values() if symbols is not None]
        everywhere = self._pythons.union(self._exports_of(name), *loaded_exports)
        for library, symbols in sorted(toolchain.imports(binary).items()):
            exported = exports[library] if library else everywhere
            if exported is None:
                continue
            for symbol in sorted(symbols - exported):
                fault = f"{library} does not export" if library else "no library exports"
                yield Problem("symbols", name, f"{fault} {symbol}")

    @functools.cached_property
    def _pythons(self) -> set[str]:
        """The symbols of the wheel's Python, with the "_" that they have in a Mach-O file."""
        return {f"_{name}" for name in self._reference.interpreter.symbols()}

    def _exported(self, name: str, binary, library: str) -> set[str] | None:
        """Returns the symbols of a library that a file of the wheel loads.

        Args:
          name, binary: the path and the parsed content of the file of the wheel.
          library: the install name of the library.
        Returns:
          The symbols; None if the library is unknown.
        """
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
        """Returns the symbols that a library of the wheel or of torch exports."""
        if path not in self._contents:
            return self._reference.torch[path]
        binary = self._binaries[path]
        return {symbol.name for symbol in binary.exported_symbols} if binary else set()
