"""The requirements of a build: which are met, and how to get the rest.

`k2mps doctor` prints the checks; `k2mps build` refuses where a needed one fails.
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

from k2mps.build.environment import Environment, torch_requirement
from k2mps.core import errors, git, process
from k2mps.core.progress import Reporter

CLANG = 19
# The package with the C++ library for macOS; it is unpacked, not installed.
LIBCXX = f"libc++-{CLANG}-dev"
_GIB = 1 << 30
_MAC = sys.platform == "darwin"
_XCODE = "xcode-select --install"

# Measured on Linux with torch for CPUs: the environment takes 1.1 GiB, pip as much again while it
# unpacks, and everything under build/ 0.2 GiB.
DISK_BYTES = 3 * _GIB


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
        return "MISSING" if self.needed else "absent"


def examine(environment: Environment, device: Device, torch: str | None = None) -> list[Check]:
    """All checks for a build, the system's first; those for a macOS wheel are not needed."""
    own = system_checks(device)
    there = {check.name for check in own}
    for check in [] if _MAC else cross_checks():
        if check.name not in there:
            own.append(dataclasses.replace(check, needed=False))
    return [*own, disk_check(environment), *_package_checks(environment, torch)]


def system_checks(device: Device) -> list[Check]:
    """Checks of what pip cannot install."""
    if _MAC:
        own = _apple()
    elif device.emulated:
        own = _emulated()
    else:
        # The compiler itself says what it lacks for C++20.
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
    """Checks of what a wheel for macOS needs on Linux besides."""
    linker, apt = shutil.which(f"ld64.lld-{CLANG}") or "", shutil.which("apt-get") or ""
    headers = f"provides the headers of {LIBCXX}"
    return [
        clang(),
        Check(f"ld64.lld-{CLANG}", "links for macOS", linker, f"lld-{CLANG}"),
        libclang(),
        Check("apt-get", headers, apt, fix="use Debian or Ubuntu for --target macos-arm64"),
    ]


def lacking(checks: Sequence[Check]) -> list[Check]:
    """The checks without which a build fails."""
    return [check for check in checks if check.needed and not check.ok]


def googletest() -> Check:
    """Whether k2's C++ tests can be built."""
    header = Path("/opt/homebrew/include" if _MAC else "/usr/include", "gmock/gmock.h")
    return _there("GoogleTest", "for k2's C++ tests", str(header), "libgmock-dev", "googletest")


def provide(checks: Sequence[Check], reporter: Reporter) -> None:
    """Installs missing packages with apt, where that needs no password.

    Elsewhere the error names everything that is missing, and one command.
    """
    needed = lacking(checks)
    if not needed:
        return
    packages = sorted({check.package for check in needed if check.package})
    others = [check.fix for check in needed if not check.package]
    prefix = _privilege() if packages and not others else None
    if prefix is None:
        apt = [f"sudo apt-get install {' '.join(packages)}"] if packages else []
        raise errors.RequirementMissingError(
            "the build needs " + ", ".join(f"{check.name} ({check.wanted})" for check in needed),
            why="; ".join(f"{check.name}: found {check.found or 'nothing'}" for check in needed),
            next_command="; ".join([*apt, *others]),
        )
    command = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    variables = {"DEBIAN_FRONTEND": "noninteractive"}
    with reporter.task(f"installing {' '.join(packages)}"):
        process.run([*prefix, "apt-get", "update"], reporter=reporter, environment=variables)
        outcome = process.run([*prefix, *command], reporter=reporter, environment=variables)
    failure = f"apt-get could not install {' '.join(packages)}"
    outcome.check(errors.RequirementMissingError, failure, f"sudo {' '.join(command)}")


def compilers(device: Device) -> dict[str, str]:
    """The compilers of a build, by CMake language.

    Empty where CMake's own choice is right: on macOS, and on Linux for a CPU build without clang.
    """
    cc, cxx = (shutil.which(name) or name for name in (f"clang-{CLANG}", f"clang++-{CLANG}"))
    if device.emulated:
        return {"C": cc, "CXX": cxx, "OBJC": cc, "OBJCXX": cxx}
    return {} if _MAC or not Path(cxx).is_absolute() else {"C": cc, "CXX": cxx}


def _there(
    name: str, wanted: str, pattern: str, package: str, formula: str = "", needed: bool = True
) -> Check:
    """A check that a file of a package of Debian or Homebrew exists; `pattern` may be empty."""
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
    return [
        clang(),
        _there("Objective-C runtime", "objc/objc.h of GCC", header, f"libobjc-{gcc}-dev"),
        _there("Blocks runtime", "Block.h", "/usr/include/Block.h", "libblocksruntime-dev"),
        libclang(),
    ]


def libclang() -> Check:
    """A check of the library with which the emulator's front end parses Metal."""
    header = f"/usr/lib/llvm-{CLANG}/include/clang-c/Index.h"
    return _there("libclang", f"of LLVM {CLANG}", header, f"libclang-{CLANG}-dev")


def clang() -> Check:
    """A check of the compiler for Objective-C++, for Metal and for macOS."""
    program = f"clang++-{CLANG}"
    found = shutil.which(program) or ""
    return Check(f"C++ compiler {program}", "with C++20", found, f"clang-{CLANG}")


def disk_check(environment: Environment) -> Check:
    """Whether there is room for a build and, if need be, for the environment."""
    free = shutil.disk_usage(environment.project.root).free
    filled = environment.version_of("torch") is not None
    wanted = DISK_BYTES // 6 if filled else DISK_BYTES
    found, fix = f"{_gib(free)} free", "k2mps clean, or free some space"
    return Check("disk space", f">= {_gib(wanted)}", found, fix=fix, ok=free >= wanted)


def _package_checks(environment: Environment, torch: str | None) -> list[Check]:
    if not environment.exists:
        return [Check(".venv", "a virtual environment", "", fix="make build", needed=False)]
    chosen = torch_requirement(environment.upstream.torch, torch)
    checks, fix = [], "k2mps build installs it into .venv"
    for entry in [chosen, *environment.requirements("build", "test", "wheels")]:
        wanted, found = str(entry.specifier), environment.version_of(entry.name) or ""
        ok = not environment.missing([entry])
        checks.append(Check(entry.name, wanted, found, fix=fix, ok=ok, needed=False))
    return checks


def _privilege() -> list[str] | None:
    """The words before apt-get that run it without a password, or None."""
    if not shutil.which("apt-get"):
        return None
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "-n"]
    return sudo if process.output([*sudo, "sh", "-c", "echo yes"]) else None


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"
