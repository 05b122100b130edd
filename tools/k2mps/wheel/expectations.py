"""The reference with which a wheel is compared, and the class of a wheel's faults."""

import dataclasses
import re
from collections.abc import Mapping

from k2mps.build import toolchain
from k2mps.build.environment import Environment, torch_requirement
from k2mps.build.interpreter import Interpreter, find
from k2mps.core import errors
from k2mps.stack.checkout import Checkout
from k2mps.stack.commits import series_tip
from k2mps.wheel.archive import WheelFile
from k2mps.wheel.contents import k2_mac_files

# The paths of k2's libraries in a wheel.
LIBRARY = re.compile(
    r"_k2\.cpython-\d+-(?:darwin|\w+-linux-gnu)\.so"
    r"|k2/lib/libk2(?:_log|fsa|context)\.(?:dylib|so)"
)
_PACKAGE = "k2/python/"


@dataclasses.dataclass(frozen=True)
class Problem:
    """A fault of a wheel."""

    check: str  # the name of the check
    file: str  # the file of the wheel
    text: str  # the fault, in words

    def __str__(self) -> str:
        return f"[{self.check}] {self.file}: {self.text}"


@dataclasses.dataclass(frozen=True)
class Reference:
    """The contents that a correct wheel must have."""

    # The Python and .pth files of the patched k2 and of k2_mac, by path in a wheel.
    python: Mapping[str, bytes]
    origin: str  # the id of the tree of the patched k2
    interpreter: Interpreter  # the wheel's Python
    paths: tuple[str, ...] = ()  # directories of this machine that a wheel must not contain
    # The symbols that torch's libraries for macOS export, by path in site-packages.
    torch: Mapping[str, set[str]] = dataclasses.field(default_factory=dict)
    # The symbols that macOS's libraries export, by install name.
    system: Mapping[str, set[str]] = dataclasses.field(default_factory=dict)


def gather(wheel: WheelFile, environment: Environment, checkout: Checkout) -> Reference:
    """Makes the reference for a wheel.

    Raises:
      CheckFailedError: the wheel is for another Python than .venv's.
    """
    project, upstream = environment.project, environment.upstream
    interpreter = find(environment.python)
    if wheel.tag.interpreter != interpreter.tag:
        raise errors.CheckFailedError(
            f"{wheel.path.name} is not for {interpreter.tag}",
            why=f"the wheel's symbols would be compared with those of {interpreter.program}",
            next_command="verify the wheel in a clone whose .venv has the wheel's Python"
            ": make build PYTHON=PROGRAM",
        )
    environment.install_extra("wheels")
    tree = checkout.tree_of(series_tip(project, checkout, upstream.pin))
    files = checkout.objects.files(tree, [f"{_PACKAGE}k2"])
    python = {
        name.removeprefix(_PACKAGE): file.content
        for name, file in files.items()
        if name.endswith(".py")
    }
    paths = (str(project.root), str(checkout.directory))
    python |= k2_mac_files(project)
    reference = Reference(python, tree, interpreter, paths)
    if not wheel.tag.platform.startswith("macosx"):
        return reference
    package = toolchain.fetch_torch(
        environment, torch_requirement(upstream.torch, wheel.torch), interpreter
    )
    torch = {
        f"torch/lib/{name}": set(symbols["exports"])
        for name, symbols in toolchain.symbols_of(package).items()
    }
    system = toolchain.system_symbols(package)
    return dataclasses.replace(reference, torch=torch, system=system)
