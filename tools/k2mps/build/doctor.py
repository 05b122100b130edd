"""What a build needs, what is found of it, and how to get the rest.

`examine` looks without changing anything; `k2mps doctor` prints it and
`k2mps build` refuses by it.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import platform
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from k2mps.build.environment import Environment, torch_requirement
from k2mps.core import errors, git, process
from k2mps.core.pins import Upstream
from k2mps.core.progress import Reporter
from k2mps.core.project import Project

CLANG = 19
_GIB = 1 << 30

# Measured on Linux with torch for CPUs: the environment takes 1.1 GiB, pip as
# much again while it unpacks, everything under build/ 0.2 GiB, and one
# compiler up to 1.2 GiB of memory.
DISK_BYTES = 3 * _GIB
MEMORY_BYTES_PER_JOB = 3 * _GIB // 2


class Device(enum.Enum):
    """What a build of k2 runs on."""

    MPS = "mps"
    CPU = "cpu"

    @property
    def emulated(self) -> bool:
        """Whether the device exists on this machine only as an emulation."""
        return self is Device.MPS and sys.platform != "darwin"

    @property
    def label(self) -> str:
        """How results on the device are called, wherever they are shown."""
        return f"{self.value}-emulated" if self.emulated else self.value


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that the build needs, or is better with.

    Attributes:
      name: what it is.
      wanted: what is asked for, in words.
      found: what there is, or an empty text.
      ok: whether that will do.
      fix: the command that provides it.
      package: the Debian package that provides it, or an empty text.
      needed: whether the build fails without it.
    """

    name: str
    wanted: str
    found: str
    ok: bool
    fix: str
    package: str = ""
    needed: bool = True

    @property
    def verdict(self) -> str:
        """One word for the table."""
        if self.ok:
            return "ok"
        return "MISSING" if self.needed else "absent"


def examine(
    project: Project,
    upstream: Upstream,
    device: Device,
    torch: str | None = None,
    reporter: Reporter = Reporter(),
) -> list[Check]:
    """All checks for a build, the system's first."""
    return [
        *system_checks(device, reporter),
        *room_checks(project),
        *_python_checks(project, upstream, torch, reporter),
    ]


def system_checks(device: Device, reporter: Reporter = Reporter()) -> list[Check]:
    """Checks of what pip cannot install."""
    checks = [_git(), _python(), _python_headers()]
    if sys.platform == "darwin":
        return [*checks, *_apple(reporter), _ccache()]
    if device.emulated:
        return [*checks, *_emulated(reporter), _ccache()]
    return [*checks, _any_compiler(reporter), _ccache()]


def googletest() -> Check:
    """Whether k2's C++ tests can be built."""
    brew = sys.platform == "darwin"
    header = Path("/opt/homebrew/include" if brew else "/usr/include", "gmock/gmock.h")
    fix = "brew install googletest" if brew else _apt("libgmock-dev")
    return Check(
        "GoogleTest",
        "for k2's C++ tests",
        str(header) if header.exists() else "",
        header.exists(),
        fix,
        "" if brew else "libgmock-dev",
    )


def provide(missing: Sequence[Check], reporter: Reporter) -> None:
    """Installs what is missing with apt where that needs no password.

    Args:
      missing: checks that are not ok.
    Raises:
      RequirementMissingError: something is needed that cannot be installed
        here; names all of it and the one command.
    """
    needed = [check for check in missing if check.needed]
    if not needed:
        return
    packages = sorted({check.package for check in needed if check.package})
    command = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    others = [check for check in needed if not check.package]
    prefix = _privilege(reporter) if packages and not others else None
    if prefix is None:
        raise errors.RequirementMissingError(
            "the build needs " + ", ".join(f"{check.name} ({check.wanted})" for check in needed),
            why="; ".join(f"{check.name}: found {check.found or 'nothing'}" for check in needed),
            next_command=_fixes(packages, others),
        )
    with reporter.task(f"installing {' '.join(packages)}"):
        variables = {"DEBIAN_FRONTEND": "noninteractive"}
        process.run([*prefix, "apt-get", "update"], reporter=reporter, environment=variables)
        outcome = process.run([*prefix, *command], reporter=reporter, environment=variables)
    if outcome.status != 0:
        raise errors.RequirementMissingError(
            f"apt-get could not install {' '.join(packages)}",
            why="\n".join(outcome.lines[-5:]),
            next_command="sudo " + " ".join(command),
        )


def compilers(device: Device) -> dict[str, str]:
    """The compilers of a build, by CMake language.

    Empty where CMake's own choice is right: on macOS, and on Linux for a CPU
    build without clang.
    """
    if sys.platform == "darwin":
        return {}
    cxx, cc = f"clang++-{CLANG}", f"clang-{CLANG}"
    if not device.emulated and not shutil.which(cxx):
        return {}
    found = {"C": cc, "CXX": cxx}
    if device.emulated:
        found.update(OBJC=cc, OBJCXX=cxx)
    return {language: shutil.which(name) or name for language, name in found.items()}


def _git() -> Check:
    wanted = ".".join(map(str, git.MINIMUM_VERSION))
    version = git.version() if shutil.which("git") else ()
    return Check(
        "git",
        f">= {wanted}",
        ".".join(map(str, version)),
        version >= git.MINIMUM_VERSION,
        _apt("git") if sys.platform == "linux" else "xcode-select --install",
        "git",
    )


def _python() -> Check:
    return Check(
        "Python",
        ">= 3.10",
        platform.python_version(),
        sys.version_info >= (3, 10),
        "make build PYTHON=python3.12, or any Python >= 3.10",
    )


def _python_headers() -> Check:
    import sysconfig

    header = Path(sysconfig.get_path("include"), "Python.h")
    name = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
    return Check(
        "Python headers",
        "Python.h",
        str(header) if header.exists() else "",
        header.exists(),
        _apt(name),
        name,
    )


def _ccache() -> Check:
    path = shutil.which("ccache")
    fix = _apt("ccache")
    if sys.platform == "darwin":
        fix = "brew install ccache"
    return Check(
        "ccache",
        "any; makes later builds quick",
        path or "",
        bool(path),
        fix,
        "ccache",
        needed=False,
    )


def _apple(reporter: Reporter) -> list[Check]:
    system = platform.mac_ver()[0]
    machine = platform.machine()
    tools = process.output(["xcode-select", "-p"], reporter)
    clang = process.output(["xcrun", "clang++", "--version"], reporter)
    return [
        Check(
            "macOS",
            ">= 14",
            system,
            bool(system) and int(system.split(".")[0]) >= 14,
            "softwareupdate --list",
        ),
        Check(
            "processor",
            "arm64, and an arm64 Python",
            machine,
            machine == "arm64",
            "make build PYTHON=/opt/homebrew/bin/python3",
        ),
        Check("Xcode command line tools", "any", tools, bool(tools), "xcode-select --install"),
        Check(
            "C++ compiler",
            "with C++20",
            clang.split("\n")[0],
            bool(clang),
            "xcode-select --install",
        ),
    ]


def _emulated(reporter: Reporter) -> list[Check]:
    gcc = _gcc_version()
    objc = f"libobjc-{gcc}-dev"
    checks = [_compiler(f"clang++-{CLANG}", f"clang-{CLANG}", reporter)]
    for name, wanted, pattern, package in (
        (
            "Objective-C runtime",
            "objc/objc.h of GCC",
            f"/usr/lib/gcc/*/{gcc}/include/objc/objc.h",
            objc,
        ),
        ("Blocks runtime", "Block.h", "/usr/include/Block.h", "libblocksruntime-dev"),
    ):
        checks.append(_file(name, wanted, pattern, package))
    return [*checks, libclang()]


def libclang() -> Check:
    """A check of the library that the emulator's front end reads Metal
    with."""
    return _file(
        "libclang",
        f"of LLVM {CLANG}",
        f"/usr/lib/llvm-{CLANG}/include/clang-c/Index.h",
        f"libclang-{CLANG}-dev",
    )


def _file(name: str, wanted: str, pattern: str, package: str) -> Check:
    found = _first(pattern)
    return Check(name, wanted, found, bool(found), _apt(package), package)


def _compiler(program: str, package: str, reporter: Reporter) -> Check:
    text = process.output([program, "--version"], reporter)
    version = re.search(r"\d+\.\d+\.\d+", text)
    return Check(
        f"C++ compiler {program}",
        "with C++20",
        version[0] if version else "",
        bool(version),
        _apt(package),
        package,
    )


def _any_compiler(reporter: Reporter) -> Check:
    clang = _compiler(f"clang++-{CLANG}", f"clang-{CLANG}", reporter)
    if clang.ok:
        return clang
    text = process.output(["c++", "--version"], reporter).split("\n")[0]
    version = re.search(r"(\d+)\.\d+\.\d+", text)
    least = 14 if "clang" in text else 11
    return Check(
        "C++ compiler",
        "with C++20: GCC >= 11 or clang >= 14",
        text,
        bool(version) and int(version[1]) >= least,
        _apt("g++"),
        "g++",
    )


def room_checks(project: Project) -> list[Check]:
    """Checks of disk and memory."""
    free = shutil.disk_usage(project.root).free
    filled = Environment(project).version_of("torch") is not None
    wanted = DISK_BYTES // 6 if filled else DISK_BYTES
    checks = [
        Check(
            "disk space",
            f">= {_gib(wanted)}",
            f"{_gib(free)} free",
            free >= wanted,
            "k2mps clean, or free some space",
        )
    ]
    memory = available_memory()
    if memory is not None:
        checks.append(
            Check(
                "memory",
                f">= {_gib(MEMORY_BYTES_PER_JOB)} a job",
                f"{_gib(memory)} available",
                memory >= MEMORY_BYTES_PER_JOB,
                "close other programs",
                needed=False,
            )
        )
    return checks


def available_memory() -> int | None:
    """Bytes of memory that programs can still take, where that is known."""
    try:
        text = Path("/proc/meminfo").read_text()
        return int(re.search(r"MemAvailable:\s+(\d+) kB", text)[1]) * 1024
    except (OSError, TypeError):
        return None


def _python_checks(
    project: Project, upstream: Upstream, torch: str | None, reporter: Reporter
) -> list[Check]:
    environment = Environment(project, reporter)
    if not environment.exists:
        return [Check(".venv", "a virtual environment", "", False, "make build", needed=False)]
    checks = []
    for entry in [
        torch_requirement(upstream.torch, torch),
        *environment.requirements("build"),
        *environment.requirements("test"),
    ]:
        version = environment.version_of(entry.name)
        checks.append(
            Check(
                entry.name,
                str(entry.specifier),
                version or "",
                not environment.missing([entry]),
                "k2mps build installs it into .venv",
                needed=False,
            )
        )
    return checks


def _gcc_version() -> str:
    """The newest GCC whose libraries are installed: the one clang takes."""
    found = [int(path.name) for path in Path("/usr/lib/gcc").glob("*/*") if path.name.isdigit()]
    return str(max(found)) if found else "12"


def _first(pattern: str) -> str:
    return next(map(str, sorted(Path("/").glob(pattern.lstrip("/")))), "")


def _apt(package: str) -> str:
    return f"sudo apt-get install {package}"


def _privilege(reporter: Reporter) -> list[str] | None:
    """What to put before apt-get to run it unasked, or None."""
    if not shutil.which("apt-get"):
        return None
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "-n"]
    allowed = shutil.which("sudo") and process.output([*sudo, "sh", "-c", "echo yes"], reporter)
    return sudo if allowed else None


def _fixes(packages: Sequence[str], others: Sequence[Check]) -> str:
    commands = [check.fix for check in others]
    if packages:
        commands.insert(0, _apt(" ".join(packages)))
    return "; ".join(commands)


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"
