"""Checks whether the system has what a build needs, and tells how to install what is missing.

`k2mps doctor` prints the checks.  `k2mps build` installs the missing packages if possible;
otherwise it stops with an error.
"""

import dataclasses
import enum
import glob
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from k2mps.core import errors, git, process
from k2mps.core.progress import Reporter

CLANG = 19
_MAC = sys.platform == "darwin"
_XCODE = "xcode-select --install"


class Device(enum.Enum):
    """The device that a build of k2 is for."""

    MPS = "mps"
    CPU = "cpu"

    @property
    def emulated(self) -> bool:
        """Whether the device is emulated on this machine."""
        return self is Device.MPS and sys.platform != "darwin"

    @property
    def label(self) -> str:
        """The name of the device in results, such as "mps-emulated"."""
        return f"{self.value}-emulated" if self.emulated else self.value


@dataclasses.dataclass
class Check:
    """A check of a program, library or system that a build needs, or that only helps a build."""

    name: str  # the name of the program, library or system
    wanted: str  # the requirement, in words
    found: str  # what this machine has; empty if it has nothing
    package: str = ""  # the Debian package to install; empty if there is none
    fix: str = ""  # the command that meets the requirement; by default, apt-get with `package`
    ok: bool = True  # whether `found` meets the requirement; False if `found` is empty
    needed: bool = True  # whether the build fails if the requirement is not met

    def __post_init__(self) -> None:
        self.fix = self.fix or f"sudo apt-get install {self.package}"
        self.ok = self.ok and bool(self.found)

    @property
    def verdict(self) -> str:
        """The result of the check in one word, for the table."""
        if self.ok:
            return "ok"
        return "MISSING" if self.needed else "absent"


def examine(device: Device) -> list[Check]:
    """Returns the checks for a build.  On Linux, these include the linker for macOS, which only a
    wheel for macOS needs."""
    checks = system_checks(device)
    if not _MAC:
        _, linker = cross_checks()
        checks.append(dataclasses.replace(linker, needed=False))
    return checks


def system_checks(device: Device) -> list[Check]:
    """Returns the checks for a build on this machine.  pip installs all other requirements."""
    if _MAC:
        own = _apple()
    elif device.emulated:
        own = _emulated()
    else:
        # C++20 is not checked: a compiler that lacks it fails with a clear message.
        compiler = shutil.which(f"clang++-{CLANG}") or shutil.which("c++") or ""
        own = [Check("C++ compiler", "with C++20", compiler, "g++")]
    installed = git.version()
    version = ".".join(map(str, installed))
    least = ".".join(map(str, git.MINIMUM_VERSION))
    new_enough = installed >= git.MINIMUM_VERSION
    git_is_from = {"fix": _XCODE} if _MAC else {"package": "git"}
    header = f"{sysconfig.get_path('include')}/Python.h"
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
    ccache = shutil.which("ccache") or ""
    return [
        Check("git", f">= {least}", version, ok=new_enough, **git_is_from),
        # This check never fails, because an older Python cannot run the tool.
        Check("Python", ">= 3.10", platform.python_version(), fix="make build PYTHON=python3.12"),
        _file_check("Python headers", "Python.h", header, package),
        *own,
        _file_check(
            "ccache", "any; makes later builds quick", ccache, "ccache", "ccache", needed=False
        ),
    ]


def cross_checks() -> list[Check]:
    """Returns the further checks for a wheel for macOS that is built on Linux."""
    linker = shutil.which(f"ld64.lld-{CLANG}") or ""
    return [clang(), Check(f"ld64.lld-{CLANG}", "links for macOS", linker, f"lld-{CLANG}")]


def assembler() -> Check:
    """Checks that the program is installed that writes compiled kernels in a cross build."""
    program = shutil.which("llvm-as-14") or ""
    return Check("llvm-as-14", "writes compiled kernels for macOS", program, "llvm-14")


def lacking(checks: Sequence[Check]) -> list[Check]:
    """Returns the failed checks of things that the build needs."""
    return [check for check in checks if check.needed and not check.ok]


def googletest() -> Check:
    """Checks that GoogleTest and GoogleMock, which k2's C++ tests need, are installed."""
    header = Path("/opt/homebrew/include" if _MAC else "/usr/include", "gmock/gmock.h")
    return _file_check(
        "GoogleTest", "for k2's C++ tests", str(header), "libgmock-dev", "googletest"
    )


def provide(checks: Sequence[Check], reporter: Reporter) -> None:
    """Installs missing packages with apt-get, if apt-get is there and needs no password.

    Raises:
      RequirementMissingError: something that is needed cannot be installed this way.  The error
        names all missing things, and the commands that install them.
    """
    needed = lacking(checks)
    if not needed:
        return
    packages = sorted({check.package for check in needed if check.package})
    fixes = [check.fix for check in needed if not check.package]
    why = [f"{check.name}: found {check.found or 'nothing'}" for check in needed]
    is_root = os.geteuid() == 0
    may_install = shutil.which("apt-get") and (is_root or shutil.which("sudo"))
    if packages and not fixes and may_install:
        script = f"apt-get update; apt-get install -y --no-install-recommends {' '.join(packages)}"
        command = ["env", "DEBIAN_FRONTEND=noninteractive", "sh", "-c", script]
        if not is_root:
            command = ["sudo", "-n", *command]
        with reporter.task(f"installing {' '.join(packages)}"):
            outcome = process.run(command, reporter=reporter)
        if outcome.status == 0:
            return
        why += outcome.lines[-5:]
    commands = [f"sudo apt-get install {' '.join(packages)}"] if packages else []
    commands += fixes
    raise errors.RequirementMissingError(
        "the build needs " + ", ".join(f"{check.name} ({check.wanted})" for check in needed),
        why="\n".join(why),
        next_command="; ".join(commands),
    )


def compilers(device: Device) -> dict[str, str]:
    """Returns the compilers of a build, by CMake's names for the languages.

    The result is empty if CMake chooses the compilers itself: on macOS; and on Linux for the CPU,
    if clang is missing.
    """
    cc = shutil.which(f"clang-{CLANG}") or f"clang-{CLANG}"
    cxx = shutil.which(f"clang++-{CLANG}") or f"clang++-{CLANG}"
    if device.emulated:
        return {"C": cc, "CXX": cxx, "OBJC": cc, "OBJCXX": cxx}
    has_clang = Path(cxx).is_absolute()
    return {"C": cc, "CXX": cxx} if has_clang and not _MAC else {}


def _file_check(
    name: str, wanted: str, pattern: str, package: str, formula: str = "", needed: bool = True
) -> Check:
    """Checks that there is a file whose path matches `pattern`.

    Args:
      pattern: a pattern of glob; if it is empty, the check fails.
      package, formula: the package of Debian, and the formula of Homebrew, that have the file.
    """
    found = min(glob.glob(pattern), default="")
    if _MAC and formula:
        return Check(name, wanted, found, fix=f"brew install {formula}", needed=needed)
    return Check(name, wanted, found, package, needed=needed)


def _apple() -> list[Check]:
    """Returns the checks for a build on a Mac."""
    system, _, _ = platform.mac_ver()
    machine = platform.machine()
    tools = process.output(["xcode-select", "-p"])
    compiler, _, _ = process.output(["xcrun", "clang++", "--version"]).partition("\n")
    return [
        Check(
            "macOS",
            ">= 14",
            system,
            fix="softwareupdate --list",
            ok=bool(system) and int(system.split(".")[0]) >= 14,
        ),
        Check(
            "processor",
            "arm64, and an arm64 Python",
            machine,
            fix="make build PYTHON=/opt/homebrew/bin/python3",
            ok=machine == "arm64",
        ),
        Check("Xcode command line tools", "any", tools, fix=_XCODE),
        Check("C++ compiler", "with C++20", compiler, fix=_XCODE),
    ]


def _emulated() -> list[Check]:
    """Returns the checks for a build with the emulated mps device."""
    # clang uses the headers of the newest GCC whose libraries are installed.
    versions = [int(path.name) for path in Path("/usr/lib/gcc").glob("*/*") if path.name.isdigit()]
    gcc = max(versions, default=12)
    header = f"/usr/lib/gcc/*/{gcc}/include/objc/objc.h"
    libclang = f"/usr/lib/llvm-{CLANG}/include/clang-c/Index.h"
    return [
        clang(),
        _file_check("Objective-C runtime", "objc/objc.h of GCC", header, f"libobjc-{gcc}-dev"),
        _file_check("Blocks runtime", "Block.h", "/usr/include/Block.h", "libblocksruntime-dev"),
        # The emulator's front end parses Metal with libclang.
        _file_check("libclang", f"of LLVM {CLANG}", libclang, f"libclang-{CLANG}-dev"),
    ]


def clang() -> Check:
    """Checks for clang, which compiles Objective-C++, the emulated Metal, and code for macOS."""
    program = f"clang++-{CLANG}"
    path = shutil.which(program) or ""
    return Check(f"C++ compiler {program}", "with C++20", path, f"clang-{CLANG}")
