"""The steps of `make mac-report`: they survive what a Mac lacks, and docs/first-mac.md has them."""

import json
import re
import sys

import click
from k2mps.cli import command_line
from k2mps.run import suites

from k2_mps_tests.report.record import VERDICTS
from k2_mps_tests.report.tasks import NEEDS, Plan
from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.reporting import ROOT, user_variables

# A stand-in for Xcode's compiler.  It finds an error in each file that has the word `wrong`.
XCRUN = f"""\
#!{sys.executable}
import pathlib, sys
output, source = map(pathlib.Path, sys.argv[-2:])
if "wrong" in source.read_text():
    sys.exit(f"{{source.name}}:1:1: error: wrong")
output.touch()
"""


def test_xcodes_compiler_compiles_each_file_if_it_is_there(project, tmp_path):
    kernels = project / "patches/files/k2/csrc/mps/kernels"
    support.write(kernels, {"bad.metal": "wrong\n", "right.metal": "right\n"})
    environment = {**user_variables(tmp_path), "PATH": f"{tmp_path}/bin"}
    command = (sys.executable, "-m", "k2_mps_tests.report.xcrun")
    without = support.ran(*command, cwd=project, env=environment)
    assert without.returncode == 77 and "answer: there is no compiler" in without.stdout
    support.write(tmp_path, {"bin/xcrun": XCRUN})
    (tmp_path / "bin/xcrun").chmod(0o755)
    done = support.ran(*command, cwd=project, env=environment)
    assert done.returncode == 1 and "bad.metal:1:1: error: wrong" in done.stderr
    environment["K2_MPS_REPORT_LEFT_OUT"] = '{"bad": "wrong"}'
    rest = support.ran(*command, cwd=project, env=environment)
    assert rest.returncode == 0
    assert [line for line in rest.stdout.splitlines() if "item:" in line] == ["item: right"]


# Programs of macOS: some are missing, and the others print odd things or fail.
MACS_PROGRAMS = {
    "sw_vers": "echo 'BuildVersion: 25B78'",
    "sysctl": "echo sysctl: unknown oid >&2; exit 1",
    "system_profiler": r"printf 'Serial Number: C02XK1\nDisplay of Ada\342\200\231s: \377\n'",
    "pmset": "kill -9 $$",
}


def test_facts_survive_what_the_programs_of_macos_do(project, tmp_path):
    programs = {f"bin/{name}": f"#!/bin/sh\n{text}\n" for name, text in MACS_PROGRAMS.items()}
    support.write(tmp_path, programs)
    for name in programs:
        (tmp_path / name).chmod(0o755)
    environment = {**user_variables(tmp_path), "PATH": f"{tmp_path}/bin"}
    # Each program of the report starts as on a Mac.
    environment["PYTHONPATH"] = str(project)
    support.write(project, {"sitecustomize.py": "import sys\nsys.platform = 'darwin'\n"})
    command = (sys.executable, "-m", "k2_mps_tests.report", "--only", "facts")
    done = support.ran(*command, cwd=project, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    [record] = project.glob("build/mac-report/*/record.jsonl")
    lines = map(json.loads, record.read_text().splitlines())
    facts = {}
    for line in lines:
        facts.update(line.get("measured", {}))
    assert facts["macos"] == "BuildVersion: 25B78" and facts["chip"] == "sysctl: unknown oid"
    assert facts["displays"] == "Display of Ada\u2019s: \ufffd"
    assert facts["xcode"] == "xcodebuild: No such file or directory" and facts["power"] == ""


def _section(begin):
    """Returns the text of docs/first-mac.md between this text and the next heading."""
    page = (ROOT / "docs/first-mac.md").read_text(encoding="utf-8")
    return page.split(begin)[1].split("\n## ")[0]


def _steps(tasks):
    """Returns the names of the tasks' steps, each once and in order."""
    return list(dict.fromkeys(task.step for task in tasks))


def test_the_page_has_the_steps():
    rows = re.findall(r"^\| `(\w+)", _section("## The steps"), re.MULTILINE)
    assert rows == _steps(Plan(ROOT, None).tasks())


def test_the_page_has_the_questions():
    in_brackets = re.findall(r"^\d\. .*?\((.*?)\)", _section("## Questions"), re.MULTILINE)
    assert re.findall(r"`(\w+)`", " ".join(in_brackets)) == list(NEEDS)


def test_the_page_has_the_verdicts():
    assert set(re.findall(r"`([a-z ]+)`", _section("| verdict |"))) == VERDICTS.keys()


def test_the_quick_report_leaves_two_steps_out():
    plan = list(Plan(ROOT, None).tasks())
    quick = _steps(task for task in plan if task.is_quick)
    assert set(_steps(plan)) - set(quick) == {"suites", "races"}


def test_each_task_is_a_command_that_exists():
    tested = set()
    for task in Plan(ROOT, "2.15.0").tasks():
        words = list(task.command)
        if words[0] == ".venv/bin/k2mps":
            command = command_line.main.commands[words[1]]
            with click.Context(command_line.main) as parent:
                command.make_context(words[1], words[2:], parent)
            if words[1] == "test":
                # choose() refuses a name that is not that of a suite, or of a file of a suite.
                (suite,) = suites.choose(words[4:5])
                tested.add(suite.name)
        elif words[1] == "-m" and words[2] != "pip":
            assert (ROOT / f"{words[2].replace('.', '/')}.py").exists()
    # The full report runs each suite of a Mac.  A clone of k2 has the files of one of them.
    on_mac = {suite.name for suite in suites.SUITES if "darwin" in suite.platforms}
    assert tested | {"upstream-mps"} == on_mac
