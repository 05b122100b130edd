"""ci/run, with stand-ins for make and ccache."""

import os
import re
import shutil
import signal
import subprocess

import pytest

from k2_mps_tests.tooling import support

# This stand-in waits for a child process, as make does.
MAKE = "#!/bin/sh\necho started\nsleep 120\necho went on\n"


PROGRAMS = ("apt-get", "ccache", "git", "llvm-as-14", "llvm-spirv-14", "make", "sudo")
VENV_PROGRAMS = (".venv/bin/flake8", ".venv/bin/k2mps", ".venv/bin/python", ".venv/bin/ruff")


def put(folder, programs):
    """Writes stand-ins; returns a PATH that begins with the folder bin."""
    support.write(folder, programs)
    for name in programs:
        (folder / name).chmod(0o755)
    (folder / "ci").mkdir()
    shutil.copy(support.TOOLS.parent / "ci/run", folder / "ci/run")
    return f"{folder}/bin{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize("failed", [[], [".venv/bin/flake8 patches"]])
def test_the_time_of_each_check_and_the_checks_that_failed_are_printed(tmp_path, failed):
    names = [*(f"bin/{name}" for name in PROGRAMS), *VENV_PROGRAMS]
    programs = dict.fromkeys(names, "#!/bin/sh\n")
    programs["bin/make"] = "#!/bin/sh\n[ $1 != mac-report ] || sleep 1.1\n"
    if failed:
        programs[".venv/bin/flake8"] = "#!/bin/sh\nexit 1\n"
    environment = {**os.environ, "PATH": put(tmp_path, programs)}
    ran = subprocess.run(
        [tmp_path / "ci/run"], env=environment, stdout=subprocess.PIPE, text=True, timeout=60
    )
    lines = ran.stdout.splitlines()
    checks = [line.removeprefix("+ ") for line in lines if line.startswith("+ ")]
    found = filter(None, (re.fullmatch(r" *(\d+) s  (.*)", line) for line in lines))
    times = {match[2]: int(match[1]) for match in found}
    assert [*times] == checks and len(checks) > 15
    assert times["make mac-report REPORT=--quick"] >= 1
    assert [line.removeprefix("failed: ") for line in lines if line.startswith("failed")] == failed
    assert ran.returncode == bool(failed) and (lines[-1] == "all checks passed") != bool(failed)


@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_children(tmp_path, number, status):
    """communicate() returns when the last child has ended, because all children hold the pipe."""
    programs = {"bin/make": MAKE, "bin/ccache": "#!/bin/sh\n"}
    path = put(tmp_path, programs)
    run = subprocess.Popen(
        [tmp_path / "ci/run"], env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, text=True
    )
    for line in run.stdout:
        if line == "started\n":
            break
    run.send_signal(number)
    output, _ = run.communicate(timeout=60)
    assert run.returncode == status
    assert "went on" not in output
