"""The command line: its help, errors and exit codes, and the commands that it echoes."""

import ast
import errno
import json
import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest
from k2mps.cli import command_line, console, ending, session
from k2mps.core import errors

from k2_mps_tests.docs import tables
from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.sandbox import MPS

ROOT = support.TOOLS.parent


def test_each_kind_of_error_has_its_own_exit_code():
    kinds = tables.error_kinds()
    # 0 means success, 2 a wrong command line, and a number above 128 a signal.
    codes = {kind.exit_code for kind in kinds}
    assert len(codes) == len(kinds) and codes.isdisjoint({0, 2}) and max(codes) < 128
    for kind in (*kinds, errors.InterruptedRunError):
        assert kind.__doc__.split("\n")[0].endswith("."), kind


def test_without_a_terminal_a_long_task_prints_its_progress(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.01)
    shown = ""
    with console.Console().task("building k2", tmp_path / "log") as update:
        update(3, 7, "Building a.o")
        deadline = time.monotonic() + 20
        while "3 of 7" not in shown and time.monotonic() < deadline:
            shown += capsys.readouterr().out
    assert shown.startswith(f"building k2 ... (log: {tmp_path / 'log'})\n")
    assert "\nbuilding k2: 3 of 7, 0 s so far  Building a.o\n" in shown


@pytest.mark.parametrize(
    "title, step, shown",
    [
        ("x" * 40, (0, 0, ""), "x" * 40 + ": 0 s so far  "),
        ("x" * 41, (1, 2, ""), "x" * 37 + "...: 1 of 2, 0 s so far  "),
        ("x", (3, 0, "y" * 200), "x: 0 s so far  " + "y" * 105),
    ],
)
def test_a_line_of_progress_is_short(monkeypatch, capsys, title, step, shown):
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.01)
    lines = ""
    with console.Console().task(title) as update:
        update(*step)
        deadline = time.monotonic() + 20
        while f"\n{shown}\n" not in lines and time.monotonic() < deadline:
            lines += capsys.readouterr().out
    assert lines.startswith(f"{title} ...\n")
    assert f"\n{shown}\n" in lines


def test_with_json_no_progress_is_shown(capsys):
    shown = console.Console()
    shown.shows_progress = False
    with shown.task("building k2", Path("log")) as update:
        update(1, 2, "x")
    assert capsys.readouterr().out == ""


def test_the_row_of_a_table_ends_with_its_last_word(capsys):
    console.Console().table(("a", "b", "c"), [("x", "", "y"), ("z", "", "")])
    assert capsys.readouterr().out == "x\t\ty\nz\n"


def test_a_table_on_a_terminal_lacks_empty_columns_and_control_characters(monkeypatch, capsys):
    monkeypatch.setattr(console.Console, "on_terminal", True)
    console.Console().table(("first", "none", "last"), [("x", "", ""), ("[b]", "", "\x1b[1m")])
    shown = capsys.readouterr().out
    assert "first" in shown and "last" in shown and "none" not in shown
    assert "[b]" in shown and r"\x1b[1m" in shown


def test_a_terminal_shows_the_title_of_a_task_in_its_bar_alone(monkeypatch, capsys):
    monkeypatch.setattr(console.Console, "on_terminal", True)
    with console.Console().task("building k2") as update:
        update(1, 2, "x")
    assert "building k2 ..." not in capsys.readouterr().out


def system_error(number: int, *more: str) -> OSError:
    return OSError(number, os.strerror(number), *more)


@pytest.mark.parametrize(
    "error, message, next_command",
    [
        (ValueError("bad\nmore"), "ValueError: bad", "k2mps --verbose, with "),
        (ValueError(), "ValueError", "k2mps --verbose, with "),
        (OSError("odd"), "odd", "correct that, then "),
        (system_error(errno.EACCES, "x"), "Permission denied: x", "correct that, then "),
        (system_error(errno.ENOSPC), "No space left on device", "free some space, then "),
        (system_error(errno.EDQUOT), "Disk quota exceeded", "free some space, then "),
        (
            FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"),
            "No usable temporary directory found in ['/tmp']",
            "free some space, then ",
        ),
    ],
)
def test_an_exception_becomes_an_error_of_one_line(error, message, next_command):
    found = ending._as_error(error)
    assert found.message == message and found.next_command.startswith(next_command)


@pytest.mark.parametrize("words, is_shown", [(["-v", "x"], True), (["x", "-v"], False)])
def test_only_with_verbose_an_unexpected_exception_is_traced(monkeypatch, capsys, words, is_shown):
    monkeypatch.setattr(sys, "argv", ["k2mps", *words])
    ending._as_error(ValueError("bad"))
    assert capsys.readouterr().err == ("ValueError: bad\n" if is_shown else "")


def test_help_names_every_command_once(empty):
    head, commands = empty.run("--help", env={"COLUMNS": "80"}).stdout.split("Commands:\n")
    # With up to 13 commands, the help fits a terminal of 24 lines.
    assert len(head.splitlines()) == 10
    listed = re.findall(r"^  (\w+) +\S.*$", commands, re.MULTILINE)
    assert len(listed) == len(commands.splitlines())
    assert sorted(listed) == sorted(command_line.main.commands)
    for name in (*command_line.main.commands, "wheel index", "wheel verify"):
        assert "Usage: " in empty.ok(*name.split(), "--help")
    import k2mps

    assert empty.ok("--version").strip() == f"k2mps {k2mps.__version__}"


def test_every_error_has_a_next_step():
    """Reads the source, because no test can raise all errors."""
    without = []
    for path in sorted((support.TOOLS / "k2mps").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            if re.fullmatch(r"errors\.\w+Error|kind", name) and not any(
                keyword.arg == "next_command" for keyword in node.keywords
            ):
                without.append(f"{path.name}:{node.lineno}: {name}")
    assert without == []


def test_a_missing_git_is_reported_with_the_next_step(sandbox, tmp_path):
    for arguments in (["status"], ["apply"]):
        result = sandbox.run(*arguments, env={"PATH": str(tmp_path)})
        assert "Traceback" not in result.stderr
        if result.returncode:
            assert result.returncode == 30
            assert "there is no git on the PATH" in result.stderr
            assert "next: install git" in result.stderr
    assert result.returncode == 30


@pytest.mark.parametrize("arguments", [["--help"], ["status"], []], ids=["help", "status", "none"])
def test_a_quick_command_imports_nothing_heavy(empty, arguments):
    """These commands are quick because they import no rich, no tomlkit and no torch."""
    script = (
        "import sys; sys.argv = ['k2mps', *sys.argv[1:]]\n"
        "from k2mps.cli import ending\n"
        "try:\n"
        "    ending.run()\n"
        "except SystemExit:\n"
        "    pass\n"
        "heavy = {'rich', 'tomlkit', 'torch', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    result = empty.program(sys.executable, "-c", script, *arguments)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "arguments, status, problem",
    [
        (["nonsense"], 2, "No such command"),
        (["apply", "--nonsense"], 2, "No such option"),
        (["statsu"], 2, "Did you mean 'status'?"),
        (["build", "--devcie", "mps"], 2, "Did you mean '--device'?"),
        (["rebase"], 2, "Missing option '--onto'"),
        (["wheel", "--sdk", "."], 2, "give --target macos-arm64 --quick as well"),
        (["test", "nope"], 1, "there is no suite 'nope' on this system\n  next: k2mps test docs "),
    ],
)
def test_a_wrong_command_line_is_explained(empty, arguments, status, problem):
    result = empty.run(*arguments)
    assert (result.returncode, problem in result.stderr) == (status, True), result.stderr


@pytest.mark.parametrize("way", ["option", "variable"])
def test_the_next_command_works_as_printed_for_another_checkout(sandbox, way):
    """The shell runs the printed commands, in an environment without K2."""
    k2 = sandbox.root.parent / 'my "k2"'
    programs = sandbox.root.parent / "bin"
    support.write(programs, {"k2mps": f'#!/bin/sh\nexec {sys.executable} -m k2mps "$@"\n'})
    (programs / "k2mps").chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    in_shell = {"env": {**sandbox.environment, **support.IDENTITY, "PATH": path}}
    option, variable = (("--k2", k2), {}) if way == "option" else ((), {"K2": str(k2)})

    def follow(command, *options):
        """Runs a command, and then the command that it prints, which the result is."""
        result = sandbox.run(command, *option, *options, env=variable)
        (step,) = re.findall("^ *next: (.*)", result.stdout + result.stderr, re.MULTILINE)
        printed = step.partition(";")[0]
        support.output("sh", "-ec", printed, cwd=sandbox.root, **in_shell)
        return printed

    shown = shlex.quote(str(k2))
    assert follow("fold", MPS) == f"git clone {sandbox.upstream.as_uri()} {shown}"
    facts = json.loads(sandbox.ok("status", *option, "--json", env=variable))
    assert facts["next_command"] == f"k2mps apply --k2 {shown}"
    assert follow("rebase", "--onto", "master") == facts["next_command"]
    support.commit(k2, "Mine", {"mine.txt": "1\n"})
    assert follow("status") == f"k2mps export --k2 {shown}"
    support.edit(sandbox.root / "patches/mine.patch", "Mine", "Yours")
    assert follow("status") == f"k2mps apply --k2 {shown}"
    assert support.git(k2, "log", "-1", "--format=%s") == "Yours"
    newer = support.commit(sandbox.upstream, "Newer", {"new.txt": "1\n"})
    support.shell(k2, "git config user.name A; git config user.email a@example.org")
    printed = sandbox.ok("rebase", *option, "--onto", "master", env=variable)
    assert f"\n+ k2mps export --k2 {shown} --onto {newer[:12]}\n" in printed


def test_a_message_names_the_options_that_the_next_command_has():
    given = session.Session()
    given.k2, given.torch, given.jobs = "my k2", "2.14", 2
    for text, expected in (
        ("next: k2mps fold PATCH", "next: k2mps fold --k2 'my k2' PATCH"),
        ("k2mps test docs", "k2mps test --k2 'my k2' --torch 2.14 --jobs 2 docs"),
        ("make test, or train", "make test K2='my k2' TORCH=2.14, or train"),
        ("then make export", "then make export K2='my k2'"),
        ("k2mps lint; k2mps doctor; make doctor", "k2mps lint; k2mps doctor; make doctor"),
    ):
        assert given.with_options(text) == expected
        assert session.Session().with_options(text) == text


def test_each_command_with_an_option_gets_it_in_messages():
    given = session.Session()
    given.k2, given.torch, given.jobs = "k2", "2.14", 2
    for name, one in command_line.main.commands.items():
        words = {*given.with_options(f"k2mps {name}").split()}
        options = {word for parameter in one.params for word in parameter.opts}
        for option in ("--k2", "--torch", "--jobs"):
            assert (option in words) == (option in options), name


def test_other_programs_output_keeps_its_commands(capsys):
    """A cover letter, for example, is for people with other checkouts."""
    shown = console.Console(complete=lambda text: "completed")
    shown.output("k2mps apply")
    shown.info("k2mps apply")
    assert capsys.readouterr().out == "k2mps apply\ncompleted\n"


def test_without_a_command_the_tool_prints_the_status(sandbox):
    status = sandbox.ok("status")
    assert f"checkout: absent ({sandbox.checkout})\nbuild: none\n" in status
    assert sandbox.ok() == f"{status}k2mps --help lists the commands\n"
    assert not (sandbox.root / "build").exists()
    sandbox.ok("apply")
    support.write(sandbox.root / "patches/files", {"k2/odd.h": "\n"})
    assert "\npatches: changed since they were applied: patches/files/k2/odd.h\n" in sandbox.ok()


def test_the_clone_is_the_one_above_or_the_tools_own(empty, tmp_path):
    (empty.root / "deep/er").mkdir(parents=True)
    for folder, checkout, warning in (
        (empty.root / "deep/er", empty.checkout, ""),
        (tmp_path, ROOT / "build/k2", f"no upstream.toml here or above: {ROOT}"),
    ):
        result = empty.run("status", cwd=folder)
        assert str(checkout) in result.stdout
        assert warning in result.stderr


def test_only_verbose_echoes_commands_that_can_be_pasted(sandbox):
    result = sandbox.run("--verbose", "apply", env={"NO_COLOR": "", "FORCE_COLOR": ""})
    echoed = re.findall(r"^\+ (.*)$", result.stderr, re.MULTILINE)
    assert any(line.startswith("git clone ") for line in echoed)
    assert any(line.startswith("git update-ref --create-reflog") for line in echoed)
    assert "+ " not in result.stdout
    result = sandbox.run("status")
    assert "+ git" not in result.stdout + result.stderr


def test_a_file_in_the_place_of_a_folder_is_an_error_not_a_traceback(sandbox):
    (sandbox.root / "build").write_text("a file, not a directory\n")
    assert "build\n  next: correct that, then" in sandbox.fails(1, "apply")


def test_a_folder_that_is_deleted_is_one_error(sandbox):
    """The user's shell is still in the folder."""
    command = shlex.join(sandbox.command("status"))
    result = sandbox.program("sh", "-c", f"mkdir gone; cd gone; rmdir ../gone; {command}")
    assert "error: the current directory has been deleted\n  next: cd " in result.stderr


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_names_are_utf8_in_any_locale(sandbox):
    program = Path(sys.prefix, "bin/k2mps")
    found = [sandbox.program(program, "lint", env={**os.environ, **more}) for more in (ASCII, {})]
    assert "größe" in found[0].stdout and found[0].stdout == found[1].stdout


@pytest.mark.parametrize("where", [">/dev/full", "| true"], ids=["a full device", "no reader"])
def test_an_output_that_cannot_be_written_is_at_most_one_error(sandbox, where):
    command = shlex.join(sandbox.command("lint"))
    result = sandbox.program("bash", "-c", f"set -o pipefail; sleep 0; {command} {where}")
    assert "Traceback" not in result.stderr and "Exception ignored" not in result.stderr
    assert result.stderr.count("error: ") <= 1
    assert where == "| true" or "No space left on device" in result.stderr


@pytest.mark.parametrize("number", [1, 2])
def test_a_stream_that_the_shell_has_closed_changes_no_status(sandbox, number):
    command = shlex.join(sandbox.command("lint"))
    result = sandbox.program("bash", "-c", f"{command} {number}>&-")
    assert result.returncode == 34 and "Traceback" not in result.stderr


def test_a_signal_that_ends_git_is_named(sandbox, k2):
    """The first git command that reads the pinned commit is killed."""
    variables = support.shim(sandbox.root.parent / "bin", "[ $count != 2 ] || kill -SEGV $$")
    error = sandbox.fails(1, "apply", env=variables)
    assert f"git rev-parse was ended by signal {signal.SIGSEGV}, Segmentation fault" in error


def test_the_advice_after_a_git_command_that_failed_can_be_run(sandbox, k2):
    script = 'case "$*" in *ls-tree*) echo broken >&2; exit 1;; esac'
    error = sandbox.fails(1, "export", env=support.shim(sandbox.root.parent / "bin", script))
    assert f"git ls-tree failed with status 1 in {k2}\n  why: broken\n" in error
    (command,) = re.findall("; (git .* status) tells more", error)
    support.shell(sandbox.root, command)


def test_a_toml_behind_a_link_is_refused(sandbox):
    """A rebase would replace the link by a file."""
    config = sandbox.root / "upstream.toml"
    config.rename(sandbox.root / "elsewhere")
    config.symlink_to("elsewhere")
    assert "upstream.toml is a symbolic link" in sandbox.fails(1, "apply")


PROGRAMS = [["-m", "k2_mps_tests.waits"], [ROOT / "ci/follow.py"], [ROOT / "ci/matrix.py"]]


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_an_interrupted_program_prints_one_line(tmp_path, program):
    """Python first runs sitecustomize.py, which makes library functions raise KeyboardInterrupt."""
    raised = "import subprocess, argparse\ndef stop(*a, **b):\n    raise KeyboardInterrupt\n"
    raised += "subprocess.run = argparse.ArgumentParser.parse_args = stop\n"
    support.write(tmp_path, {"sitecustomize.py": raised})
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (tmp_path, ROOT)))}
    result = support.ran(sys.executable, *program, env=variables)
    assert result.returncode and result.stderr == "error: interrupted\n"
