"""Finds the version, headers and symbols of the Python that a wheel is for."""

import dataclasses
import json
import os
import re
import shutil
import sys
from pathlib import Path

from k2mps.core import errors, process

# The kinds of Python for which torch has wheels.
_NEEDED = "CPython 3.10 or newer, neither free-threaded nor a debug build"
_FACTS = """
import json, os, sys, sysconfig as s
v = s.get_config_var
supported = sys.implementation.name == 'cpython' and sys.version_info >= (3, 10)
if not supported or set('td') & set(sys.abiflags):
    sys.exit(f'{sys.implementation.name} {sys.version}, flags {sys.abiflags!r}')
shared = os.path.join(v('LIBDIR') or '', v('INSTSONAME') or '')
print(json.dumps({
    'number': '.'.join(map(str, sys.version_info[:3])),
    'include': s.get_path('include'),
    'library': shared if v('Py_ENABLE_SHARED') else os.path.realpath(sys.executable),
}))
"""


@dataclasses.dataclass(frozen=True)
class Interpreter:
    """A CPython, 3.10 or newer."""

    program: str  # the path of the program, or of the folder with an unpacked Python
    number: str  # the full version, such as "3.12.7"
    include: str  # the directory for the headers, which may not be installed
    library: str  # the file that exports Python's symbols

    @property
    def version(self) -> str:
        """The version for which extensions are compiled, such as "3.12"."""
        return ".".join(self.number.split(".")[:2])

    @property
    def tag(self) -> str:
        """The tag of this Python in names of wheels, such as "cp312"."""
        return "cp" + self.version.replace(".", "")

    def check_headers(self) -> None:
        """Raises RequirementMissingError if the headers are not installed."""
        header = Path(self.include, "Python.h")
        if not header.exists():
            raise errors.RequirementMissingError(
                f"the headers of Python {self.version} are missing: {header} does not exist",
                why=f"a wheel for {self.tag} is compiled with the headers of {self.program}",
                next_command=f"sudo apt-get install libpython{self.version}-dev; or give --python"
                f" another Python {self.version}, or a folder with an unpacked one",
            )

    def symbols(self) -> set[str]:
        """Returns the symbols of Python that the library exports, by their names in C code."""
        import lief

        lief.logging.disable()
        binary = lief.parse(self.library)
        exported = (str(symbol.name) for symbol in binary.exported_symbols) if binary else ()
        # In a Mach-O file, each name starts with an additional "_".
        mach_o = isinstance(binary, lief.MachO.Binary)
        names = (name.removeprefix("_") if mach_o else name for name in exported)
        symbols = {name for name in names if re.match(r"_?Py", name)}
        if not symbols:
            raise _unusable(self.program, f"{self.library} exports nothing of Python's")
        return symbols


def find(program: str | Path = sys.executable) -> Interpreter:
    """Finds the version, headers and library of a Python.

    Args:
      program: the name or path of a program, which is run; or a folder with an unpacked Python.
        An unpacked Python is not run, so it may be for another system.
    Raises:
      RequirementMissingError: there is no such Python, or wheels cannot be made for it.
    """
    if os.path.isdir(program):
        return _unpacked(Path(program).absolute())
    path = shutil.which(program)
    if not path:
        raise _unusable(program, "there is no such program")
    outcome = process.run([path, "-I", "-c", _FACTS])
    try:
        return Interpreter(os.path.abspath(path), **json.loads(outcome.lines[-1]))
    except (IndexError, TypeError, ValueError):
        said = "\n".join(outcome.lines[-8:]) or "nothing"
        raise _unusable(program, f"it is not {_NEEDED}; its output: {said}") from None


def _unpacked(folder: Path) -> Interpreter:
    headers = [path.parent for path in folder.glob("**/include/python3.*/Python.h")]
    if len(headers) != 1 or not re.fullmatch(r"python3\.\d\d", headers[0].name):
        listed = errors.some([str(path) for path in headers]) or "none"
        why = f"one folder of headers is needed, like include/python3.12; there is {listed}"
        raise _unusable(folder, why)
    numbers = re.findall(
        r"^#define PY_M\w+_VERSION\s+(\d+)$", (headers[0] / "patchlevel.h").read_text(), re.M
    )
    name = headers[0].name
    # Archives are left out, and so are links to files of a package that is not unpacked.
    libraries = [
        path
        for pattern in (f"**/lib{name}.*", f"**/bin/{name}")
        for path in folder.glob(pattern)
        if path.suffix != ".a" and path.is_file()
    ]
    library = libraries[0] if libraries else folder / f"lib{name}.so"
    return Interpreter(str(folder), ".".join(numbers), str(headers[0]), str(library))


def _unusable(program: str | Path, why: str) -> errors.RequirementMissingError:
    return errors.RequirementMissingError(
        f"no wheel can be made or checked for {program}",
        why=why,
        next_command="give --python a program, like /usr/bin/python3.12, or a folder with an"
        " unpacked Python",
    )
