"""Lists the functions of Metal's library that k2's kernels call."""

import functools
import re
import subprocess

from k2_mps_tests.kernels import sources

_DEFINED = re.compile(r'define .*?@("[^"]+"|[\w.$]+)\(')
_CALLED = re.compile(r'@("[^"]+"|[\w.$]+)\(')
_LIBRARY = "_ZN5metal"


@functools.cache
def compiled(file):
    """Returns (LLVM's IR before optimizations, [Kernel]) of a file of kernels."""
    return sources.front_end(file).unoptimized_ir()


def called(file):
    """Returns the functions of Metal's library that kernels of a file reach, a set of C++ names."""
    calls = {}
    function = None
    for line in compiled(file)[0].splitlines():
        if match := _DEFINED.match(line):
            function = calls.setdefault(match[1], set())
        elif line == "}":
            function = None
        elif function is not None:
            function.update(_CALLED.findall(line))
    reached, found = set(), set()
    todo = [name for name in calls if name.startswith("mps_emulator_msl_thunk")]
    while todo:
        name = todo.pop()
        if name.startswith(_LIBRARY):
            found.add(name)
        elif name not in reached:
            reached.add(name)
            todo += calls.get(name, ())
    shown = subprocess.run(
        ["c++filt"], input="\n".join(sorted(found)), capture_output=True, text=True, check=True
    )
    return set(shown.stdout.split("\n")) - {""}
