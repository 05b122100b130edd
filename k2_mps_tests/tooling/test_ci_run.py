"""ci/run, with stand-ins for make and ccache."""

import os
import shutil
import signal
import subprocess

import pytest

from k2_mps_tests.tooling import support

# This stand-in waits for a child process, as make does.
MAKE = "#!/bin/sh\necho started\nsleep 120\necho went on\n"


@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_children(tmp_path, number, status):
    """communicate() returns when the last child has ended, because all children hold the pipe."""
    script = tmp_path / "ci/run"
    script.parent.mkdir()
    shutil.copy(support.TOOLS.parent / "ci/run", script)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"make": MAKE, "ccache": "#!/bin/sh\n"}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.Popen(
        [script], env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, text=True
    )
    for line in run.stdout:
        if line == "started\n":
            break
    run.send_signal(number)
    output, _ = run.communicate(timeout=60)
    assert run.returncode == status
    assert "went on" not in output
