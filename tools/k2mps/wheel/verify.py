"""Checks a wheel: whether its files are those of the patched k2, and whether a Mac can load it.

On Linux, a macOS wheel cannot be loaded.  Instead, the checks look up each symbol that the wheel's
libraries import, in the library that should export the symbol.  This library must be in the wheel
or in torch's wheel, or must be a library of macOS whose symbols are known.  The metadata are not
checked, because contents.py has written them.
"""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from k2mps.build import provenance
from k2mps.build.environment import Environment
from k2mps.core import errors
from k2mps.stack.checkout import Checkout
from k2mps.wheel.archive import WheelFile
from k2mps.wheel.expectations import LIBRARY, Problem, Reference, gather
from k2mps.wheel.images import Images

_INFO = {"LICENSE", "METADATA", "RECORD", "WHEEL", "top_level.txt", provenance.FILE}
# How many problems of a wheel the error lists.
_SHOWN = 20
_WRITTEN_BY_CMAKE = "k2/torch_version.py"
_VERSION_LINE = re.compile(rb"__dev_version__ = '[^'\n]*'\n\Z")
# The beginning of a library of compiled kernels for macOS.  The name MTLBuffer begins likewise.
_METALLIB = b"MTLB\x01\x80"
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
        if not problems:
            problems += compiled_kernels(wheel, environment)
    if problems:
        lines = [str(problem) for problem in problems[:_SHOWN]]
        if problems[_SHOWN:]:
            lines.append(f"and {len(problems) - _SHOWN} more")
        raise errors.CheckFailedError(
            f"{path.name} has {len(problems)} problem(s)",
            why="\n".join(lines),
            next_command="k2mps wheel makes a new one",
        )


def verify(wheel: WheelFile, reference: Reference) -> Iterator[Problem]:
    """Yields all problems of a wheel."""
    yield from _files(wheel, reference)
    yield from _origin(wheel, reference)
    yield from _paths(wheel, reference)
    if wheel.tag.platform.startswith("macosx"):
        yield from Images(wheel, reference).problems()


def _files(wheel: WheelFile, reference: Reference) -> Iterator[Problem]:
    """Checks the names of all files, and the contents of the Python files."""
    files, info = wheel.files, wheel.info
    ours = {*reference.python, _WRITTEN_BY_CMAKE}
    allowed = ours | {f"{info}/{name}" for name in _INFO}
    needed = ours | {f"{info}/METADATA", f"{info}/RECORD"}
    for name in files:
        if name not in allowed and not LIBRARY.fullmatch(name):
            yield Problem("files", name, "upstream's wheel has no such file")
    for name in sorted(needed - files.keys()):
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


def _origin(wheel: WheelFile, reference: Reference) -> Iterator[Problem]:
    """Checks that k2mps.json names the tree of the patched k2."""
    name = f"{wheel.info}/{provenance.FILE}"
    try:
        origin = wheel.origin
    except errors.CheckFailedError as error:
        yield Problem("origin", name, error.why)
        return
    if origin["patched_tree"] != reference.origin:
        yield Problem("origin", name, f"not made of the patched tree {reference.origin[:12]}")


def _paths(wheel: WheelFile, reference: Reference) -> Iterator[Problem]:
    """Checks that no library has a path of the machine that built it."""
    own_paths = [re.escape(path.encode()) for path in reference.paths]
    pattern = re.compile(b"|".join([*own_paths, _BUILD_PATH]))
    for name, content in sorted(wheel.files.items()):
        if not LIBRARY.fullmatch(name):
            continue
        match = pattern.search(content)
        if match:
            path = match[0][:200].decode()
            yield Problem("paths", name, f"names {path}, a path of a build machine")


def compiled_kernels(wheel: WheelFile, environment: Environment) -> Iterator[Problem]:
    """Yields the problems of the kernels that a cross build has compiled."""
    if wheel.origin["built"].startswith(provenance.NATIVE):
        return
    root = environment.project.root
    having = {
        name: content
        for name, content in sorted(wheel.files.items())
        if LIBRARY.fullmatch(name) and _METALLIB in content
    }
    if wheel.origin.get("metallib") and not having:
        name = f"{wheel.info}/{provenance.FILE}"
        yield Problem("kernels", name, "promises compiled kernels, but no library has any")
    for name, content in having.items():
        with tempfile.TemporaryDirectory(prefix="k2mps-") as folder:
            library = Path(folder, "library")
            library.write_bytes(content)
            outcome = environment.run(
                ["-m", "k2_mps_tests.apple.check", library],
                cwd=root,
                environment={"PYTHONPATH": str(root / "emulator")},
            )
        if outcome.status != 0:
            for line in outcome.lines or ["the check of the compiled kernels failed"]:
                yield Problem("kernels", name, line)
