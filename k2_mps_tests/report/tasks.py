"""The tasks of a report, in order.

The order is that of the harm if a run ends early.  What needs no k2 comes before what needs k2, and
what takes minutes comes after what takes seconds.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from k2_mps_tests.report.series import TOOL, Task

# Metal's own checks of the host's calls, and of all reads and writes of kernels.
VALIDATED = {
    "MTL_DEBUG_LAYER": "1",
    "MTL_SHADER_VALIDATION": "1",
    "MTL_SHADER_VALIDATION_REPORT_TO_STDERR": "1",
}
MINUTE = 60.0
# {question of questions.py: the step that it needs}
NEEDS = {
    "registers": "environment",
    "steps": "environment",
    "arcs": "environment",
    "fault": "build",
    "timeout": "build",
    "streams": "build",
    "virtual": "build",
    "wait": "build",
    "metallib": "environment",
}


class Plan:
    """Makes the tasks.

    Attributes:
      root: the folder of the project.
      torch: the version of torch; None for the default.
    """

    def __init__(self, root: Path, torch: str | None):
        self.root, self.torch = root, torch

    def _tool(self, command: str, *arguments: str) -> list[str]:
        torch = ["--torch", self.torch] if self.torch else []
        return [TOOL, command, *torch, *arguments]

    @staticmethod
    def _python(module: str, *arguments: str) -> list[str]:
        return [".venv/bin/python", "-m", module, *arguments]

    def _program(self, name: str, *arguments: str) -> list[str]:
        return self._python(f"k2_mps_tests.report.{name}", *arguments)

    def tasks(self) -> Iterator[Task]:
        """Yields the tasks.  Later tasks depend on files that earlier tasks make."""
        yield from self._facts()
        yield from self._compiler()
        yield from self._build()
        yield from self._numbers_and_kernels()
        yield from self._questions()
        yield from self._times()
        yield from self._check()
        yield from self._suites()
        yield from self._races()

    def _facts(self):
        # Each of its programs has a minute.
        facts = [sys.executable, "-m", "k2_mps_tests.report.facts"]
        yield Task("facts", "machine", facts, 30 * MINUTE, is_quick=True)
        make = ["make", "--no-print-directory", ".venv/bin/k2mps", f"PYTHON={sys.executable}"]
        often = {"is_quick": True, "is_always_run": True}
        yield Task("environment", "virtual environment", make, 10 * MINUTE, **often)
        often = {**often, "needs": "venv"}
        yield Task("environment", "doctor", [TOOL, "doctor"], 5 * MINUTE, **often)
        packages = self._tool("build", "--only-packages")
        yield Task("environment", "packages", packages, 60 * MINUTE, **often)
        freeze = self._python("pip", "freeze", "--exclude-editable")
        yield Task("environment", "pip freeze", freeze, 5 * MINUTE, **often)

    def _compiler(self):
        if sys.platform == "darwin":
            metal = [sys.executable, "-m", "k2_mps_tests.report.xcrun"]
            yield Task("compiler", "xcrun", metal, 5 * MINUTE, is_series=True, is_quick=True)
        yield Task(
            "compiler",
            "driver",
            self._program("compiler"),
            5 * MINUTE,
            is_series=True,
            needs="environment",
            is_quick=True,
        )

    def _build(self):
        often = {"is_quick": True, "is_always_run": True}
        build = self._tool("build", "--no-demo", "--keep-going")
        yield Task("build", "build", build, 180 * MINUTE, needs="environment", **often)
        library = self._program("library")
        yield Task("build", "library", library, 5 * MINUTE, needs="library", **often)

    def _numbers_and_kernels(self):
        numbers = ["two_float", "numbers"]
        for step, names in (("numbers", numbers), ("kernels", [])):
            for cases, words, limit in (
                ("first case", ["--first-case"], 3 * MINUTE),
                ("all cases", [], 15 * MINUTE),
            ):
                for how, variables in (("plain", {}), ("validated", VALIDATED)):
                    if step == "numbers" and words:
                        continue
                    yield Task(
                        step,
                        f"{how}, {cases}",
                        self._program("kernels", *words, *names),
                        limit,
                        is_series=True,
                        needs="environment",
                        variables=variables,
                        is_quick=bool(words) or (step == "numbers" and how == "plain"),
                    )

    def _questions(self):
        for name, needs in NEEDS.items():
            command = self._program("questions", name)
            yield Task("questions", name, command, 10 * MINUTE, needs=needs, is_quick=True)

    def _times(self):
        for size, is_quick in (
            ("4,100,12", True),
            ("1,50,10", False),
            ("8,200,30", False),
            ("16,300,40", False),
            ("32,500,60", False),
        ):
            yield Task(
                "times",
                f"size {size}",
                self._program("times", size),
                10 * MINUTE,
                is_series=True,
                needs="build",
                is_quick=is_quick,
            )
        # A hot machine, or one that runs on its battery, is slower.
        facts = [sys.executable, "-m", "k2_mps_tests.report.facts"]
        yield Task("times", "machine afterwards", facts, 30 * MINUTE, is_quick=True)
        calibrate = self._python("k2_mac.calibrate", "--dry-run")
        yield Task("times", "calibration", calibrate, 20 * MINUTE, needs="build")

    def _check(self):
        check = self._python("k2_mac.check")
        small = [*check, "--size", "small", "--seconds", "0"]
        yield Task("check", "small", small, 10 * MINUTE, needs="build", is_quick=True)
        yield Task("check", "full", check, 30 * MINUTE, needs="build")

    def _files(self, folder: str, pattern: str) -> list[str]:
        return sorted(path.name for path in (self.root / folder).glob(pattern))

    def _suites(self):
        files = {
            "kernels": self._files("k2_mps_tests/kernels", "test_*.py"),
            "parity": self._files("k2_mps_tests/parity", "test_*.py"),
            "k2_mac": self._files("k2_mac/tests", "test_*.py"),
            "upstream-mps": self._files("build/k2/k2/python/tests", "*_test.py"),
            "examples": self._files("k2_mps_tests/examples", "test_*.py"),
        }
        needs = {"kernels": "environment", "tooling": "environment", "torch": "environment"}
        for suite, suite_files in files.items():
            for file in suite_files:
                command = self._tool("test", f"{suite}/{file}")
                need = needs.get(suite, "build")
                yield Task("suites", f"{suite}, {file}", command, 60 * MINUTE, needs=need)
        others = (
            "upstream-cpp-mps",
            "upstream-cpu",
            "upstream-cpp-cpu",
            "torch",
            "docs",
            "tooling",
        )
        for suite in others:
            command, need = self._tool("test", suite), needs.get(suite, "build")
            yield Task("suites", suite, command, 120 * MINUTE, needs=need)

    def _races(self):
        """Yields the tests in which threads and the GPU work on the same memory."""
        for number in range(1, 6):
            for name in ("threads", "copies", "streams"):
                command = self._tool("test", f"parity/test_{name}.py", "--", "--rounds", "5000")
                yield Task("races", f"{name}, run {number}", command, 60 * MINUTE, needs="build")
