"""`k2mps mac-report`: what commands say and how they end, and nothing personal."""

import platform
import sys
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
from k2mps.build.environment import Environment
from k2mps.cli import command_line
from k2mps.core.project import Project
from k2mps.run import mac_report
from k2mps.run.mac_report import Step

from k2_mps_tests.tooling import support

ROOT = support.TOOLS.parent


@pytest.fixture
def report(tmp_path):
    """report(*steps): the text of a report of these steps, and the names of the failed ones."""

    def make(*steps):
        target = tmp_path / "folder/report.txt"
        failed = mac_report.make(Environment(Project(tmp_path)), steps, target)
        assert list(target.parent.iterdir()) == [target]
        return target.read_text(), failed

    return make


def python(code):
    return sys.executable, "-c", code


def test_it_is_what_the_commands_print(report):
    said = "import sys; print('all agree\\ntesting parity: 3/80 test_a\\nlast')"
    text, failed = report(
        Step("check", python(f"{said}; print('of stderr', file=sys.stderr)")),
        Step("bench", python("import os; print(os.environ['FLAVOUR'])"), {"FLAVOUR": "sweet"}),
    )
    assert failed == []
    assert "\nok     check\nok     bench\n" in text
    # How many lines of progress there are depends on the machine's speed.
    assert {"all agree", "last", "of stderr"} < set(text.splitlines())
    assert "\ntesting parity" not in text
    assert "$ FLAVOUR=sweet " in text and "\nsweet\nexit status: 0\n" in text


def test_what_fails_does_not_end_it(report):
    text, failed = report(
        Step("build", python("raise SystemExit('k2 does not build')")),
        Step("crash", python("import os; os.abort()")),
        Step("check", python("print('all agree')")),
    )
    assert failed == ["build", "crash"]
    assert "\nWRONG  build\nWRONG  crash\nok     check\n" in text
    for line in ("k2 does not build", "exit status: -6", "all agree"):
        assert f"\n{line}\n" in text


def test_two_reports_of_one_machine_differ_in_the_seconds_only(report):
    steps = [Step("check", python("print('all agree')")), Step("bench", python("print(1)"))]
    one, other = (report(*steps)[0].split("\n== seconds\n")[0] for _ in range(2))
    assert one == other


def test_nothing_personal(report, monkeypatch, tmp_path):
    monkeypatch.setattr(mac_report.getpass, "getuser", lambda: "ada.lovelace")
    monkeypatch.setattr(platform, "node", lambda: "Adas-Mac.local")
    monkeypatch.setattr(Path, "home", lambda: Path("/Users/ada.lovelace"))
    said = f"{tmp_path}/x /Users/ada.lovelace/y", "Adas-Mac.local: ada.lovelace"
    text, _ = report(Step("check", python("print({!r}, {!r})".format(*said))))
    for name in ("ada.lovelace", "Adas-Mac", str(tmp_path)):
        assert name not in text
    assert "\n<project>/x <home>/y <host>: <user>\n" in text


@pytest.mark.parametrize("quick", [False, True])
def test_its_steps_are_commands(quick):
    environment = Environment(Project(ROOT))
    steps = list(mac_report.steps(environment, quick, ["--jobs", "2"]))
    names = [step.name for step in steps]
    assert len(set(names)) == len(names)
    for step in steps:
        _, option, module, *words = step.command
        assert option == "-m"
        if module == "k2mps":
            command = command_line.main.commands[words[0]]
            with click.Context(command_line.main) as parent:
                command.make_context(words[0], list(map(str, words[1:])), parent)
        elif module.startswith("k2."):
            assert (ROOT / "patches/files/k2/python" / f"{module.replace('.', '/')}.py").exists()
        else:
            assert find_spec(module)
    kernels = {path.stem for path in (ROOT / "patches").rglob("*.metal")}
    # Each file of kernels runs twice: without and with Metal's checks.
    measured = [(step.command[3], step.variables) for step in steps if "kernels," in step.name]
    assert {name for name, _ in measured} <= kernels
    assert [how for _, how in measured] == [{}, mac_report.VALIDATION] * (len(measured) // 2)
    if not quick:
        assert len(measured) == 2 * len(kernels)
