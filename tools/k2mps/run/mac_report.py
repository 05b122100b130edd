"""`k2mps mac-report`: one file about k2 on the mps device of this machine.

A failed step is a result like others, and does not end the report.
"""

import dataclasses
import getpass
import html
import json
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from k2mps.build import builder, doctor
from k2mps.build.builder import Built, Request
from k2mps.build.doctor import Device
from k2mps.build.environment import Environment
from k2mps.core import errors, replacement
from k2mps.run import program, suites
from k2mps.stack.checkout import Checkout

SCHEMA = 1

# Metal's own checks of a host's calls, and of a kernel's reads and writes.
VALIDATION = {"MTL_DEBUG_LAYER": "1", "MTL_SHADER_VALIDATION": "1"}

# Tests in which threads, processes and the GPU work on the same memory.
_RACES = ("test_threads", "test_processes", "test_copies")

# The methods of `_Run`, in their order.
_STEPS = "doctor build machine kernels check suites races bench calibration".split()

_MARK = '<script type="application/json" id="k2mps-mac-report">'


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much is done."""

    suites: tuple[str, ...] = ()  # names; all of this system where empty
    arguments: tuple[str, ...] = ()  # for pytest, in the suites
    rounds: int = 5000  # how often a test of threads repeats its work
    repeats: int = 5  # how often all tests of races run
    kernels: str = "*.metal"  # the measured files of kernels
    quick: bool = False  # whether the benchmark is short


QUICK = Plan(
    ("parity",),
    ("-k", "test_interop or test_losses"),
    rounds=20,
    repeats=1,
    kernels="dense_*.metal",
    quick=True,
)


def make(
    environment: Environment, obtain: Callable[[], Checkout], request: Request, plan: Plan
) -> dict:
    """Does all steps; returns the results without names of users, hosts and directories."""
    steps = {}
    run = _Run(environment, obtain, request, plan)
    for name in _STEPS:
        environment.reporter.info(f"{name} ...")
        began = time.monotonic()
        try:
            found = getattr(run, name)()
        except (errors.K2mpsError, OSError, ValueError) as failure:
            found = {"wrong": str(failure)}
        seconds = round(time.monotonic() - began, 1)
        wrong = found.pop("wrong", "")
        steps[name] = {"ok": not wrong, "wrong": wrong, "seconds": seconds, **found}
    report = {"schema": SCHEMA, "quick": plan.quick, "steps": steps}
    return _without_names(report, _names(environment.project.root))


def _names(root: Path) -> dict[str, str]:
    """Texts that a report must not contain, with their replacements."""
    found = {str(root): "<project>", str(Path.home()): "<home>"}
    for name, instead in ((getpass.getuser(), "<user>"), (platform.node(), "<host>")):
        # "root" and "runner" name nobody, and are words of other texts.
        if len(name) > 3 and name not in ("root", "runner"):
            found[name] = instead
    return found


@dataclasses.dataclass
class _Run:
    """The steps of one report; a step's result has the text "wrong" where something is wrong."""

    environment: Environment
    obtain: Callable[[], Checkout]
    request: Request
    plan: Plan
    built: Built | None = None

    def doctor(self) -> dict:
        checks = doctor.examine(self.environment, Device.MPS)
        lacking = [check.name for check in doctor.lacking(checks)]
        return {
            "wrong": f"lacking: {', '.join(lacking)}" if lacking else "",
            "found": {check.name: check.found for check in checks},
        }

    def build(self) -> dict:
        self.built = builder.build(self.environment, self.obtain(), self.request)
        builder.register(self.environment, self.built)
        return {"steps": self.built.steps, "compile_seconds": round(self.built.seconds, 1)}

    def machine(self) -> dict:
        return {"facts": self._json("k2_mps_tests.machine")}

    def kernels(self) -> dict:
        """Measures each file alone, without and with Metal's own checks."""
        found, wrong = {}, []
        folder = self.environment.project.root / "patches/files/k2/csrc/mps/kernels"
        for path in sorted(folder.glob(self.plan.kernels)):
            found[path.stem] = {}
            for kind, variables in (("plain", {}), ("validated", VALIDATION)):
                module = "k2_mps_tests.kernels.measure"
                try:
                    result = self._json(module, path.stem, variables=variables)
                    bad = any(each["wrong"] for each in result["kernels"].values())
                except errors.K2mpsError as failure:
                    result, bad = {"died": str(failure)}, True
                found[path.stem][kind] = result
                wrong += [f"{path.stem} ({kind})"] if bad else []
        return {"wrong": f"wrong or dead: {', '.join(wrong)}" if wrong else "", "files": found}

    def check(self) -> dict:
        size = ("--size", "small", "--seconds", "0") if self.plan.quick else ()
        return self._lines("k2.mps.check", *size)

    def suites(self) -> dict:
        return self._test(self.plan.suites, self.plan.arguments)

    def races(self) -> dict:
        rounds = ("--rounds", str(self.plan.rounds), "-k", " or ".join(_RACES))
        runs = [
            self._test(("parity",), rounds)["suites"]["parity"] for _ in range(self.plan.repeats)
        ]
        failed = [run for run in runs if not run["ok"]]
        return {
            "wrong": f"{len(failed)} of {len(runs)} runs have failures" if failed else "",
            "rounds": self.plan.rounds,
            "runs": runs,
        }

    def bench(self) -> dict:
        folder = self.environment.project.build_root / "mac-report-bench"
        options = {"output": folder, "quick": self.plan.quick}
        program.BENCH.run(self.environment, options, self._of_build())
        return {"bench": json.loads((folder / "bench.json").read_text(encoding="utf-8"))}

    def calibration(self) -> dict:
        return self._lines("k2.mps.calibrate", "--dry-run", variables={"K2_MPS_COSTS": ""})

    def _of_build(self) -> Built:
        if self.built is None:
            raise errors.K2mpsError("k2 is not built", next_command="k2mps build")
        return self.built

    def _lines(self, module: str, *words: str, variables: Mapping[str, str] | None = None) -> dict:
        """Runs a program on the build; all lines that it prints."""
        built = self._of_build()
        outcome = program.run(self.environment, module, words, built=built, variables=variables)
        wrong = f"python -m {module} ended with status {outcome.status}" if outcome.status else ""
        return {"wrong": wrong, "lines": list(outcome.lines)}

    def _json(self, module: str, *words: str, **how) -> dict:
        """Runs a program on the build; the value of the last line that it prints."""
        found = self._lines(module, *words, **how)
        if found["wrong"]:
            raise errors.K2mpsError(
                found["wrong"],
                why="\n".join(found["lines"][-30:]),
                next_command=f".venv/bin/python -m {' '.join([module, *words])}",
            )
        return json.loads(found["lines"][-1])

    def _test(self, names: tuple[str, ...], arguments: tuple[str, ...]) -> dict:
        results = suites.run_all(self.environment, self.obtain, self.request, names, arguments)
        found = {
            result.suite.name: {
                "ok": result.ok and not result.not_run,
                "passed": result.passed,
                "failed": result.failed + result.errors,
                "skipped": result.skipped,
                "seconds": round(result.seconds, 1),
                "wrong": result.broken or result.not_run,
                "failures": dict(result.failures),
            }
            for result in results
        }
        failed = [name for name, entry in found.items() if not entry["ok"]]
        return {"wrong": f"failures in {', '.join(failed)}" if failed else "", "suites": found}


def _without_names(value, names: Mapping[str, str]):
    """A value of JSON with each name replaced, longest first."""
    if isinstance(value, str):
        for name in sorted(names, key=len, reverse=True):
            value = value.replace(name, names[name])
        return value
    if isinstance(value, dict):
        return dict(_without_names(list(value.items()), names))
    if isinstance(value, (list, tuple)):
        return [_without_names(each, names) for each in value]
    return value


def page(report: dict) -> str:
    """A report as one file: a page to read, with the JSON inside."""
    facts = report["steps"]["machine"].get("facts", {})
    where = "emulated" if facts.get("emulated", True) else facts.get("processor", "")
    text = html.escape
    rows = details = ""
    for name, step in report["steps"].items():
        verdict = "ok" if step["ok"] else "WRONG"
        rows += (
            f"<tr><td>{text(name)}</td><td>{verdict}</td><td>{step['seconds']}</td>"
            f"<td><pre>{text(step['wrong'])}</pre></td></tr>\n"
        )
        inside = text(json.dumps(step, indent=1))
        details += f"<details><summary>{text(name)}</summary><pre>{inside}</pre></details>\n"
    inside = json.dumps(report).replace("<", "\\u003c")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>k2-mps on this machine ({text(where)})</title></head><body>\n"
        f"<h1>k2-mps on this machine ({text(where)})</h1>\n"
        "<p>Attach this file to an issue of k2-mps. It has no name of a user, a host or a"
        " directory.</p>\n"
        f"<table><tr><th>step</th><th></th><th>seconds</th><th>what is wrong</th></tr>\n{rows}"
        f"</table>\n{details}{_MARK}{inside}</script>\n</body></html>\n"
    )


def write(report: dict, target: Path) -> None:
    """Writes the page, all of it or nothing."""
    target.parent.mkdir(parents=True, exist_ok=True)
    replacement.rewrite(target, page(report))


def read(file: Path) -> dict:
    """The report in a page."""
    if not file.exists():
        raise errors.K2mpsError(f"there is no {file} to compare", next_command="k2mps mac-report")
    text = file.read_text(encoding="utf-8", errors="replace")
    try:
        report = json.loads(text.partition(_MARK)[2].partition("</script>")[0])
    except ValueError:
        report = {}
    if report.get("schema") != SCHEMA:
        raise errors.K2mpsError(
            f"{file} is no report that this k2mps can read",
            why=f"it has the form {report.get('schema')}, not {SCHEMA}" if report else "",
            next_command="k2mps mac-report makes one",
        )
    return report


def differences(theirs: dict, ours: dict) -> list[str]:
    """The differences of a report from ours, the most important first."""
    lines = []
    if theirs["quick"] and not ours["quick"]:
        lines.append("it is a quick one: much was not run there")
    there, here = (
        report["steps"]["machine"].get("facts", {}).get("k2", {}).get("series")
        for report in (theirs, ours)
    )
    if there != here:
        lines.append(f"it is of another series of patches: {there}, here {here}")
    for name, step in theirs["steps"].items():
        here = ours["steps"].get(name, {})
        if step["ok"] != here.get("ok"):
            how = "is right" if step["ok"] else f"is wrong: {step['wrong'].splitlines()[0]}"
            lines.append(f"{name} {how}; here it is {'right' if here.get('ok') else 'wrong'}")
    return [*lines, *_of_kernels(theirs, ours), *_of_tests(theirs, ours)]


def _of_kernels(theirs: dict, ours: dict) -> Iterator[str]:
    files, here = (report["steps"]["kernels"].get("files", {}) for report in (theirs, ours))
    for name in sorted({*files, *here}):
        if name not in files or name not in here:
            yield f"{name}.metal was measured {'there' if name in files else 'here'} only"
            continue
        for kind, found in files[name].items():
            known, file = here[name].get(kind, {}), f"{name}.metal ({kind})"
            if "died" in found:
                if "died" not in known:
                    yield f"{file} died: {found['died'].splitlines()[0]}"
                continue
            if found["compile_seconds"] > 1:
                yield f"{file} took {found['compile_seconds']:.1f} s to compile"
            for kernel, each in found["kernels"].items():
                own = known.get("kernels", {}).get(kernel, {})
                yield from _of_kernel(f"{kernel} ({kind})", each, own)


def _of_kernel(name: str, each: dict, own: dict) -> Iterator[str]:
    for message in each["wrong"]:
        if message not in own.get("wrong", ()):
            yield f"{name} is wrong: {message}"
    if each["max_threads"] != own.get("max_threads", each["max_threads"]):
        yield (
            f"{name} runs with at most {each['max_threads']} threads, here"
            f" {own['max_threads']}; the checks ask for {each['most_threads_asked']}"
        )
    if each["gpu_milliseconds"] > 1000:
        yield f"{name} took {each['gpu_milliseconds']:.0f} ms of the GPU"


def _of_tests(theirs: dict, ours: dict) -> Iterator[str]:
    found, here = (report["steps"]["suites"].get("suites", {}) for report in (theirs, ours))
    for name, suite in found.items():
        known = here.get(name, {}).get("failures", {})
        for test, why in suite["failures"].items():
            if test not in known:
                yield f"{test} fails there only: {why}"
        for test in known:
            if test not in suite["failures"]:
                yield f"{test} fails here only"
    for number, run in enumerate(theirs["steps"]["races"].get("runs", ()), 1):
        for test, why in run["failures"].items():
            yield f"{test} fails in run {number} of the races: {why}"
