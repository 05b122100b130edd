"""Assembles a toolchain on Linux that compiles k2 for macOS.

The repository contains no files of Apple.  The toolchain consists of

- the headers of C and C++, from the package `ziglang`;
- torch's headers and libraries, from torch's wheel for macOS;
- the emulator's headers, which declare Metal and signposts;
- the folder `macos/`, which has the few declarations of Foundation that k2 needs;
- stubs of macOS's libraries.  A stub exports the symbols that torch's libraries import from the
  real library.  Each version of macOS on which this torch runs has these symbols.
"""

import collections
import io
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.version import Version

from k2mps.build.environment import Environment, tree_hash, version_in
from k2mps.build.interpreter import Interpreter
from k2mps.core import errors, replacement
from k2mps.core.pins import sha256

LABEL = "cross-built, statically verified"

FILES = Path(__file__).with_name("macos")
# The emulator's headers that are copied into the SDK: {path in the emulator's include/: path in the
# SDK}.
_EMULATOR_HEADERS = {
    "Metal/Metal.h": "System/Library/Frameworks/Metal.framework/Headers/Metal.h",
    "os/log.h": "usr/include/os/log.h",
    "os/signpost.h": "usr/include/os/signpost.h",
}
_TORCH_PARTS = ("torch/include/", "torch/lib/", "torch/share/cmake/")
_ZIG_PARTS = (
    "ziglang/lib/libc/include/any-macos-any/",
    "ziglang/lib/libcxx/include/",
    "ziglang/lib/libcxxabi/include/",
)

# The contents of SDKSettings.json, from which clang reads the version of the SDK.
_SDK_SETTINGS = {
    "CanonicalName": "macosx15.1",
    "DisplayName": "macOS 15.1",
    "MaximumDeploymentTarget": "15.1.99",
    "Version": "15.1",
}

SYSTEM = "/usr/lib/libSystem.B.dylib"
_CXX = "/usr/lib/libc++.1.dylib"
_OBJC = "/usr/lib/libobjc.A.dylib"


def _framework(name: str, version: str) -> str:
    """Returns the install name of the library of a framework of macOS."""
    return f"/System/Library/Frameworks/{name}.framework/Versions/{version}/{name}"


_CORE_FOUNDATION = _framework("CoreFoundation", "A")
_FOUNDATION = _framework("Foundation", "C")
_METAL = _framework("Metal", "A")

# The system's libraries that a build may link, and the path of each library's stub in the SDK.
_STUBS = {
    SYSTEM: "usr/lib/libSystem",
    _CXX: "usr/lib/libc++",
    _OBJC: "usr/lib/libobjc.A",
    _CORE_FOUNDATION: _CORE_FOUNDATION.lstrip("/"),
    _FOUNDATION: "System/Library/Frameworks/Foundation.framework/Foundation",
    _METAL: "System/Library/Frameworks/Metal.framework/Metal",
}
# The libraries whose symbols a stub re-exports, by the library that the stub replaces.
_REEXPORTED = {_FOUNDATION: (_CORE_FOUNDATION, _OBJC)}

# Symbols that k2 imports and torch does not, by library.  The oldest macOS on which k2 runs has all
# these symbols: macOS has had std::future since 10.7, MTLComputePipelineDescriptor since 10.11,
# uncaught_exceptions since 10.12, and the function that `@available` calls since 10.15.  The other
# symbols are as old as libc++.
_ISTREAM = "__ZNSt3__113basic_istreamIcNS_11char_traitsIcEEE"
_STREAMBUF = "__ZNSt3__115basic_streambufIcNS_11char_traitsIcEEE"
_FURTHER: dict[str, tuple[str, ...]] = {
    _CXX: (
        f"{_STREAMBUF}C2Ev",  # std::streambuf's constructor
        f"{_STREAMBUF}D2Ev",
        f"{_ISTREAM}3getEv",  # std::istream::get()
        f"{_ISTREAM}4peekEv",
        f"{_ISTREAM}rsERd",  # std::istream::operator>>(double &)
        f"{_ISTREAM}rsERf",
        f"{_ISTREAM}rsERi",
        "__ZSt19uncaught_exceptionsv",
        "__ZNSt3__112future_errorC1ENS_10error_codeE",
        "__ZNSt3__112future_errorD1Ev",
        "__ZNSt3__115future_categoryEv",
        "__ZTINSt3__112future_errorE",
    ),
    _METAL: ("_OBJC_CLASS_$_MTLComputePipelineDescriptor",),
    SYSTEM: ("__availability_version_check",),
}


class Toolchain(NamedTuple):
    """An assembled toolchain for macOS."""

    directory: Path
    python: str  # the tag of the Python that the build is for, such as "cp312"
    key: str  # a hash of the toolchain's sources
    sdk: Path | None = None  # Apple's SDK, instead of the assembled one

    def settings(self) -> dict[str, str]:
        """Returns the CMake variables with which CMake builds for macOS."""
        tag = self.python.removeprefix("cp")
        return {
            "CMAKE_TOOLCHAIN_FILE": str(FILES / "toolchain.cmake"),
            "CMAKE_OSX_SYSROOT": str(self.sdk or self.directory / "sdk"),
            "CMAKE_POLICY_DEFAULT_CMP0068": "NEW",
            "K2_PYTHON_SYMBOLS": str(self.directory / "python-symbols"),
            "PYTHON_EXECUTABLE": str(self.directory / "bin" / "python"),
            "PYTHON_MODULE_EXTENSION": f".cpython-{tag}-darwin.so",
            "PYTHON_MODULE_DEBUG_POSTFIX": "",
            "Python_INCLUDE_DIR": str(self.directory / "python"),
        }


def with_sdk(toolchain: Toolchain, sdk: Path) -> Toolchain:
    """Returns a toolchain with Apple's SDK instead of the assembled one.

    A build with Apple's SDK only checks the sources, because its output must not be given away.

    Args:
      sdk: the folder of the SDK, which has SDKSettings.json.
    Raises:
      K2mpsError: the folder is not an SDK.
    """
    settings = sdk / "SDKSettings.json"
    if not settings.is_file():
        raise errors.K2mpsError(
            f"{sdk} is no SDK for macOS",
            why=f"it has no {settings.name}",
            next_command="name the folder MacOSX*.sdk of Xcode or of its command line tools",
        )
    key = sha256(f"{toolchain.key}{sdk.resolve()}".encode() + settings.read_bytes())
    return toolchain._replace(sdk=sdk.resolve(), key=key)


def least_macos(torch: str) -> str:
    """Returns the oldest macOS, such as "14.0", on which a version of torch has the mps device."""
    return "15.0" if Version(torch) >= Version("2.15") else "14.0"


def platform(torch: str) -> str:
    """Returns the platform tag of a wheel of k2 that has mps and uses this version of torch."""
    return f"macosx_{least_macos(torch).replace('.', '_')}_arm64"


def assemble(environment: Environment, torch: Requirement, python: Interpreter) -> Toolchain:
    """Returns the toolchain for a version of torch and a Python.

    Each version of the toolchain's sources has a folder of its own.

    Raises:
      RequirementMissingError: the Python has no headers, or a package cannot be downloaded.
      IndexUnreachableError: pip's index does not answer.
    """
    python.check_headers()
    torch_package = fetch_torch(environment, torch, python)
    zig = fetch_zig(environment)
    emulator = environment.project.root / "emulator" / "include"
    name = torch_package.parent.name
    headers = [(emulator / header).read_text() for header in _EMULATOR_HEADERS]
    key = tree_hash(
        FILES,
        json.dumps([_SDK_SETTINGS, _STUBS, _REEXPORTED, _FURTHER]),
        zig.name,
        python.number,
        str(python.include),
        python.program,
        *headers,
    )
    directory = _root(environment) / f"toolchain-{name}-{key[:12]}"
    if not directory.exists():
        with replacement.new_folder(directory, environment.reporter) as partial:
            _fill_sdk(partial / "sdk", torch_package, zig, emulator)
            _fill_python(partial, python)
            site = partial / "site" / "torch"
            shutil.copytree(torch_package, site, copy_function=os.link)
            (site / "__init__.py").write_text(f'__version__ = "{version_in(torch)}"\n')
    return Toolchain(directory, python.tag, key)


def fetch_torch(environment: Environment, torch: Requirement, python: Interpreter) -> Path:
    """Downloads torch's wheel for macOS once; returns the folder of torch's unpacked package."""
    version = version_in(torch)
    folder = f"{torch.name}-{version}-{python.tag}"
    system = (platform(version), python.version)
    return _fetch(environment, torch, folder, _TORCH_PARTS, *system) / "torch"


def fetch_zig(environment: Environment) -> Path:
    """Downloads zig's wheel once; returns the folder with zig's headers for macOS."""
    [zig] = environment.requirements("cross")
    return _fetch(environment, zig, f"zig-{version_in(zig)}", _ZIG_PARTS)


def system_symbols(torch_package: Path) -> dict[str, set[str]]:
    """Returns the symbols that the stubs of macOS's libraries export, by install name.

    A stub exports the symbols that torch's libraries import, and the symbols in `_FURTHER`.  So a
    build cannot use a symbol that needs a newer macOS than torch does.
    """
    imported = [symbols["imports"] for symbols in symbols_of(torch_package).values()]
    by_library = collections.defaultdict(set)
    for exported in (*imported, _FURTHER):
        for name, symbols in exported.items():
            by_library[name].update(symbols)
    return {name: symbols for name, symbols in by_library.items() if not name.startswith("@")}


def symbols_of(torch_package: Path) -> dict[str, dict]:
    """Returns the symbols of torch's libraries, by file name.

    For each library of torch, "exports" is a list of symbols, and "imports" is a dict.  The keys of
    this dict are install names of other libraries; each value is a list of the symbols that are
    imported from such a library.  The result is cached in a file beside the package, because
    reading the libraries takes a gigabyte of memory.
    """
    cache = torch_package.with_name("symbols.json")
    if not cache.exists():
        by_file = {}
        for library in sorted((torch_package / "lib").glob("*.dylib")):
            binary = parse(library)
            imported = {name: sorted(symbols) for name, symbols in imports(binary).items()}
            exported = sorted({symbol.name for symbol in binary.exported_symbols})
            by_file[library.name] = {"exports": exported, "imports": imported}
        replacement.rewrite(cache, json.dumps(by_file))
    return json.loads(cache.read_text())


def loaded(binary) -> list[str]:
    """Returns the install names of the libraries that a Mach-O file loads, in the file's order."""
    import lief

    own = lief.MachO.LoadCommand.TYPE.ID_DYLIB
    return [entry.name for entry in binary.libraries if entry.command != own]


def imports(binary) -> dict[str, set[str]]:
    """Returns the symbols that a Mach-O file imports, by the install name of the exporting library.

    The name is empty for symbols that any library may export.
    """
    libraries = loaded(binary)
    by_library = collections.defaultdict(set)
    for symbol in binary.imported_symbols:
        number = symbol.library_ordinal
        library = libraries[number - 1] if 1 <= number <= len(libraries) else ""
        by_library[library].add(symbol.name)
    return dict(by_library)


def parse(library: Path | io.BytesIO):
    """Parses a Mach-O file; returns its part for arm64, or None if there is none."""
    import lief

    lief.logging.disable()
    binaries = lief.MachO.parse(library)
    return binaries and binaries.take(lief.MachO.Header.CPU_TYPE.ARM64)


def _root(environment: Environment) -> Path:
    """Returns the folder of the toolchains, and of the packages of which they are made."""
    return environment.project.build_root / "macos-arm64"


def _fetch(
    environment: Environment, wanted: Requirement, name: str, parts: tuple[str, ...], *system: str
) -> Path:
    """Downloads a wheel once, and unpacks parts of it below build/; returns the folder.

    Args:
      name: the name of the folder.
      parts: the beginnings of the paths that are unpacked.
      system: the wheel's platform tag and Python version; absent if the wheel is for this machine.
    """
    target = _root(environment) / name
    if not target.exists():
        with replacement.new_folder(target, environment.reporter) as partial:
            wheel = environment.download(wanted, partial, *system)
            with zipfile.ZipFile(wheel) as archive:
                members = [member for member in archive.namelist() if member.startswith(parts)]
                archive.extractall(partial, members)
            wheel.unlink()
    return target


def _fill_sdk(sdk: Path, torch_package: Path, zig: Path, emulator: Path) -> None:
    """Writes the headers and stubs of the SDK.

    Args:
      torch_package: the folder of torch's unpacked package.
      zig: the folder with zig's headers.
      emulator: the emulator's folder `include`.
    """
    headers = sdk / "usr" / "include"
    zig_lib = zig / "ziglang" / "lib"
    shutil.copytree(zig_lib / "libc/include/any-macos-any", headers)
    for name in ("libcxx", "libcxxabi"):
        shutil.copytree(zig_lib / name / "include", headers / "c++" / "v1", dirs_exist_ok=True)
    shutil.copytree(FILES / "os", headers / "os", dirs_exist_ok=True)
    (sdk / "SDKSettings.json").write_text(json.dumps(_SDK_SETTINGS))
    for path in FILES.glob("*.framework"):
        shutil.copytree(path, sdk / "System" / "Library" / "Frameworks" / path.name)
    for source, target in _EMULATOR_HEADERS.items():
        (sdk / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(emulator / source, sdk / target)
    symbols = system_symbols(torch_package)
    for library, target in _STUBS.items():
        file = sdk / f"{target}.tbd"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(stub(library, symbols[library], _REEXPORTED.get(library, ())))


def _fill_python(directory: Path, python: Interpreter) -> None:
    """Writes Python's headers and symbols, and the toolchain's programs."""
    shutil.copytree(python.include, directory / "python")
    shutil.copy(FILES / "pyconfig.h", directory / "python" / "pyconfig.h")
    (directory / "python-symbols").write_text(
        "".join(f"-Wl,-U,_{name}\n" for name in sorted(python.symbols()))
    )
    shutil.copytree(FILES / "bin", directory / "bin")
    write_python(directory / "bin" / "python")


def stub(library: str, symbols: Iterable[str], reexported: Sequence[str]) -> str:
    """Returns the text of a .tbd file, which the linker takes in place of a library.

    Args:
      library: the library's install name.
      symbols: the symbols that it exports.
      reexported: the install names of libraries whose symbols it also exports.
    """
    targets = "targets: [ arm64-macos ]"
    text = f"--- !tapi-tbd\ntbd-version: 4\n{targets}\ninstall-name: '{library}'\n"
    if reexported:
        libraries = json.dumps(reexported)
        text += f"reexported-libraries:\n  - {targets}\n    libraries: {libraries}\n"
    return f"{text}exports:\n  - {targets}\n    symbols: {json.dumps(sorted(symbols))}\n...\n"


def write_python(program: Path) -> None:
    """Writes a script `python`, which CMake runs to ask for the folder and version of torch.

    Python on Linux cannot import the torch that is made for macOS.  So the script puts the folder
    `site` first in Python's path.  The package `torch` in `site` has only torch's version, headers
    and libraries.
    """
    program.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="${{0%/*}}/../site"\nexec "{sys.executable}" "$@"\n'
    )
    program.chmod(0o755)
