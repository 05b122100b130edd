"""The core of the tool: texts for the user, git's version, processes and files."""

import errno
import os
import sys
import tempfile

import pytest
from k2mps.core import errors, git, process, replacement
from k2mps.core.project import Project

from k2_mps_tests.running import ran
from k2_mps_tests.tooling import support


def test_a_signal_without_a_name_is_given_by_its_number():
    assert "git was ended by signal 32, unknown" in str(errors.ended_by_signal("git", -32))


def test_a_file_name_that_is_not_utf8_can_be_printed():
    assert errors.visible("caf\udce9") == r"caf\udce9"


@pytest.mark.parametrize(
    "text, shown",
    [
        ("https://me:secret@k2.org/k2.git", "https://***@k2.org/k2.git"),
        ("https://k2.org/k2@2", "https://k2.org/k2@2"),
        ("git@k2.org:k2.git", "git@k2.org:k2.git"),
    ],
)
def test_a_password_in_a_url_is_hidden(text, shown):
    assert git.redacted(f"fetching {text} failed") == f"fetching {shown} failed"


@pytest.mark.parametrize("name", [":a", "a*", "a?", "a[1]", "a\\1", "a b"])
def test_a_pathspec_matches_only_the_file_that_has_the_name(tmp_path, name):
    """Without quotes, some of these names match other files, and git refuses others."""
    support.git(tmp_path, "init", "--quiet")
    support.write(tmp_path, {path: "" for path in ("a", "a1", "ab", name)})
    support.git(tmp_path, "add", "--all")
    words = git.pathspecs([name])
    listed = support.output("sh", "-c", f"git ls-files -z -- {words}", cwd=tmp_path)
    assert listed == f"{name}\0"


@pytest.mark.parametrize(
    "printed, version", [("git version 2.39.5 (Apple Git-154)", (2, 39, 5)), (None, ())]
)
def test_the_version_of_git(tmp_path, monkeypatch, printed, version):
    if printed:
        support.write(tmp_path, {"git": f"#!/bin/sh\necho '{printed}'\n"})
        (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git.version() == version


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_or_quota_is_named_although_git_does_not_name_it(tmp_path, monkeypatch, number):
    def refuse(**_):
        raise OSError(number, "no room")

    message = "fatal: unable to write new index file"
    git.check_resources("add", message, tmp_path)
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    git.check_resources("add", "fatal: not a git repository", tmp_path)
    with pytest.raises(errors.K2mpsError, match="no space left while running git add"):
        git.check_resources("add", message, tmp_path)


@pytest.mark.parametrize(
    "script, found",
    [("echo ' a '", "a"), ("echo a; exit 1", ""), ("printf '\\377'", "\ufffd"), ("cat", "")],
)
def test_the_output_of_a_short_command(script, found):
    assert process.output(["sh", "-c", script]) == found


def test_a_short_command_that_is_missing_has_no_output():
    assert process.output(["/nowhere/program"]) == ""


def test_a_command_may_print_what_is_not_utf8():
    assert process.run(["printf", r"\377\n"]).lines == ("\ufffd",)


def test_without_ps_the_processes_of_linux_are_known(monkeypatch):
    if sys.platform == "linux":
        monkeypatch.setenv("PATH", "/nowhere")
    assert {os.getpid(), os.getppid()} <= {*process._all_processes()}


def test_on_a_mac_ps_lists_the_processes(monkeypatch, tmp_path):
    support.write(
        tmp_path, {"ps": "#!/bin/sh\n[ \"$*\" = '-A -o pid=' ] && printf '   1\\n 345\\n'\n"}
    )
    (tmp_path / "ps").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os.path, "isdir", lambda path: path != "/proc/self")
    assert process._all_processes() == [1, 345]


NOHUP = """\
import signal
from k2mps.core import interrupts, process
signal.signal(signal.SIGHUP, signal.SIG_IGN)
interrupts.install()
print(*process.run(["sh", "-c", "kill -HUP $$; echo alive"]).lines)
"""


def test_under_nohup_child_processes_ignore_the_signal_too():
    assert ran(sys.executable, "-c", NOHUP).stdout == "alive\n"


def test_a_signal_in_nested_sections_arrives_after_the_outermost():
    program = (
        "import signal\nfrom k2mps.core import interrupts\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('arrived'))\n"
        "with interrupts.deferred():\n"
        "    with interrupts.deferred():\n"
        "        signal.raise_signal(signal.SIGTERM)\n"
        "    print('between')\n"
    )
    assert ran(sys.executable, "-c", program).stdout == "between\narrived\n"


def test_a_file_that_cannot_be_replaced_leaves_no_draft(tmp_path):
    (tmp_path / "folder/full").mkdir(parents=True)
    with pytest.raises(OSError):
        replacement.rewrite(tmp_path / "folder", "text\n")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_the_registered_build_is_the_tree_that_exists(tmp_path):
    project = Project(tmp_path)
    assert project.registered is None
    register = {".venv/lib/python3.12/site-packages/k2mps-build.pth": f"/k2\n{tmp_path}/x/lib\n"}
    support.write(tmp_path, register)
    assert project.registered is None
    (tmp_path / "x").mkdir()
    assert project.registered == tmp_path / "x"
