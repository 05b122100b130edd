"""The reference that a wheel is compared with, and the problems that are found."""

import dataclasses
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from k2mps.build import toolchain
from k2mps.build.environment import Environment, torch_requirement
from k2mps.build.interpreter import Interpreter, find
from k2mps.build.kernels import FOLDER, SCRIPT, embedded
from k2mps.core import errors
from k2mps.core.objects import File
from k2mps.stack.checkout import Checkout
from k2mps.stack.commits import series_tip
from k2mps.wheel.archive import WheelFile, shown

# The libraries of k2 in a wheel.
LIBRARY = re.compile(
    r"_k2\.cpython-\d+-(?:darwin|\w+-linux-gnu)\.so"
    r"|k2/lib/libk2(?:_log|fsa|context)\.(?:dylib|so)"
)
_PACKAGE = "k2/python/"


@dataclasses.dataclass(frozen=True)
class Problem:
    """One fault of a wheel."""

    check: str  # the name of the check
    file: str  # the file of the wheel
    text: str  # the fault, in words

    def __str__(self) -> str:
        return f"[{self.check}] {shown(self.file)}: {shown(self.text)}"


@dataclasses.dataclass(frozen=True)
class Reference:
    """The reference that a wheel is compared with."""

    python: Mapping[str, bytes]  # the Python files of the patched tree, by path in a wheel
    kernels: Mapping[str, str]  # the text of each kernel source that a Mac needs, by name
    origin: str  # the id of the patched tree
    build_paths: tuple[str, ...] = ()  # directories of this machine that no wheel may name
    # The symbols that torch's libraries for macOS export, by path in site-packages.
    torch: Mapping[str, set[str]] = dataclasses.field(default_factory=dict)
    # The symbols that macOS's libraries export, by install name.
    system: Mapping[str, set[str]] = dataclasses.field(default_factory=dict)
    interpreter: Interpreter = dataclasses.field(default_factory=find)  # the wheel's Python


def gather(
    wheel: WheelFile, environment: Environment, checkout: Checkout, program: str | None = None
) -> Reference:
    """Makes the reference for a wheel; `program` is the wheel's Python, by default .venv's."""
    project, upstream = environment.project, environment.upstream
    found = find(program or environment.python)
    if wheel.tag.interpreter != found.tag:
        raise errors.CheckFailedError(
            f"{shown(wheel.path.name)} is not for {found.tag}",
            why=f"its symbols are looked up in {found.program}",
            next_command=f"k2mps wheel verify {wheel.path} --python PROGRAM, with"
            " the Python that it is for",
        )
    environment.install_group("wheels")
    tree = checkout.tree_of(series_tip(project, checkout, upstream.pin))
    python = {
        name.removeprefix(_PACKAGE): file.content
        for name, file in checkout.files(tree, [f"{_PACKAGE}k2"]).items()
        if name.endswith(".py")
    }
    paths = (str(project.root), str(checkout.directory))
    reference = Reference(python, {}, tree, paths, interpreter=found)
    if not wheel.tag.platform.startswith("macosx"):
        return reference
    package = toolchain.fetch_torch(
        environment, torch_requirement(upstream.torch, wheel.torch), found
    )
    torch = {
        f"torch/lib/{name}": set(symbols["exports"])
        for name, symbols in toolchain.symbols_of(package).items()
    }
    system = toolchain.system_symbols(package, toolchain.fetch_zig(environment))
    sources = checkout.files(tree, [FOLDER, SCRIPT])
    kernels = texts_of_kernels(sources, environment.program("cmake"))
    return dataclasses.replace(reference, kernels=kernels, torch=torch, system=system)


def texts_of_kernels(files: Mapping[str, File], cmake: Path) -> dict[str, str]:
    """The text of each kernel of a tree as its build embeds it, by the name of the .metal file.

    Args:
      files: the kernels of a tree, their headers and the script that embeds them, by path.
    Raises:
      CheckFailedError: there is no kernel, or one includes a file that is missing.
    """
    if not any(name.endswith(".metal") for name in files):
        raise errors.CheckFailedError(
            f"there is no kernel in {FOLDER} of the patched k2",
            why="the wheel's kernels are compared with those",
            next_command="k2mps status",
        )
    with tempfile.TemporaryDirectory() as folder:
        for name, file in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)
        sources = sorted(Path(folder, FOLDER).glob("*.metal"))
        return {path.name: embedded(path, Path(folder), cmake) for path in sources}
