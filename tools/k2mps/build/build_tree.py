"""A build tree: the directory of a build, and the commands of cmake and ninja in it.

There is a build tree in build/ for each combination of device, torch, Python, tree of the patched
k2, and flags.  So if an earlier combination is built again, nothing is compiled.  If the checkout
has edits, the name of the build tree has "edited" in place of the id of k2's tree.  So after each
edit, the same build tree is used again.
"""

import contextlib
import itertools
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from k2mps.build import doctor, interpreter, provenance, toolchain
from k2mps.build.doctor import Device
from k2mps.build.environment import Environment, torch_requirement, version_in
from k2mps.build.request import Request
from k2mps.core import errors, process, replacement
from k2mps.core.git import Git
from k2mps.core.pins import sha256
from k2mps.core.project import Project
from k2mps.stack.applied import series_id
from k2mps.stack.checkout import Checkout

TARGET = "_k2"
# ninja's target for all C++ tests of k2.
TESTS_TARGET = "k2/csrc/all"

# A module of the package k2 with the version of torch for which k2 was built.
TORCH_VERSION = "torch_version.py"

_KERNELS = "k2/csrc/mps/kernels/"
_STAMP = "k2mps-configured.json"
_ERROR = re.compile(r"\b(error|undefined reference|undefined symbol)\b")
_SHOWN_LINES = 40
# The memory in KiB that a compiler process may need: 1.5 GiB.  The largest process that was
# measured had 1.2 GiB.
_KIB_PER_JOB = 3 << 19


class BuildTree:
    """The directory of a build, and the commands that build k2 in it."""

    def __init__(self, environment: Environment, checkout: Checkout, request: Request, tree: str):
        self._environment = environment
        self._checkout = checkout
        self._request = request
        self._toolchain = None
        self._compilers = {} if request.crossed else doctor.compilers(request.device)
        installed = environment.version_of("torch")
        self.python_tag = environment.python_tag
        if request.crossed:
            torch = torch_requirement(environment.upstream.torch, request.torch, request.crossed)
            python = interpreter.find(environment.python)
            self._toolchain = toolchain.assemble(environment, torch, python)
            if request.sdk:
                self._toolchain = toolchain.with_sdk(self._toolchain, request.sdk)
            installed = version_in(torch)
            self.python_tag = python.tag
        # The built k2 does not depend on the local part of torch's version, such as +cpu.
        self.torch = str(installed).split("+")[0]
        # CMake writes the paths, the compilers and the user's arguments into the build.  So they
        # are part of the build tree's name.
        flags = [
            str(environment.project.root),
            str(checkout.directory),
            self._compilers,
            request.cmake_arguments,
        ]
        key = sha256(json.dumps(flags).encode())[:8]
        self.name = "-".join((request.label, f"torch{installed}", self.python_tag, tree, key))
        self.directory = environment.project.build_root / self.name
        self._stamp = self.directory / _STAMP
        # k2's CMake files write this file into the checkout.
        self._torch_version = checkout.directory / "k2/python/k2" / TORCH_VERSION

    def build(self, patched_tree: str | None) -> tuple[int, dict[str, object]]:
        """Builds what has changed; returns the number of ninja's steps, and the build's origin."""
        if self.must_configure():
            self.configure()
        steps = self.compile()
        origin = self.origin(patched_tree)
        libraries = self.directory / "lib"
        libraries.mkdir(exist_ok=True)
        (libraries / provenance.FILE).write_bytes(provenance.as_bytes(origin))
        return steps, origin

    def configure(self) -> None:
        """Runs cmake."""
        command = [
            self._environment.program("cmake"),
            "-G",
            "Ninja",
            "-S",
            self._checkout.directory,
            "-B",
            self.directory,
            *(f"-D{name}={value}" for name, value in self._settings().items()),
            *self._request.cmake_arguments,
        ]
        log = self.directory / "configure.log"
        with self._environment.reporter.task("configuring k2", log), self._copied_version():
            outcome = self._run(command, log)
        if outcome.status != 0:
            # Only CMake's error messages are shown.
            lines = _from("CMake Error", outcome.lines) or outcome.lines
            raise errors.CompileError(
                "cmake could not configure k2",
                why="\n".join(lines[:_SHOWN_LINES]),
                next_command=f"read {log}; k2mps doctor lists missing parts",
            )
        self._stamp.write_text(self._inputs())

    def compile(self) -> int:
        """Runs ninja; returns the number of steps that ninja ran."""
        command = [
            self._environment.program("ninja"),
            "-C",
            self.directory,
            "-j",
            self._request.jobs or fitting_jobs(),
        ]
        if self._request.keep_going:
            command += ["-k", "0"]
        command.append(TESTS_TARGET if self._request.tests else TARGET)
        log = self.directory / "build.log"
        steps = 0
        with self._environment.reporter.task("building k2", log) as update, self._copied_version():

            def follow(line: str) -> None:
                """Passes ninja's progress on, and keeps the number of the last step."""
                nonlocal steps
                if match := process.NINJA_PROGRESS.match(line):
                    steps = int(match[1])
                    update(steps, int(match[2]), match[3].rpartition("/")[2])

            outcome = self._run(command, log, follow)
        if outcome.status != 0:
            failures = _failures(log)
            if not self._request.keep_going:
                failures = failures[:1]
            raise errors.CompileError(
                f"k2 does not build for {self.name}",
                why="\n".join(failures),
                next_command=f"read {log}; free some space if the disk is full; the same"
                " command again continues where it stopped",
            )
        return steps

    @contextlib.contextmanager
    def _copied_version(self) -> Iterator[None]:
        """Copies torch_version.py from the checkout to the build tree at the end of the context.

        A crossed build is for another torch than .venv's, and `import k2` in .venv reads the file
        of the checkout.  So a crossed build restores that file.
        """
        written = self._torch_version
        before = written.read_bytes() if written.exists() else None
        try:
            yield
        finally:
            after = written.read_bytes() if written.exists() else None
            copy = self.directory / TORCH_VERSION
            # ninja runs cmake only if a CMake file has changed.
            if after is not None and (after != before or not copy.exists()):
                copy.write_bytes(after)
            if self._request.crossed and after != before:
                if before is None:
                    written.unlink()
                else:
                    replacement.rewrite(written, before.decode())

    def origin(self, patched_tree: str | None) -> dict[str, object]:
        """Returns the origin of the build, see provenance.py.

        The result does not depend on the time, nor on the directory of the build.

        Args:
          patched_tree: the tree of k2 with the series; None if the checkout has edits.
        """
        environment, request = self._environment, self._request
        upstream = environment.upstream
        kernels = {}
        if request.device is Device.MPS:
            for path in sorted((self._checkout.directory / _KERNELS).glob("*.metal")):
                kernels[_KERNELS + path.name] = sha256(path.read_bytes())
        headers = {"pybind11": environment.version_of("pybind11") or ""}
        if self._toolchain:
            [zig] = environment.requirements("cross")
            headers[zig.name] = version_in(zig)
        root = environment.project.root
        dirty = None  # None if the project is not a git clone
        if (root / ".git").exists():
            dirty = bool(Git(root).text("status", "--porcelain", "--untracked-files=normal"))
        built = toolchain.LABEL if self._toolchain else provenance.NATIVE
        return {
            "built": built + (", for a check only" if request.quick else ""),
            "compiler": self._compiler(),
            "device": request.device.value if request.crossed else request.device.label,
            "dirty": patched_tree is None or dirty,
            "headers": headers,
            "kernels": kernels,
            "metallib": request.metallib,
            "patched_tree": patched_tree,
            "series": patched_tree and series_id(self._checkout),
            "torch": self.torch,
            "upstream": {"url": upstream.pin.url, "commit": upstream.pin.commit},
        }

    def _compiler(self) -> str:
        """Returns the compiler's name and version, as CMake found them."""
        pattern = r'set\(CMAKE_CXX_COMPILER_(?:ID|VERSION) "([^"]*)"\)'
        files = self.directory.glob("CMakeFiles/*/CMakeCXXCompiler.cmake")
        matches = [re.findall(pattern, path.read_text(encoding="utf-8")) for path in files]
        return " ".join(matches[0]) if matches else "unknown"

    def _run(
        self,
        command: Sequence[object],
        log: Path,
        follow: Callable[[str], None] = lambda line: None,
    ) -> process.Outcome:
        """Runs cmake or ninja with the environment variables of this build.

        Args:
          log: the file to which the whole output is written.
          follow: called with each line of the output.
        """
        variables = {
            "NINJA_STATUS": "[%f/%t] ",
            # CMake imports torch only to find torch's folder, so torch need not load the emulator.
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        }
        # With these settings, ccache makes paths relative to the project's directory, so that build
        # trees share object files.  Of the builds for wheels, only quick ones use these settings:
        # other wheels must have the same contents with and without ccache.
        if self._request.quick or not self._request.for_wheel:
            variables.update(shared_objects(self._environment.project))
        if self._toolchain:
            programs = str(self._toolchain.directory / "bin")
            variables["PATH"] = os.pathsep.join([programs, os.environ["PATH"]])
        return process.run(
            command,
            reporter=self._environment.reporter,
            log=log,
            environment=variables,
            on_line=follow,
        )

    def must_configure(self) -> bool:
        """Whether cmake must run before ninja.

        This method ignores edits of CMake files, because ninja itself runs cmake after such edits.
        """
        configured = (self.directory / "build.ninja").exists() and self._stamp.exists()
        return not configured or self._stamp.read_text() != self._inputs()

    def _inputs(self) -> str:
        """Returns, as JSON, those inputs of cmake that are not part of the build tree's name."""
        environment, request = self._environment, self._request
        # A build for another torch overwrites the checkout's file.
        written = self.directory / TORCH_VERSION if request.crossed else self._torch_version
        inputs = {
            "settings": self._settings(),
            # k2 compiles the commit's id into its version.
            "commit": self._checkout.head().commit,
            "torch_version.py": sha256(written.read_bytes()) if written.exists() else "",
            "pybind11": environment.version_of("pybind11"),
            "cmake": environment.version_of("cmake"),
        }
        if self._toolchain:
            inputs["toolchain"] = self._toolchain.key
        if request.emulated:
            inputs["emulator"] = environment.tree_key(environment.project.root / "emulator")
        return json.dumps(inputs, indent=2)

    def _settings(self) -> dict[str, str]:
        """Returns the variables for cmake."""
        environment, request = self._environment, self._request
        packages = environment.site_packages
        settings = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_CXX_STANDARD": "20",  # the standard of torch's headers
            "CMAKE_MAKE_PROGRAM": str(environment.program("ninja")),
            "CMAKE_PROJECT_k2_INCLUDE": str(environment.project.root / "CMakeLists.overlay.cmake"),
            "K2_ENABLE_BENCHMARK": "OFF",
            "K2_ENABLE_TESTS": "ON" if request.tests else "OFF",
            "K2_WITH_CUDA": "OFF",
            "K2_WITH_MPS": "ON" if request.device is Device.MPS else "OFF",
            "PYTHON_EXECUTABLE": str(environment.python),
            "mps_emulator_DIR": str(packages / "mps_emulator/cmake"),
            "pybind11_DIR": str(packages / "pybind11/share/cmake/pybind11"),
        }
        for language, compiler in self._compilers.items():
            settings[f"CMAKE_{language}_COMPILER"] = compiler
        if ccache := shutil.which("ccache"):
            for language in ("C", "CXX", "OBJCXX"):
                settings[f"CMAKE_{language}_COMPILER_LAUNCHER"] = ccache
        if request.for_wheel:
            settings["K2_FOR_WHEEL"] = "ON"
            if request.device is Device.MPS:
                settings["CMAKE_OSX_DEPLOYMENT_TARGET"] = toolchain.least_macos(self.torch)
        if request.quick:
            settings["K2_UNITY"] = "ON"
            # With -O0, k2 would need symbols of libc++ that torch's libraries do not import.  The
            # toolchain's stub of libc++ lacks such symbols.
            for language in ("C", "CXX", "OBJCXX"):
                settings[f"CMAKE_{language}_FLAGS_RELEASE"] = "-O1 -DNDEBUG"
        if request.metallib:
            front_end = environment.project.root / "emulator/mps_emulator/msl"
            settings["K2_METAL_COMPILER"] = f"{environment.python};{front_end};metallib"
            # No Mac has loaded such kernels yet.
            settings["K2_SKIPS_METALLIB"] = "ON"
        if self._toolchain:
            settings.update(self._toolchain.settings())
        return settings


def shared_objects(project: Project) -> dict[str, str]:
    """Returns the environment variables with which ccache shares objects between directories."""
    return {"CCACHE_BASEDIR": str(project.root), "CCACHE_NOHASHDIR": "true"}


def fitting_jobs() -> int:
    """Returns how many compilers may run at once, given the processors and the free memory."""
    on_linux = hasattr(os, "sched_getaffinity")
    processors = len(os.sched_getaffinity(0)) if on_linux else os.cpu_count() or 1
    memory = Path("/proc/meminfo")
    facts = memory.read_text() if memory.exists() else ""
    available = re.search(r"MemAvailable: +(\d+) kB", facts)
    if not available:
        return processors
    fitting = int(available[1]) // _KIB_PER_JOB
    return min(processors, max(1, fitting))


def _from(start: str, lines: Sequence[str]) -> list[str]:
    """Returns the first line that starts with `start`, and all later lines.

    If no line starts with `start`, the result is empty.
    """
    return list(itertools.dropwhile(lambda line: not line.startswith(start), lines))


def _failures(log: Path) -> list[str]:
    """Returns the output of each step that failed, from its first error on.

    A step's output before this error is left out, because it can be hundreds of warnings.
    If no step has failed, the function returns the last lines of the log.
    """
    output = log.read_text(encoding="utf-8", errors="replace").splitlines()
    begins = [at for at, line in enumerate(output) if line.startswith("FAILED:")]
    ends = [*begins[1:], len(output)]
    shown = []
    for begin, end in zip(begins, ends):
        # The second line, which is the step's command, is left out.
        title, lines = output[begin], output[begin + 2 : end]
        first = next((at for at, line in enumerate(lines) if _ERROR.search(line)), 0)
        shown.append("\n".join([title, *lines[first : first + _SHOWN_LINES]]))
    return shown or ["\n".join(output[-_SHOWN_LINES:])]
