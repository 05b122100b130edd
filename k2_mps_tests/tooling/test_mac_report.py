"""`k2mps mac-report`: its contents, its comparisons, and nothing personal."""

import copy
import json
import platform
import types
from pathlib import Path

import pytest
from k2mps.build import doctor
from k2mps.build.builder import Request
from k2mps.build.environment import Environment
from k2mps.core import errors
from k2mps.core.process import Outcome
from k2mps.core.project import Project
from k2mps.run import mac_report, program, suites

from k2_mps_tests.tooling import support

ROOT = support.TOOLS.parent
KERNEL = {
    "max_threads": 1024,
    "simd_width": 32,
    "threadgroup_bytes": 0,
    "most_threads_asked": 256,
    "cases": 3,
    "wrong": [],
    "gpu_milliseconds": 0.5,
}
FACTS = {"emulated": True, "processor": "x86_64", "k2": {"series": "abc"}}


class Machine:
    """A stand-in for all programs that the report runs; tests may edit `answers`."""

    def __init__(self, monkeypatch, tmp_path):
        self.answers = {
            "k2_mps_tests.machine": (0, [json.dumps(FACTS)]),
            "k2_mps_tests.kernels.measure": (
                0,
                [json.dumps({"compile_seconds": 0.1, "kernels": {"a_kernel": KERNEL}})],
            ),
            "k2.mps.check": (0, ["all agree"]),
            "k2.mps.calibrate": (0, ["so many nanoseconds"]),
        }
        self.variables = []
        self.failures = {}
        self.build = lambda *args: types.SimpleNamespace(steps=0, seconds=0.0)
        (tmp_path / "patches").symlink_to(ROOT / "patches")
        self.root = tmp_path
        monkeypatch.setattr(doctor, "examine", lambda *args: [])
        monkeypatch.setattr(mac_report.builder, "build", lambda *args: self.build())
        monkeypatch.setattr(mac_report.builder, "register", lambda *args: None)
        monkeypatch.setattr(program, "run", self._run)
        monkeypatch.setattr(suites, "run_all", self._test)

    def _run(self, environment, module, words, *, built, variables=None, on_line=None):
        if module == "k2_mps_tests.kernels.measure":
            self.variables.append(dict(variables))
        if module == "k2_mps_tests.benchmarks.bench" and module not in self.answers:
            support.write(Path(words[words.index("--output") + 1]), {"bench.json": "{}"})
            return Outcome(0, ())
        status, lines = self.answers[module]
        return Outcome(status, tuple(lines))

    def _test(self, environment, obtain, request, names, arguments):
        (suite,) = suites.choose(("parity",))
        failures = {f"parity.{name}": why for name, why in self.failures.items()}
        result = suites.Result(suite, passed=7, failed=len(failures), failures=failures)
        return [result]

    def report(self):
        environment = Environment(Project(self.root))
        environment.install_group = lambda name: False
        return mac_report.make(environment, lambda: None, Request(), mac_report.Plan())


@pytest.fixture
def machine(monkeypatch, tmp_path):
    return Machine(monkeypatch, tmp_path)


def test_all_is_right(machine, tmp_path):
    report = machine.report()
    assert {name: step["wrong"] for name, step in report["steps"].items() if step["wrong"]} == {}
    # Each file of kernels runs twice: without and with Metal's checks.
    names = {path.stem for path in (ROOT / "patches").rglob("*.metal")}
    assert set(report["steps"]["kernels"]["files"]) == names
    assert machine.variables == [{}, mac_report.VALIDATION] * len(names)

    target = tmp_path / "folder/report.html"
    mac_report.write(report, target)
    assert mac_report.read(target) == report
    assert list(target.parent.iterdir()) == [target]
    assert mac_report.differences(report, report) == []
    assert "emulated" in target.read_text()


def test_what_fails_does_not_end_it(machine):
    def build():
        raise errors.CompileError("k2 does not build", why="because")

    machine.build = build
    report = machine.report()
    steps = report["steps"]
    assert steps["build"]["wrong"].startswith("k2 does not build")
    assert "k2 is not built" in steps["machine"]["wrong"]
    assert steps["doctor"]["ok"] and steps["suites"]["ok"]
    # The tool can still show and read the report.
    assert "k2 does not build" in mac_report.page(report)
    assert mac_report.differences(report, report) == []


def test_a_benchmark_that_fails_is_quoted(machine):
    machine.answers["k2_mps_tests.benchmarks.bench"] = (1, ["some", "the last words"])
    wrong = machine.report()["steps"]["bench"]["wrong"]
    assert "the benchmark ended with status 1" in wrong and "the last words" in wrong


def test_differences_are_named(machine):
    ours = machine.report()
    machine.failures = {"test_a": "assert 1 == 2"}
    died = "Compute function: device store out of bounds"
    machine.answers["k2.mps.check"] = (1, ["DO NOT TRAIN"])
    theirs = copy.deepcopy(machine.report())
    files = theirs["steps"]["kernels"]["files"]
    files["ctc"]["validated"] = {"died": f"{died}\nmore"}
    files["lattice"]["plain"] = {
        "compile_seconds": 2.5,
        "kernels": {
            "a_kernel": {
                **KERNEL,
                "max_threads": 384,
                "wrong": ["case 1: 3 of 4 elements differ"],
                "gpu_milliseconds": 1500.0,
            }
        },
    }
    del files["two_float" if "two_float" in files else "mutual_information"]
    theirs["steps"]["machine"]["facts"]["k2"]["series"] = "def"
    lines = mac_report.differences(theirs, ours)
    assert lines[0] == "it is of another series of patches: def, here abc"
    for part in (
        "check is wrong: python -m k2.mps.check ended with status 1; here it is right",
        f"ctc.metal (validated) died: {died}",
        "lattice.metal (plain) took 2.5 s to compile",
        "a_kernel (plain) is wrong: case 1: 3 of 4 elements differ",
        "a_kernel (plain) runs with at most 384 threads, here 1024; the checks ask for 256",
        "a_kernel (plain) took 1500 ms of the GPU",
        "was measured here only",
        "parity.test_a fails there only: assert 1 == 2",
        "parity.test_a fails in run 1 of the races: assert 1 == 2",
    ):
        assert any(part in line for line in lines), (part, lines)


def test_nothing_personal(machine, monkeypatch):
    monkeypatch.setattr(mac_report.getpass, "getuser", lambda: "ada.lovelace")
    monkeypatch.setattr(platform, "node", lambda: "Adas-Mac.local")
    monkeypatch.setattr(Path, "home", lambda: Path("/Users/ada.lovelace"))
    machine.answers["k2.mps.check"] = (
        1,
        [f"{machine.root}/x /Users/ada.lovelace/y", "Adas-Mac.local: ada.lovelace"],
    )
    page = mac_report.page(machine.report())
    for name in ("ada.lovelace", "Adas-Mac", str(machine.root)):
        assert name not in page
    assert (
        "<project>/x <home>/y"
        in json.loads(page.split(mac_report._MARK)[1].split("</script>")[0])["steps"]["check"][
            "lines"
        ]
    )


def test_a_report_ends_no_script(machine):
    machine.answers["k2.mps.check"] = (0, ["</script><script>alert(1)</script>"])
    page = mac_report.page(machine.report())
    assert page.count("</script>") == 1 and "<script>alert" not in page


def test_what_is_no_report(empty, tmp_path):
    file = tmp_path / "other.html"
    file.write_text("<html></html>")
    with pytest.raises(errors.K2mpsError, match="is no report"):
        mac_report.read(file)
    file.write_text(mac_report._MARK + '{"schema": 99}</script>')
    with pytest.raises(errors.K2mpsError, match="the form 99"):
        mac_report.read(file)
    assert "is no report" in empty.fails(1, "mac-report", "--read", str(file))
    told = empty.fails(1, "mac-report", "--read", str(tmp_path / "gone.html"))
    assert "to compare" in told
