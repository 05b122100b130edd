"""Finds the version, headers and symbols of the Python that a wheel is for."""

import dataclasses
import json
import re
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

    program: str  # the path of the program
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
                next_command=f"sudo apt-get install libpython{self.version}-dev",
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

    Raises:
      RequirementMissingError: wheels cannot be made for this Python.
    """
    outcome = process.run([program, "-I", "-c", _FACTS])
    try:
        return Interpreter(str(program), **json.loads(outcome.lines[-1]))
    except (IndexError, TypeError, ValueError):
        said = "\n".join(outcome.lines[-8:]) or "nothing"
        raise _unusable(program, f"it is not {_NEEDED}; its output: {said}") from None


def _unusable(program: str | Path, why: str) -> errors.RequirementMissingError:
    """Returns the error for a Python for which no wheel can be made."""
    return errors.RequirementMissingError(
        f"no wheel can be made or checked for {program}",
        why=why,
        next_command="make build PYTHON=python3.12 in another clone, with a Python that fits",
    )
