"""Forks a child for each line of stdin, and prints the child's status.

A line has the path of the child's program, changes to the child's environment, and the paths of the
files for its stdout and stderr.  The fixture in_child of conftest.py writes these lines.
"""

import ast
import os
import runpy
import sys
import traceback

import kernels
import torch


def _run_child(program, environment, outputs, names):
    """Runs a child's program, and ends the process."""
    os.environ.update(environment)
    for descriptor, path in enumerate(outputs, 1):
        with open(path, "wb", buffering=0) as file:
            os.dup2(file.fileno(), descriptor)
    try:
        runpy.run_path(program, names)
        status = 0
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    import emulator_test_extension as extension

    names = {"torch": torch, "extension": extension, "kernels": kernels}
    for line in sys.stdin:
        program, environment, *outputs = ast.literal_eval(line)
        child = os.fork()
        if child == 0:
            _run_child(program, environment, outputs, names)
        _, status = os.waitpid(child, 0)
        print(status, flush=True)


if __name__ == "__main__":
    main()
