"""Runs a program with Metal's validation, and fails if the validation reports anything.

By itself, Metal's validation of kernels reports to the system's log, and lets the program go on: a
load outside of a buffer gives zeros, and a store has no effect.  So the results of a wrong kernel
may be right.
"""

import os
import re
import signal
import subprocess
import sys

from k2_mps_tests.kernels import runner

# Metal reads these variables when a process starts.
VARIABLES = {
    "MTL_DEBUG_LAYER": "1",
    "MTL_SHADER_VALIDATION": "1",
    "MTL_SHADER_VALIDATION_REPORT_TO_STDERR": "1",
}
_REPORT = re.compile(r"\bInvalid \w+ (load|store)\b")


def run(command, say=print):
    """Runs a command with VARIABLES in its environment; returns an exit status.

    The status is that of the command, or runner.WRONG if the command succeeded and its stderr has
    reports of the validation, or 128 + the number of the signal that ended the command.  The
    stderr of the command goes to this process's stderr line by line.
    """
    reports = 0
    with subprocess.Popen(
        command,
        env={**os.environ, **VARIABLES},
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as child:
        for line in child.stderr:
            sys.stderr.write(line)
            sys.stderr.flush()
            reports += bool(_REPORT.search(line))
    status = child.returncode
    if status < 0:
        say(f"the validated process ended by {signal.Signals(-status).name}")
        return 128 - status
    emulated = " (emulated)" if sys.platform == "linux" else ""
    say(f"Metal's validation{emulated} reported {reports} accesses outside of memory")
    return status or (runner.WRONG if reports else 0)
