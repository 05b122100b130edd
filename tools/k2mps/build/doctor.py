"""What a build needs of the system: what is there, and how to get the rest.

`k2mps doctor` prints the checks; `k2mps build` installs what is missing, or refuses.
"""

import dataclasses
import enum
import glob
import os
import platform
import runpy
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from k2mps.core import errors, git, process
from k2mps.core.progress import Reporter
from k2mps.core.project import Project

CLANG = 19
_MAC = sys.platform == "darwin"
_XCODE = "xcode-select --install"


class Device(enum.Enum):
    """The device that a build of k2 is for."""

    MPS = "mps"
    CPU = "cpu"

    @property
    def emulated(self) -> bool:
        """Whether this machine emulates the device."""
        return self is Device.MPS and sys.platform != "darwin"

    @property
    def label(self) -> str:
        """The name of the device in results; says where it is emulated."""
        return f"{self.value}-emulated" if self.emulated else self.value


@dataclasses.dataclass
class Check:
    """A requirement of the build, or something that only helps the build."""

    name: str  # of the requirement
    wanted: str  # the least that will do, in words
    found: str  # what this machine has, or an empty text
    package: str = ""  # the Debian package that provides it, or an empty text
    fix: str = ""  # the command that provides the requirement; by default, apt-get's
    ok: bool = True  # whether `found` will do; never where it is empty
    needed: bool = True  # whether the build fails without it

    def __post_init__(self) -> None:
        self.fix = self.fix or f"sudo apt-get install {self.package}"
        self.ok = self.ok and bool(self.found)

    @property
    def verdict(self) -> str:
        """One word for the table."""
        if self.ok:
            return "ok"
        if self.needed:
            return "MISSING"
        return "warning" if self.found else "absent"


def examine(device: Device) -> list[Check]:
    """All checks for a build; those for a macOS wheel are not needed."""
    further = [] if _MAC else [dataclasses.replace(cross_checks()[-1], needed=False)]
    return [*system_checks(device), *further]


def system_checks(device: Device) -> list[Check]:
    """Checks for a build on this machine; pip installs what they do not name."""
    if _MAC:
        own = _apple()
    elif device.emulated:
        own = _emulated()
    else:
        # No check of C++20: a compiler without it says so itself.
        found = shutil.which(f"clang++-{CLANG}") or shutil.which("c++") or ""
        own = [Check("C++ compiler", "with C++20", found, "g++")]
    least, version = (".".join(map(str, one)) for one in (git.MINIMUM_VERSION, git.version()))
    new_enough = git.version() >= git.MINIMUM_VERSION
    git_is_from = {"fix": _XCODE} if _MAC else {"package": "git"}
    header = f"{sysconfig.get_path('include')}/Python.h"
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
    ccache, gain = shutil.which("ccache") or "", "any; makes later builds quick"
    return [
        Check("git", f">= {least}", version, ok=new_enough, **git_is_from),
        # An older Python cannot run the tool.
        Check("Python", ">= 3.10", platform.python_version(), fix="make build PYTHON=python3.12"),
        _there("Python headers", "Python.h", header, package),
        *own,
        _there("ccache", gain, ccache, "ccache", "ccache", needed=False),
    ]


def cross_checks() -> list[Check]:
    """Further checks, for a wheel for macOS that is built on Linux."""
    linker = shutil.which(f"ld64.lld-{CLANG}") or ""
    return [clang(), Check(f"ld64.lld-{CLANG}", "links for macOS", linker, f"lld-{CLANG}")]


def torch_faults(project: Project, torch: str, macos: str) -> list[Check]:
    """The faults of a torch on a macOS, from k2's own table; none on another system."""
    table = project.root / "patches/files/k2/python/k2/mps/faults.py"
    if not macos or not table.is_file():
        return []
    # The table runs as a program, since an import would leave compiled code in patches/.
    known_faults = runpy.run_path(str(table))["known_faults"]
    return [
        Check(
            f"torch {torch} on macOS {macos}",
            "without a known fault",
            fault.what,
            fix=fault.link,
            ok=False,
            needed=False,
        )
        for fault in known_faults(torch, macos)
    ]


def lacking(checks: Sequence[Check]) -> list[Check]:
    """The checks without which a build fails."""
    return [check for check in checks if check.needed and not check.ok]


def advice(checks: Sequence[Check]) -> str:
    """What to install before a first build although no build needs it; empty if it is installed."""
    found = next(check for check in checks if check.name == "ccache")
    if found.ok:
        return ""
    return (
        f"recommended before the first build: {found.fix}; what ccache has kept makes the next"
        " build trees a matter of minutes"
    )


def googletest() -> Check:
    """Whether k2's C++ tests can be built."""
    header = Path("/opt/homebrew/include" if _MAC else "/usr/include", "gmock/gmock.h")
    return _there("GoogleTest", "for k2's C++ tests", str(header), "libgmock-dev", "googletest")


def provide(checks: Sequence[Check], reporter: Reporter) -> None:
    """Installs missing packages with apt, if that needs no password.

    If not, the error names everything that is missing, and one command.
    """
    needed = lacking(checks)
    if not needed:
        return
    packages = sorted({check.package for check in needed if check.package})
    others = [check.fix for check in needed if not check.package]
    why = [f"{check.name}: found {check.found or 'nothing'}" for check in needed]
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if packages and not others and all(map(shutil.which, ["apt-get", *root[:1]])):
        script = f"apt-get update; apt-get install -y --no-install-recommends {' '.join(packages)}"
        command = ["env", "DEBIAN_FRONTEND=noninteractive", "sh", "-c", script]
        with reporter.task(f"installing {' '.join(packages)}"):
            outcome = process.run([*root, *command], reporter=reporter)
        if outcome.status == 0:
            return
        why += outcome.lines[-5:]
    apt = [f"sudo apt-get install {' '.join(packages)}"] if packages else []
    raise errors.RequirementMissingError(
        "the build needs " + ", ".join(f"{check.name} ({check.wanted})" for check in needed),
        why="\n".join(why),
        next_command="; ".join([*apt, *others]),
    )


def compilers(device: Device) -> dict[str, str]:
    """The compilers of a build, by CMake language.

    Empty if CMake's own choice is right: on macOS, and on Linux for a CPU build without clang.
    """
    cc, cxx = (shutil.which(name) or name for name in (f"clang-{CLANG}", f"clang++-{CLANG}"))
    if device.emulated:
        return {"C": cc, "CXX": cxx, "OBJC": cc, "OBJCXX": cxx}
    return {} if _MAC or not Path(cxx).is_absolute() else {"C": cc, "CXX": cxx}


def _there(
    name: str, wanted: str, pattern: str, package: str, formula: str = "", needed: bool = True
) -> Check:
    """Checks that a file matches `pattern`.  A package of Debian or a formula of Homebrew has the
    file.  The check fails if `pattern` is empty."""
    source = {"fix": f"brew install {formula}"} if _MAC and formula else {"package": package}
    return Check(name, wanted, min(glob.glob(pattern), default=""), needed=needed, **source)


def _apple() -> list[Check]:
    system, machine = platform.mac_ver()[0], platform.machine()
    tools = process.output(["xcode-select", "-p"])
    clang = process.output(["xcrun", "clang++", "--version"]).split("\n")[0]
    new_enough = bool(system) and int(system.split(".")[0]) >= 14
    arm, of_homebrew = machine == "arm64", "make build PYTHON=/opt/homebrew/bin/python3"
    return [
        Check("macOS", ">= 14", system, fix="softwareupdate --list", ok=new_enough),
        Check("processor", "arm64, and an arm64 Python", machine, fix=of_homebrew, ok=arm),
        Check("Xcode command line tools", "any", tools, fix=_XCODE),
        Check("C++ compiler", "with C++20", clang, fix=_XCODE),
    ]


def _emulated() -> list[Check]:
    # clang takes the newest GCC whose libraries are installed.
    found = [int(path.name) for path in Path("/usr/lib/gcc").glob("*/*") if path.name.isdigit()]
    gcc = max(found, default=12)
    header = f"/usr/lib/gcc/*/{gcc}/include/objc/objc.h"
    libclang = f"/usr/lib/llvm-{CLANG}/include/clang-c/Index.h"
    return [
        clang(),
        _there("Objective-C runtime", "objc/objc.h of GCC", header, f"libobjc-{gcc}-dev"),
        _there("Blocks runtime", "Block.h", "/usr/include/Block.h", "libblocksruntime-dev"),
        # The emulator's front end parses Metal with libclang.
        _there("libclang", f"of LLVM {CLANG}", libclang, f"libclang-{CLANG}-dev"),
    ]


def clang() -> Check:
    """A check of the compiler for Objective-C++, for Metal and for macOS."""
    program = f"clang++-{CLANG}"
    found = shutil.which(program) or ""
    return Check(f"C++ compiler {program}", "with C++20", found, f"clang-{CLANG}")
