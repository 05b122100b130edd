"""The command line itself: help, errors, exit codes, echo."""

import ast
import os
import re
import subprocess
import sys

import pytest
from k2mps.cli import command_line
from k2mps.core import errors
from k2mps.run import docs

from k2_mps_tests.tooling import support


def test_exit_codes_tell_the_kinds_of_error_apart():
    *kinds, interrupted = docs.error_kinds()
    codes = [kind.exit_code for kind in kinds]
    # 0 is success, 2 a wrong command line; above 128 are signals.
    assert codes == sorted(set(codes) - {0, 2}) and codes[-1] < 128
    assert interrupted is errors.InterruptedRunError
    for kind in (*kinds, interrupted):
        assert kind.__doc__.split("\n")[0].endswith(".") and kind.remedy.endswith("."), kind


def test_help_names_every_command(empty):
    out = empty.ok("--help")
    for name in command_line.main.commands:
        assert re.search(rf"^  {name} +\S", out, re.MULTILINE), name
        assert "Usage: " in empty.ok(name, "--help")
    out = empty.ok("wheel", "--help")
    for name in ("index", "sbom", "verify"):
        assert re.search(rf"^  {name} +\S", out, re.MULTILINE), name
        assert "Usage: " in empty.ok("wheel", name, "--help")


def test_help_has_each_command_in_one_group(empty):
    out = empty.ok("--help")
    groups = re.findall(r"^([A-Z][a-z0-9 ]+):\n((?:  .*\n)+)", out, re.MULTILINE)
    listed = [
        name
        for title, lines in groups
        if title != "Options"
        for name in re.findall(r"^  (\S+)", lines, re.MULTILINE)
    ]
    assert sorted(listed) == sorted(command_line.main.commands)
    assert dict(groups)["Follow upstream"].split()[0] == "probe"


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


def test_without_git_there_is_a_message(sandbox, tmp_path):
    for arguments in (["status"], ["apply"]):
        result = sandbox.run(*arguments, env={"PATH": str(tmp_path)})
        assert "Traceback" not in result.stderr
        if result.returncode:
            assert result.returncode == 30
            assert "there is no git on the PATH" in result.stderr
            assert "next: install git" in result.stderr
    assert result.returncode == 30


def test_help_works_anywhere(empty, tmp_path):
    result = subprocess.run(
        empty.command("apply", "--help"),
        cwd=tmp_path,
        env=empty.environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0


def test_help_and_status_import_nothing_heavy(empty):
    """These commands are quick because they import no rich, no tomlkit and no torch."""
    script = (
        "import sys; sys.argv = ['k2mps', *sys.argv[1:]]\n"
        "from k2mps.cli import command_line\n"
        "try:\n"
        "    command_line.run()\n"
        "except SystemExit:\n"
        "    pass\n"
        "heavy = {'rich', 'tomlkit', 'torch', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    for arguments in (["--help"], ["status"], []):
        result = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            cwd=empty.root,
            env=empty.environment,
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr


def test_version(empty):
    import k2mps

    assert empty.ok("--version").strip() == f"k2mps {k2mps.__version__}"


@pytest.mark.parametrize(
    "arguments, problem",
    [
        (["nonsense"], "No such command"),
        (["apply", "--nonsense"], "No such option"),
        (["test", "pytorch"], "--source FILE"),
        (["test", "parity", "--source", "upstream.toml"], "--source FILE"),
        (["test", "--source", "none"], "--source"),
        (["rebase"], "one of --onto, --continue, --abort"),
        (["rebase", "--continue", "--abort"], "one of --onto, --continue, --abort"),
        (["move", "a"], "one of --before and --after"),
        (["probe", "abc"], "give two commits as BASE..END"),
        (["kernels", "--prepare", "new", "--run", "."], "--prepare or --run, not both"),
        (["upstream", "--group", "fixes", "a"], "not both"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(empty, arguments, problem):
    result = empty.run(*arguments)
    assert result.returncode == 2
    assert problem in result.stderr


def test_an_unknown_suite_is_refused_with_the_known_ones(empty):
    message = empty.fails(1, "test", "nope")
    assert "there is no suite 'nope'" in message and "next: k2mps test docs" in message


@pytest.mark.parametrize(
    "arguments, meant", [(["statsu"], "'status'"), (["build", "--devcie", "mps"], "'--device'")]
)
def test_a_typo_gets_a_suggestion(empty, arguments, meant):
    result = empty.run(*arguments)
    assert result.returncode == 2
    assert f"Did you mean {meant}?" in result.stderr


def test_the_demonstration_needs_a_build(empty):
    result = empty.run("demo")
    assert result.returncode == 30
    assert "k2 is not built" in result.stderr
    assert "next: k2mps build" in result.stderr


def test_without_a_command_it_tells_how_things_stand(sandbox):
    def overview():
        return dict(line.split(": ", 1) for line in sandbox.ok().splitlines() if ": " in line)

    found = overview()
    assert found["k2"].endswith(sandbox.pin[:12])
    assert found["checkout"] == f"absent ({sandbox.checkout})"
    assert found["build"] == "none"
    assert found["next"] == "k2mps build"
    assert not (sandbox.root / "build").exists()
    sandbox.ok("apply")
    assert overview()["checkout"].startswith("applied ")
    assert overview()["next"] == "k2mps build"
    support.write(sandbox.checkout, {"k2/csrc/array.cu": "mine\n"})
    found = overview()
    assert found["checkout"].startswith("edited ")
    assert found["next"] == "k2mps fold PATCH, or k2mps new SUBJECT"
    support.write(sandbox.root / "patches/files", {"k2/odd.h": "\n"})
    found = overview()
    assert found["patches"].startswith("changed since")


def _completions(sandbox, *words):
    """The completions that bash gets for the last of these words."""
    out = sandbox.run(
        env={
            "_K2MPS_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["k2mps", *words]),
            "COMP_CWORD": str(len(words)),
        }
    ).stdout
    return [line.split(",", 1)[1] for line in out.split("\n") if line]


def test_the_shell_completes_commands_patches_and_suites(sandbox):
    assert _completions(sandbox, "stat") == ["status"]
    assert _completions(sandbox, "build", "--dev") == ["--device"]
    assert _completions(sandbox, "test", "upstream-m") == ["upstream-mps"]
    names = (sandbox.root / "patches/series").read_text().split()
    assert _completions(sandbox, "fold", "") == [name.removesuffix(".patch") for name in names]
    (sandbox.root / "patches/series").unlink()
    assert _completions(sandbox, "fold", "") == []


def test_outside_a_clone_the_tools_own_clone_is_meant(empty, tmp_path):
    result = subprocess.run(
        empty.command("status"), cwd=tmp_path, env=empty.environment, capture_output=True, text=True
    )
    assert str(support.TOOLS.parent) in result.stdout
    assert f"no upstream.toml here or above: {support.TOOLS.parent}" in (result.stderr)


def test_it_works_from_below_the_top(empty):
    (empty.root / "deep/er").mkdir(parents=True)
    result = subprocess.run(
        empty.command("status"),
        cwd=empty.root / "deep/er",
        env=empty.environment,
        capture_output=True,
        text=True,
    )
    assert str(empty.checkout) in result.stdout


def test_verbose_echoes_commands_that_can_be_pasted(sandbox):
    result = sandbox.run("--verbose", "apply")
    echoed = re.findall(r"^\+ (.*)$", result.stderr, re.MULTILINE)
    assert any(line.startswith("git clone ") for line in echoed)
    assert any(line.startswith("git update-ref refs/") for line in echoed)
    assert "+ " not in result.stdout


def test_quiet_by_default(sandbox):
    result = sandbox.run("apply")
    assert "+ git" not in result.stdout + result.stderr


def test_no_escape_sequences_without_a_terminal(sandbox):
    result = sandbox.run("apply", env={"NO_COLOR": "", "FORCE_COLOR": ""})
    assert "\x1b" not in result.stdout + result.stderr


def test_an_error_says_what_why_and_what_next(sandbox):
    support.write(sandbox.root / "patches", {"series": "gone.patch\n"})
    message = sandbox.fails(1, "apply")
    assert re.fullmatch(r"error: [^\n]+\n  why: [^\n]+\n  next: [^\n]+\n", message)


def test_a_directory_that_cannot_be_read_is_an_error_not_a_traceback(sandbox):
    (sandbox.root / "build").write_text("a file, not a directory\n")
    assert "build\n  next: make it readable" in sandbox.fails(1, "checkout")


def test_a_closed_pipe_is_no_traceback(sandbox):
    sandbox.ok("checkout")
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        sandbox.command("status"),
        cwd=sandbox.root,
        env=sandbox.environment,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    assert result.returncode != 0
    assert result.stderr == ""
