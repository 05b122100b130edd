"""Forks a child for each line on stdin; see conftest.py's in_child."""

import ast
import importlib.util
import os
import sys

import torch


def _load(path):
    specification = importlib.util.spec_from_file_location("emulator_test_extension", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _run_child(code, stderr, names):
    with open(stderr, "wb", buffering=0) as file:
        os.dup2(file.fileno(), 2)
        os.dup2(file.fileno(), 1)
    try:
        exec(compile(code, "<child>", "exec"), names)
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    os._exit(status)


def main():
    names = {"torch": torch, "extension": _load(sys.argv[1])}
    for line in sys.stdin:
        code, stderr = ast.literal_eval(line)
        child = os.fork()
        if child == 0:
            _run_child(code, stderr, names)
        _, status = os.waitpid(child, 0)
        print(status, flush=True)


if __name__ == "__main__":
    main()
