"""Building k2's Python module: environment, patches, cmake, ninja, demo.

Build trees lie under build/, one for each (device, torch, Python, patched
tree, flags), so that switching between any two of them rebuilds nothing.  A
checkout with the contributor's own edits has one tree, keyed "edited", that
follows the edits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from k2mps.build import doctor, provenance
from k2mps.build.doctor import Device
from k2mps.build.environment import Environment, torch_requirement
from k2mps.build.toolchain import Toolchain
from k2mps.core import errors, process
from k2mps.core.pins import Upstream
from k2mps.core.progress import Reporter
from k2mps.core.project import Project, exclusive
from k2mps.stack import apply, status
from k2mps.stack.checkout import Checkout
from k2mps.stack.status import State

TARGET = "_k2"
# All that k2's C++ tests are made of.
TESTS_TARGET = "k2/csrc/all"

# Names the build tree of a checkout with edits.
_EDITED = "edited"

_STAMP = "k2mps-configured.json"
_REGISTER = "k2mps-build.pth"
_INSTALLER = "k2mps\n"
# Step 0 is ninja looking whether there is anything to do.
_PROGRESS = re.compile(r"\[([1-9]\d*)/(\d+)\] (.*)")
_ERROR = re.compile(r"\b(error|undefined reference|undefined symbol)\b")
_SHOWN_LINES = 40


@dataclasses.dataclass(frozen=True)
class Request:
    """What to build.

    Attributes:
      device: what for.
      torch: a torch version among the supported ones, or None for the
        default.
      jobs: how many compilers run at once, or None for what fits.
      cmake_arguments: further arguments for cmake.
      for_wheel: whether the result goes into a wheel: its files name no
        directory of this machine, and expect torch beside them.
      toolchain: what to build for macOS with, elsewhere than there.
      as_is: whether to build the checkout as it is, without applying the
        series.
      tests: whether to build k2's C++ tests, in place of its Python module.
    """

    device: Device = Device.MPS
    torch: str | None = None
    jobs: int | None = None
    cmake_arguments: tuple[str, ...] = ()
    for_wheel: bool = False
    toolchain: Toolchain | None = None
    as_is: bool = False
    tests: bool = False

    @property
    def emulated(self) -> bool:
        """Whether the device of this build is an emulated one."""
        return self.device.emulated and self.toolchain is None

    @property
    def built_device(self) -> str:
        """What the build runs on, and whether that is emulated."""
        device = self.device
        return device.value if self.toolchain else device.label

    @property
    def label(self) -> str:
        """What the build is for, as its directory says."""
        label = self.device.label
        if self.toolchain:
            label = f"{self.device.value}-macos-arm64"
        if self.tests:
            label += "-cpp"
        return f"{label}-wheel" if self.for_wheel else label


@dataclasses.dataclass(frozen=True)
class Built:
    """A finished build.

    Attributes:
      device: what for.
      checkout: the k2 that was built.
      directory: its build tree.
      python_path: what makes `import k2` work, in order.
      steps: how many build steps ran; 0 where nothing had changed.
      version: what pip calls it.
      origin: where it comes from, see provenance.py.
      seconds: how long they took.
      hits, misses: how many compilations ccache had, and had not; both 0
        where there is no ccache.
    """

    device: Device
    checkout: Path
    directory: Path
    python_path: tuple[Path, Path]
    steps: int
    version: str = "0"
    origin: Mapping[str, object] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    hits: int = 0
    misses: int = 0

    @property
    def done(self) -> str:
        """What the build took, in words."""
        if not self.steps:
            return "nothing to do"
        minutes, seconds = divmod(round(self.seconds), 60)
        text = f"{self.steps} steps in {minutes}:{seconds:02}"
        if self.hits or self.misses:
            text += f", {self.hits} of {self.hits + self.misses} compilations from ccache"
        return text


class Builder:
    """Builds one checkout, for one or several devices.

    Args:
      project: the clone of k2-mps.
      upstream: its upstream.toml.
      checkout: the k2 to build.
      reporter: told about progress.
    """

    def __init__(
        self,
        project: Project,
        upstream: Upstream,
        checkout: Checkout,
        reporter: Reporter = Reporter(),
    ):
        self._project = project
        self._upstream = upstream
        self._checkout = checkout
        self._reporter = reporter
        self._environment = Environment(project, reporter)

    def build(self, request: Request) -> Built:
        """Applies the series if need be and brings the build up to date.

        Raises:
          RequirementMissingError, IndexUnreachableError: something that the
            build needs cannot be had.
          what `apply.apply` raises: the checkout cannot be patched.
          CompileError, DiskFullError: the build fails.
        """
        tree = _EDITED if request.as_is else self._patched_tree()
        prepare(
            self._project,
            self._upstream,
            request,
            self._reporter,
            with_torch=request.toolchain is None,
        )
        plan = _Plan(self._project, self._checkout, request, tree[:12])
        plan.directory.mkdir(parents=True, exist_ok=True)
        # The compilers inherit the lock: should this process be killed, the
        # next run waits until they have ended too.
        with exclusive(plan.directory, str(plan.directory)) as lock:
            if plan.must_configure():
                self._configure(plan, lock)
            began = time.monotonic()
            steps = self._compile(plan, lock)
            seconds = time.monotonic() - began
            origin = provenance.of_build(
                self._project,
                self._upstream,
                self._checkout.directory,
                plan.directory,
                device=request.built_device,
                patched_tree=None if tree == _EDITED else tree,
                torch=plan.torch,
                pybind11=self._environment.version_of("pybind11") or "",
                toolchain=request.toolchain,
            )
            (plan.directory / "lib").mkdir(exist_ok=True)
            provenance.write(plan.directory / "lib", origin)
        python_path = (self._checkout.directory / "k2" / "python", plan.directory / "lib")
        return Built(
            request.device,
            self._checkout.directory,
            plan.directory,
            python_path,
            steps,
            f"{self._upstream.pin.version}+{plan.label}.torch{plan.torch}",
            origin,
            seconds,
            *_cache_use(plan.cache_log),
        )

    def _patched_tree(self) -> str:
        """Patches the checkout; its tree, or _EDITED."""
        checkout, upstream = self._checkout, self._upstream
        checkout.tidy()
        now = status.of_checkout(self._project, upstream, checkout)
        if now.state is State.EDITED and now.head.commit != (upstream.pin.commit):
            self._reporter.info(f"building your edits: {now.details[-1]}")
            if now.patch_changes:
                self._reporter.warn(
                    "patches/ is not what upstream.toml locks, and is not"
                    " part of this build: " + "; ".join(now.patch_changes)
                )
            return _EDITED
        result = apply.apply(self._project, upstream, checkout)
        if result.moved:
            self._reporter.info(
                f"applied {len(upstream.lock.patches)} patches to {checkout.directory}"
            )
        return checkout.tree_of(result.tip)

    def _configure(self, plan: _Plan, lock: int) -> None:
        log = plan.directory / "configure.log"
        with self._reporter.task(f"configuring {plan.name}"):
            outcome = process.run(
                plan.configure_command(),
                reporter=self._reporter,
                log=log,
                environment=plan.variables(),
                keep_open=[lock],
            )
        _check_space(outcome)
        if outcome.status != 0:
            raise errors.CompileError(
                "cmake could not configure k2",
                why=_cmake_errors(outcome.lines),
                next_command=f"read {log}; k2mps doctor lists missing parts",
            )
        plan.note_configured()

    def _compile(self, plan: _Plan, lock: int) -> int:
        """Runs ninja; the number of steps it took."""
        log = plan.directory / "build.log"
        plan.cache_log.unlink(missing_ok=True)
        steps, shown = 0, None
        with contextlib.ExitStack() as stack:

            def follow(line: str) -> None:
                nonlocal steps, shown
                match = _PROGRESS.match(line)
                if not match:
                    return
                if shown is None:  # now there is something to do
                    shown = stack.enter_context(self._reporter.task(f"building {plan.name}"))
                steps = int(match[1])
                shown.update(steps, int(match[2]), match[3])

            outcome = process.run(
                plan.build_command(),
                reporter=self._reporter,
                log=log,
                environment=plan.variables(),
                on_line=follow,
                keep_open=[lock],
            )
        _check_space(outcome)
        if outcome.status != 0:
            raise errors.CompileError(
                f"k2 does not build for {plan.name}",
                why=_first_failure(log),
                next_command=f"read {log}; k2mps build continues where it stopped",
            )
        return steps


def prepare(
    project: Project,
    upstream: Upstream,
    request: Request,
    reporter: Reporter,
    with_torch: bool = True,
) -> None:
    """Brings .venv to what a build and its tests need.

    Args:
      with_torch: whether that is so of torch: a build for another system has
        its own.
    Raises:
      RequirementMissingError, IndexUnreachableError: something cannot be
        had.
    """
    chosen = torch_requirement(upstream.torch, request.torch)
    version = str(chosen.specifier).removeprefix("==")
    if version in upstream.torch.untested:
        reporter.warn(f"no suite has run with torch {version} yet")
    # With a toolchain of its own, a build needs of this machine what one for
    # the CPU does.
    device = Device.CPU if request.toolchain else request.device
    checks = doctor.system_checks(device, reporter)
    if request.tests:
        checks.append(doctor.googletest())
    environment = Environment(project, reporter)
    if not environment.exists:
        checks += doctor.room_checks(project)
    doctor.provide([check for check in checks if not check.ok], reporter)
    environment.create()
    environment.install(
        [
            *([chosen] if with_torch else ()),
            *environment.requirements("build"),
            *environment.requirements("test"),
            *environment.requirements("wheels"),
        ]
    )
    if with_torch:
        environment.require_usable_torch()
    if request.emulated:
        settings = _compiler_settings(request.device)
        settings["SKBUILD_BUILD_DIR"] = str(project.build_root / "emulator")
        environment.install_tree(
            "the mps emulator", _emulator(project), settings, _shared_objects(project)
        )


def registered(project: Project) -> Path | None:
    """The build tree that `import k2` in .venv takes; None where there is
    none."""
    environment = Environment(project)
    if not environment.exists:
        return None
    target = environment.site_packages / _REGISTER
    if not target.exists():
        return None
    tree = Path(target.read_text(encoding="utf-8").splitlines()[-1]).parent
    return tree if tree.is_dir() else None


def register(project: Project, built: Built) -> None:
    """Makes `import k2` in .venv take this build, and pip know it."""
    packages = Environment(project).site_packages
    text = "".join(f"{path}\n" for path in built.python_path)
    _write(packages / _REGISTER, text)
    metadata = packages / f"k2-{built.version}.dist-info"
    for other in packages.glob("k2-*.dist-info"):
        installer = other / "INSTALLER"
        if other != metadata and installer.is_file() and installer.read_text() == _INSTALLER:
            shutil.rmtree(other)
    metadata.mkdir(exist_ok=True)
    files = {
        "METADATA": (
            "Metadata-Version: 2.1\nName: k2\n"
            f"Version: {built.version}\nSummary: built in place by k2mps build\n"
        ),
        "INSTALLER": _INSTALLER,
    }
    for name, content in files.items():
        _write(metadata / name, content)
    # So that pip can uninstall it.
    paths = [f"{metadata.name}/{name}" for name in (*files, "RECORD")]
    _write(metadata / "RECORD", "".join(f"{path},,\n" for path in (_REGISTER, *paths)))


def _write(target: Path, text: str) -> None:
    """Writes a file that others read meanwhile, if it says something else."""
    if not target.exists() or target.read_text(encoding="utf-8") != text:
        draft = target.with_suffix(".draft")
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, target)


def demonstrate(project: Project, reporter: Reporter) -> None:
    """Runs the demonstration on the build that is registered.

    Raises:
      RequirementMissingError: there is no build.
      DemoError: it fails.
    """
    if registered(project) is None:
        raise errors.RequirementMissingError("k2 is not built", next_command="k2mps build")
    environment = Environment(project, reporter)
    outcome = process.run(
        [environment.python, "-m", "k2mps.build.demo"],
        reporter=reporter,
        environment={"PYTHONPATH": str(project.root / "tools")},
        on_line=reporter.info,
    )
    if outcome.status != 0:
        raise errors.DemoError(
            "the demonstration failed",
            why=f"python -m k2mps.build.demo ended with status {outcome.status}",
            next_command="k2mps test, to see which tests fail",
        )


class _Plan:
    """Where one build lies and the commands that make it."""

    def __init__(self, project: Project, checkout: Checkout, request: Request, tree: str):
        self._project = project
        self._checkout = checkout
        self._request = request
        self._environment = Environment(project)
        self._compilers = {} if request.toolchain else doctor.compilers(request.device)
        self._ccache = shutil.which("ccache")
        installed = self._environment.version_of("torch")
        python_tag = self._environment.python_tag
        if request.toolchain:
            installed = request.toolchain.torch_version
            python_tag = request.toolchain.python_tag
        # Whether it is the build for CUDA or for CPUs makes no difference.
        self.torch = str(installed).split("+")[0]
        parts = (request.label, f"torch{installed}", python_tag, tree, self._flags_key())
        self.name = "-".join(parts)
        self.directory = project.build_root / self.name
        # A part of a version, for pip.
        self.label = request.label.replace("-", ".")
        # ccache says here what it had of this run.
        self.cache_log = self.directory / "ccache.log"

    def configure_command(self) -> list[str]:
        settings = self._settings()
        if self._request.emulated:
            settings["mps_emulator_DIR"] = self._emulator_package()
        return [
            str(self._environment.program("cmake")),
            "-S",
            str(self._checkout.directory),
            "-B",
            str(self.directory),
            "-G",
            "Ninja",
            *(f"-D{name}={value}" for name, value in settings.items()),
            *self._request.cmake_arguments,
        ]

    def build_command(self) -> list[str]:
        return [
            str(self._environment.program("ninja")),
            "-C",
            str(self.directory),
            "-j",
            str(self._request.jobs or fitting_jobs()),
            TESTS_TARGET if self._request.tests else TARGET,
        ]

    def variables(self) -> dict[str, str]:
        """The environment of cmake, ninja and the compilers."""
        variables = {
            "NINJA_STATUS": "[%f/%t] ",
            # CMake asks torch where it lies; no device is needed for that.
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
            "CCACHE_STATSLOG": str(self.cache_log),
        }
        # One object serves all build trees, whose paths differ only below
        # the project's directory.  But a wheel must not show whether ccache
        # was there: it makes the paths that the compiler sees relative.
        if not self._request.for_wheel:
            variables.update(_shared_objects(self._project))
        if self._request.toolchain:
            variables.update(self._request.toolchain.variables())
        return variables

    def must_configure(self) -> bool:
        """Whether cmake has to run before ninja, which by itself notices
        only edits of k2's CMake files."""
        stamp = self.directory / _STAMP
        if not (self.directory / "build.ninja").exists():
            return True
        try:
            return json.loads(stamp.read_text()) != self._inputs()
        except (FileNotFoundError, ValueError):
            return True

    def note_configured(self) -> None:
        """Remembers what this configuration was made from."""
        stamp = self.directory / _STAMP
        stamp.write_text(json.dumps(self._inputs(), indent=2))

    def _inputs(self) -> dict:
        """What a configuration depends on besides the key of its tree."""
        environment = self._environment
        inputs = {
            "settings": self._settings(),
            # k2 compiles the commit's id into its version information.
            "commit": self._checkout.head().commit,
            # k2's configure step writes this file into the checkout, where a
            # build for another torch overwrites it.
            "torch_version.py": self._torch_version_hash(),
            "pybind11": environment.version_of("pybind11"),
            "cmake": environment.version_of("cmake"),
        }
        if self._request.toolchain:
            inputs["toolchain"] = self._request.toolchain.key
        if self._request.emulated:
            inputs["emulator"] = environment.tree_key(_emulator(self._project))
        return inputs

    def _settings(self) -> dict[str, str]:
        """CMake variables, but for those that take a process to find."""
        on_mps = self._request.device is Device.MPS
        settings = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_CXX_STANDARD": "20",  # what torch's own package asks for
            "CMAKE_MAKE_PROGRAM": str(self._environment.program("ninja")),
            "CMAKE_PROJECT_k2_INCLUDE": str(self._project.root / "CMakeLists.overlay.cmake"),
            "K2_ENABLE_BENCHMARK": "OFF",
            "K2_ENABLE_TESTS": "ON" if self._request.tests else "OFF",
            "K2_WITH_CUDA": "OFF",
            "K2_WITH_MPS": "ON" if on_mps else "OFF",
            "PYTHON_EXECUTABLE": str(self._environment.python),
            "pybind11_DIR": str(
                self._environment.site_packages / "pybind11" / "share" / "cmake" / "pybind11"
            ),
        }
        for language, compiler in self._compilers.items():
            settings[f"CMAKE_{language}_COMPILER"] = compiler
        if self._ccache:
            for language in ("C", "CXX", "OBJCXX"):
                settings[f"CMAKE_{language}_COMPILER_LAUNCHER"] = self._ccache
        if self._request.for_wheel:
            settings["K2_FOR_WHEEL"] = "ON"
            if sys.platform == "darwin":
                settings["CMAKE_OSX_DEPLOYMENT_TARGET"] = "14.0"
        if self._request.toolchain:
            settings.update(self._request.toolchain.settings())
        return settings

    def _flags_key(self) -> str:
        """What else tells two build trees apart: the paths that CMake bakes
        in, the compilers and the user's own arguments."""
        text = json.dumps(
            [
                str(self._project.root),
                str(self._checkout.directory),
                self._compilers,
                self._request.cmake_arguments,
            ]
        )
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def _torch_version_hash(self) -> str:
        path = self._checkout.directory / "k2/python/k2/torch_version.py"
        if not path.exists():
            return ""
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def _emulator_package(self) -> str:
        command = [self._environment.python, "-m", "mps_emulator", "--cmake-dir"]
        found = process.output(command)
        if not found:
            raise errors.CompileError(
                "the emulator does not say where its CMake package is",
                why=" ".join(map(str, command)) + " failed",
                next_command="run that command",
            )
        return found


def _emulator(project: Project) -> Path:
    return project.root / "emulator"


def _shared_objects(project: Project) -> dict[str, str]:
    """What lets ccache take an object that was made below another directory."""
    return {"CCACHE_BASEDIR": str(project.root), "CCACHE_NOHASHDIR": "true"}


def _compiler_settings(device: Device) -> dict[str, str]:
    """The compilers as the variables that CMake's first run reads."""
    names = {"C": "CC", "CXX": "CXX", "OBJC": "OBJC", "OBJCXX": "OBJCXX"}
    return {names[language]: compiler for language, compiler in doctor.compilers(device).items()}


def fitting_jobs() -> int:
    """As many compilers as there are processors and memory for."""
    if hasattr(os, "sched_getaffinity"):
        processors = len(os.sched_getaffinity(0))
    else:
        processors = os.cpu_count() or 1
    memory = doctor.available_memory()
    if memory is not None:
        fitting = memory // doctor.MEMORY_BYTES_PER_JOB
        processors = min(processors, max(1, fitting))
    return processors


def _check_space(outcome: process.Outcome) -> None:
    for line in outcome.lines:
        if outcome.status != 0 and "No space left on device" in line:
            raise errors.DiskFullError(
                "no space left while building",
                why=line,
                next_command="free some space or k2mps clean, then run the"
                " same command again: it continues where it stopped",
            )


def _cache_use(log: Path) -> tuple[int, int]:
    """How many compilations ccache had, and had not, by its log."""
    if not log.exists():
        return 0, 0
    lines = log.read_text(encoding="utf-8").splitlines()
    hits = sum(map(lines.count, ("direct_cache_hit", "preprocessed_cache_hit")))
    return hits, lines.count("cache_miss")


def _cmake_errors(lines: Sequence[str]) -> str:
    """CMake's own error messages, without the rest of its output."""
    starts = [number for number, line in enumerate(lines) if line.startswith("CMake Error")]
    shown = lines[starts[0] :] if starts else lines
    return "\n".join(shown[:_SHOWN_LINES])


def _first_failure(log: Path) -> str:
    """What the first failing step wrote, from its first error on.

    The command is left out, and so are the warnings before the error, of
    which k2 has hundreds; the log has it all.
    """
    lines: list[str] = []
    with log.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if line.startswith("FAILED:"):
                lines.append(line.rstrip("\n"))
                next(stream, None)  # the command
            elif lines and (_PROGRESS.match(line) or line.startswith("ninja: ")):
                break
            elif lines:
                lines.append(line.rstrip("\n"))
    first = next((number for number, line in enumerate(lines) if _ERROR.search(line)), 1)
    while first > 1 and lines[first - 1].startswith("In file included from"):
        first -= 1
    shown = [*lines[:1], *lines[first : first + _SHOWN_LINES]]
    more = len(lines) - first - _SHOWN_LINES
    if more > 0:
        shown.append(f"... {more} more lines")
    return "\n".join(shown)
