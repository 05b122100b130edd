"""`k2mps mac-report`: all that a machine can tell of k2 on its mps device.

What fails is a part of the report and does not end it: the first run on a new
machine is worth most where something is wrong.
"""

from __future__ import annotations

import dataclasses
import getpass
import html
import json
import os
import platform
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from k2mps.build import builder, doctor
from k2mps.build.builder import Built
from k2mps.build.doctor import Device
from k2mps.core import errors
from k2mps.core.pins import Upstream
from k2mps.core.progress import Reporter
from k2mps.core.project import Project
from k2mps.run import program, suites, testing

SCHEMA = 1

# Metal's own checks of a host's calls, and of a kernel's reads and writes.
VALIDATION = {"MTL_DEBUG_LAYER": "1", "MTL_SHADER_VALIDATION": "1"}

# Tests in which threads, processes and the GPU work on the same memory.
_RACES = ("test_threads", "test_processes", "test_copies")
_QUICK_SUITE = ("parity", "test_interop or test_losses")

_MARK = '<script type="application/json" id="k2mps-mac-report">'


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much is done.

    Attributes:
      suites: names; all that this system has where empty.
      arguments: of pytest, for the suites.
      rounds: how often a test of threads repeats what it does.
      repeats: how often all tests of races run.
      quick: whether the benchmark is short.
    """

    suites: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    rounds: int = 5000
    repeats: int = 5
    quick: bool = False


QUICK = Plan(_QUICK_SUITE[:1], ("-k", _QUICK_SUITE[1]), rounds=20, repeats=1, quick=True)


class MacReport:
    """Makes one.

    Args:
      project, upstream: the clone of k2-mps and its upstream.toml.
      build: builds k2 for mps.
      plan: how much to do.
      reporter: told about progress.
    """

    def __init__(
        self,
        project: Project,
        upstream: Upstream,
        build: Callable[[builder.Request], Built],
        plan: Plan,
        reporter: Reporter,
    ):
        self._project = project
        self._upstream = upstream
        self._build = build
        self._plan = plan
        self._reporter = reporter
        self._built: Built | None = None

    def make(self) -> dict:
        """Does all steps; returns their results, without personal data."""
        steps = {}
        for name, step in (
            ("doctor", self._doctor),
            ("build", self._do_build),
            ("machine", self._machine),
            ("kernels", self._kernels),
            ("check", self._check),
            ("suites", self._suites),
            ("races", self._races),
            ("bench", self._bench),
            ("calibration", self._calibration),
        ):
            self._reporter.info(f"{name} ...")
            began, found, error = time.monotonic(), {}, ""
            try:
                found = step()
            except errors.InterruptedRunError:
                raise
            except (errors.K2mpsError, OSError, ValueError) as failure:
                error = str(failure)
            seconds = round(time.monotonic() - began, 1)
            wrong = error or found.pop("wrong", "")
            steps[name] = {"ok": not wrong, "wrong": wrong, "seconds": seconds, **found}
        report = {"schema": SCHEMA, "quick": self._plan.quick, "steps": steps}
        return _without_names(report, self._names())

    def _names(self) -> dict[str, str]:
        """Texts that a report must not contain, with their replacements."""
        found = {str(self._project.root): "<project>", str(Path.home()): "<home>"}
        for name, instead in ((getpass.getuser(), "<user>"), (platform.node(), "<host>")):
            # "root" and "runner" are everybody's, and words besides.
            if len(name) > 3 and name not in ("root", "runner"):
                found[name] = instead
        return found

    def _doctor(self) -> dict:
        checks = doctor.examine(self._project, self._upstream, Device.MPS, None, self._reporter)
        lacking = [check.name for check in checks if check.needed and not check.ok]
        return {
            "wrong": f"lacking: {', '.join(lacking)}" if lacking else "",
            "found": {check.name: check.found for check in checks},
        }

    def _do_build(self) -> dict:
        self._built = self._build(builder.Request())
        builder.register(self._project, self._built)
        return {"steps": self._built.steps, "compile_seconds": round(self._built.seconds, 1)}

    def _of_build(self) -> Built:
        """The build.

        Raises:
          RefusedError: there is none.
        """
        if self._built is None:
            raise errors.RefusedError("k2 is not built", next_command="k2mps build")
        return self._built

    def _run(self, module: str, *words: object, variables: Mapping[str, str] | None = None):
        """Runs a program on the build; how it ended, and its lines."""
        return program.run(
            self._project,
            module,
            words,
            self._reporter,
            built=self._of_build(),
            variables=variables,
            on_line=lambda line: None,
        )

    def _json(self, module: str, *words: object, **how) -> dict:
        """The last line that a program prints.

        Raises:
          RefusedError: it ended in another way.
        """
        outcome = self._run(module, *words, **how)
        if outcome.status != 0:
            raise errors.RefusedError(
                f"{module} ended with status {outcome.status}",
                why="\n".join(outcome.lines[-30:]),
                next_command=f".venv/bin/python -m {module} {' '.join(map(str, words))}",
            )
        return json.loads(outcome.lines[-1])

    def _machine(self) -> dict:
        return {"facts": self._json("k2_mps_tests.machine")}

    def _kernels(self) -> dict:
        """Each file alone, as it is and with Metal's own checks."""
        found = {}
        folder = self._project.root / "patches/files/k2/csrc/mps/kernels"
        for path in sorted(folder.glob("*.metal")):
            entry = found[path.stem] = {}
            for kind, variables in (("plain", {}), ("validated", VALIDATION)):
                try:
                    entry[kind] = self._json(
                        "k2_mps_tests.kernels.measure", path.stem, variables=variables
                    )
                except errors.RefusedError as failure:
                    entry[kind] = {"died": str(failure)}
        wrong = [
            f"{name} ({kind})"
            for name, entry in found.items()
            for kind, result in entry.items()
            if "died" in result or any(each["wrong"] for each in result["kernels"].values())
        ]
        return {"wrong": f"wrong or dead: {', '.join(wrong)}" if wrong else "", "files": found}

    def _check(self) -> dict:
        size = ("--size", "small", "--seconds", "0") if self._plan.quick else ()
        outcome = self._run("k2.mps.check", *size)
        wrong = f"python -m k2.mps.check ended with status {outcome.status}"
        return {"wrong": wrong if outcome.status else "", "lines": list(outcome.lines)}

    def _suites(self) -> dict:
        return self._test(self._plan.suites, self._plan.arguments)

    def _races(self) -> dict:
        rounds = ("--rounds", str(self._plan.rounds), "-k", " or ".join(_RACES))
        runs = [
            self._test(("parity",), rounds)["suites"]["parity"] for _ in range(self._plan.repeats)
        ]
        failed = [run for run in runs if not run["ok"]]
        return {
            "wrong": f"{len(failed)} of {len(runs)} runs have failures" if failed else "",
            "rounds": self._plan.rounds,
            "runs": runs,
        }

    def _test(self, names: tuple[str, ...], arguments: tuple[str, ...]) -> dict:
        results = testing.run_all(
            self._project, self._upstream, None, names, arguments=arguments, reporter=self._reporter
        )
        found = {result.suite.name: self._of_suite(result) for result in results}
        failed = [name for name, entry in found.items() if not entry["ok"]]
        return {"wrong": f"failures in {', '.join(failed)}" if failed else "", "suites": found}

    def _of_suite(self, result: suites.Result) -> dict:
        file = self._project.build_root / "tests" / f"{result.suite.name}.xml"
        return {
            "ok": result.ok and not result.not_run,
            "passed": result.passed,
            "failed": result.failed + result.errors,
            "skipped": result.skipped,
            "seconds": round(result.seconds, 1),
            "wrong": result.broken or result.not_run,
            "failures": dict(_failures(file)) if result.ran else {},
        }

    def _bench(self) -> dict:
        folder = self._project.build_root / "mac-report-bench"
        program.bench(
            self._project, self._of_build(), self._reporter, folder, quick=self._plan.quick
        )
        return {"bench": json.loads((folder / "bench.json").read_text(encoding="utf-8"))}

    def _calibration(self) -> dict:
        outcome = self._run("k2.mps.calibrate", "--dry-run", variables={"K2_MPS_COSTS": ""})
        wrong = "" if outcome.status == 0 else f"it ended with status {outcome.status}"
        return {"wrong": wrong, "lines": list(outcome.lines)}


def _failures(file: Path) -> Iterator[tuple[str, str]]:
    """The tests of a JUnit file that failed, and the first line of why."""
    try:
        cases = list(ElementTree.parse(file).iter("testcase"))
    except (FileNotFoundError, ElementTree.ParseError):
        return
    for case in cases:
        for child in case:
            if child.tag in ("failure", "error"):
                why = (child.get("message") or child.text or "").split("\n")[0]
                yield f"{case.get('classname')}.{case.get('name')}", why


def _without_names(value, names: Mapping[str, str]):
    """A value of JSON with each name replaced, longest first."""
    if isinstance(value, str):
        for name in sorted(names, key=len, reverse=True):
            value = value.replace(name, names[name])
        return value
    if isinstance(value, dict):
        return {
            _without_names(key, names): _without_names(each, names) for key, each in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_without_names(each, names) for each in value]
    return value


def page(report: dict) -> str:
    """A report as one file: a page to read, with the JSON inside."""
    facts = report["steps"]["machine"].get("facts", {})
    where = "emulated" if facts.get("emulated", True) else facts.get("processor", "")
    text = html.escape
    rows = "".join(
        f"<tr><td>{text(name)}</td><td>{'ok' if step['ok'] else 'WRONG'}</td>"
        f"<td>{step['seconds']}</td><td><pre>{text(step['wrong'])}</pre></td></tr>\n"
        for name, step in report["steps"].items()
    )
    details = "".join(
        f"<details><summary>{text(name)}</summary>"
        f"<pre>{text(json.dumps(step, indent=1))}</pre></details>\n"
        for name, step in report["steps"].items()
    )
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
    draft = target.with_name(f"{target.name}.draft")
    draft.write_text(page(report), encoding="utf-8")
    os.replace(draft, target)


def read(file: Path) -> dict:
    """The report in a page.

    Raises:
      RefusedError: there is none in it, or one of another form.
    """
    text = file.read_text(encoding="utf-8", errors="replace")
    _, mark, rest = text.partition(_MARK)
    try:
        report = json.loads(rest.partition("</script>")[0]) if mark else {}
    except ValueError:
        report = {}
    if report.get("schema") != SCHEMA:
        raise errors.RefusedError(
            f"{file} is no report that this k2mps can read",
            why=f"it has the form {report.get('schema')}, not {SCHEMA}" if report else "",
            next_command="k2mps mac-report makes one",
        )
    return report


def differences(theirs: dict, ours: dict) -> list[str]:
    """The differences of a report from ours, one a line, the most important first."""
    lines = []
    if theirs["quick"] and not ours["quick"]:
        lines.append("it is a quick one: much was not run there")
    series = [
        report["steps"]["machine"].get("facts", {}).get("k2", {}).get("series")
        for report in (theirs, ours)
    ]
    if series[0] != series[1]:
        lines.append(f"it is of another series of patches: {series[0]}, here {series[1]}")
    for name, step in theirs["steps"].items():
        here = ours["steps"].get(name, {})
        if step["ok"] != here.get("ok"):
            how = "is right" if step["ok"] else f"is wrong: {step['wrong'].splitlines()[0]}"
            lines.append(f"{name} {how}; here it is {'right' if here.get('ok') else 'wrong'}")
    lines += _of_kernels(theirs, ours)
    lines += _of_tests(theirs, ours)
    return lines


def _of_kernels(theirs: dict, ours: dict) -> Iterator[str]:
    files = theirs["steps"]["kernels"].get("files", {})
    here = ours["steps"]["kernels"].get("files", {})
    for name in sorted({*files, *here}):
        if name not in files or name not in here:
            yield f"{name}.metal was measured {'there' if name in files else 'here'} only"
            continue
        for kind, found in files[name].items():
            if "died" in found:
                if "died" not in here[name].get(kind, {}):
                    yield f"{name}.metal ({kind}) died: {found['died'].splitlines()[0]}"
                continue
            if found["compile_seconds"] > 1:
                yield f"{name}.metal ({kind}) took {found['compile_seconds']:.1f} s to compile"
            for kernel, each in found["kernels"].items():
                known = here[name].get(kind, {}).get("kernels", {}).get(kernel, {})
                for message in each["wrong"]:
                    if message not in known.get("wrong", ()):
                        yield f"{kernel} ({kind}) is wrong: {message}"
                if each["max_threads"] != known.get("max_threads", each["max_threads"]):
                    yield (
                        f"{kernel} ({kind}) runs with at most {each['max_threads']} threads, here"
                        f" {known['max_threads']}; the checks ask for {each['most_threads_asked']}"
                    )
                if each["gpu_milliseconds"] > 1000:
                    yield f"{kernel} ({kind}) took {each['gpu_milliseconds']:.0f} ms of the GPU"


def _of_tests(theirs: dict, ours: dict) -> Iterator[str]:
    found = theirs["steps"]["suites"].get("suites", {})
    here = ours["steps"]["suites"].get("suites", {})
    for name, suite in found.items():
        known = here.get(name, {}).get("failures", {})
        for test, why in suite["failures"].items():
            if test not in known:
                yield f"{test} fails there only: {why}"
        for test in known:
            if test not in suite["failures"]:
                yield f"{test} fails here only"
    for number, run in enumerate(theirs["steps"]["races"].get("runs", ())):
        for test, why in run["failures"].items():
            yield f"{test} fails in run {number + 1} of the races: {why}"
