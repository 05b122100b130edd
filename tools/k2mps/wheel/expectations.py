"""The reference that a wheel is compared with, and the problems that are found."""

import dataclasses
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from k2mps.build import doctor, toolchain
from k2mps.build.environment import Environment, torch_requirement
from k2mps.build.interpreter import Interpreter, find
from k2mps.build.kernels import FOLDER, SCRIPT, embedded
from k2mps.core import errors
from k2mps.core.objects import File
from k2mps.stack.checkout import Checkout
from k2mps.stack.commits import series_tip
from k2mps.wheel.archive import WheelFile, refusal, shown

# The local part of a version, see contents.describe: torch, and whether anything was edited.
_LOCAL = re.compile(r"(?:mps\.)?cpu\.torch(\d+(?:\.\d+)*)(\.dirty)?")

# The libraries of k2 in a wheel.
LIBRARY = re.compile(
    r"_k2\.cpython-\d+-(?:darwin|\w+-linux-gnu)\.so"
    r"|k2/lib/libk2(?:_log|fsa|context)\.(?:dylib|so)"
)

_PACKAGE = "k2/python/"
# The emulator's front end for Metal, which this tool runs as a program.
_FRONT_END = "emulator/mps_emulator/msl"


@dataclasses.dataclass(frozen=True)
class Problem:
    """One fault of a wheel."""

    check: str  # the name of the check
    file: str  # the file of the wheel; empty where the wheel's name is wrong
    text: str  # the fault, in words

    def __str__(self) -> str:
        where = f"{shown(self.file)}: " if self.file else ""
        # The front end's messages have several lines.
        text = "\n".join(map(shown, self.text.split("\n")))
        return f"[{self.check}] {where}{text}"


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
    # The messages about kernels that Metal would refuse, by name; and why none was checked, or "".
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unchecked: str = ""
    interpreter: Interpreter = dataclasses.field(default_factory=find)  # the wheel's Python


def gather(
    wheel: Path, environment: Environment, checkout: Checkout, program: str | None = None
) -> Reference:
    """Makes the reference for a wheel; `program` is the wheel's Python, by default .venv's."""
    project, upstream = environment.project, environment.upstream
    _, tags, version_of_torch, _ = parsed(wheel)
    found = find(program or environment.python)
    if {tag.interpreter for tag in tags} != {found.tag}:
        raise errors.CheckFailedError(
            f"{shown(wheel.name)} is not for {found.tag}",
            why=f"its symbols are looked up in {found.program}",
            next_command=f"k2mps wheel verify {wheel} --python PROGRAM, with"
            " the Python that it is for",
        )
    WheelFile(wheel)  # A damaged one is refused before anything is downloaded.
    environment.install_group("wheels")
    tree = checkout.tree_of(series_tip(project, checkout, upstream.pin))
    files = checkout.files(tree, [f"{_PACKAGE}k2"])
    python = {
        name.removeprefix(_PACKAGE): file.content
        for name, file in files.items()
        if name.endswith(".py")
    }
    torch, system, kernels = {}, {}, {}
    if any(tag.platform.startswith("macosx") for tag in tags):
        wanted = torch_requirement(upstream.torch, version_of_torch)
        package = toolchain.fetch_torch(environment, wanted, found)
        torch = {
            f"torch/lib/{name}": set(symbols["exports"])
            for name, symbols in toolchain.symbols_of(package).items()
        }
        system = toolchain.system_symbols(package, toolchain.fetch_zig(environment))
        kernels = texts_of_kernels(
            checkout.files(tree, [FOLDER, SCRIPT]), environment.program("cmake")
        )
    paths = (str(project.root), str(checkout.directory))
    refused, unchecked = refusals(environment, kernels)
    return Reference(python, kernels, tree, paths, torch, system, refused, unchecked, found)


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


def refusals(environment: Environment, kernels: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Checks kernels with the emulator's front end, which knows rules of Metal's compiler.

    Args:
      kernels: the text of each source by its name, e.g. "add.metal".
    Returns:
      The front end's messages about the sources that it refuses, by name; and why it cannot run,
      or "".
    """
    program = environment.project.root / _FRONT_END
    for what, there in (
        (_FRONT_END, program.is_dir()),
        ("the Python package clang", environment.version_of("clang") is not None),
        *((check.package, check.ok) for check in (doctor.clang(), doctor.libclang())),
    ):
        if not there:
            return {}, f"{what} is not there"
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in kernels.items():
            path = Path(folder, name)
            path.write_text(text, encoding="utf-8")
            # k2 compiles without fast math.
            outcome = environment.run([program, "check", "--no-fast-math", path])
            if outcome.status != 0:
                lines = [line.replace(f"{folder}/", "") for line in outcome.lines]
                found[name] = "\n".join(lines[-8:])
    return found, ""


def parsed(wheel: Path):
    """The parts of a wheel's name: version, tags, torch's version or None, whether "dirty"."""
    try:
        _, version, _, tags = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename as error:
        raise refusal(wheel, "the name of a wheel", str(error)) from None
    if len(tags) > 1:
        raise refusal(wheel, "the name of a wheel of k2", "it has several tags")
    match = _LOCAL.fullmatch(version.local or "")
    return version, tags, match and match[1], bool(match and match[2])
