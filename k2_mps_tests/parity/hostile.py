"""Calls k2's public functions with one wrong argument at a time.

    python -m k2_mps_tests.parity.hostile --place cpu [PATTERN]

Each call must return, or raise an exception with a reason.  The program reports each call that
crashes or takes longer than LIMIT, that raises an exception without a reason, or that prints a
stack trace.  It exits with 1 if there is such a call.

A worker process makes the calls.  After a crash, the program starts another worker at the next
call.
"""

import argparse
import ast
import collections
import ctypes
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import k2
import k2.ragged  # noqa: F401  CALLS use it
import torch

from k2_mps_tests.parity.hostile_calls import CALLS, CHANGES, VALUES
from k2_mps_tests.parity.hostile_inputs import inputs, other_device

LIMIT = 30  # seconds for one call
MEMORY = 6 << 30  # bytes; a call that needs more raises an exception


def cases(pattern=""):
    """Returns (call, text of the good argument, form of the wrong argument) of each case.

    The wrong argument is named `wrong` in the call.
    """
    found = []
    for call in CALLS:
        if not re.search(pattern, call):
            continue
        node = ast.parse(call, mode="eval").body
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            begin, end = argument.col_offset, argument.end_col_offset
            changed = f"{call[:begin]}wrong{call[end:]}"
            found += [(changed, call[begin:end], form) for form in [*VALUES, *CHANGES]]
    return found


def names_without_a_call():
    """Returns the public functions of k2 that CALLS lacks."""
    text = "\n".join(CALLS)
    return [
        name
        for name, value in vars(k2).items()
        if not name.startswith("_")
        and callable(value)
        and (getattr(value, "__module__", None) or "").startswith(("k2", "_k2"))
        and f"k2.{name}(" not in text
        and f"k2.{name}." not in text
    ]


class Variables(dict):
    """The variables of a call, each made when the call first uses it."""

    def __init__(self, device):
        super().__init__(device=device, other=other_device(device))
        self.makers = inputs(device)

    def __missing__(self, name):
        self[name] = self.makers[name]()
        return self[name]


def run_case(case, device):
    """Makes a call.  Returns "skipped", "returned", "no reason" or the text of the exception."""
    call, good, form = case
    variables = Variables(device)
    try:
        if form in CHANGES:
            variables["x"] = eval(good, {}, variables)
        variables["wrong"] = eval(form, {}, variables)
    except Exception:
        return "skipped"
    try:
        eval(call, {}, variables)
        if torch.device(device).type == "mps":
            torch.mps.synchronize()
    except Exception as e:
        return f"{type(e).__name__}: {e}" if str(e).strip() else f"no reason: {type(e).__name__}"
    return "returned"


def work(found, first, device):
    """Runs the cases from number `first`; prints a line of text for each."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    libc = ctypes.CDLL(None)
    torch.set_num_threads(1)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with tempfile.TemporaryFile() as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        for number in range(first, len(found)):
            output.truncate(0)
            os.lseek(output.fileno(), 0, os.SEEK_SET)
            signal.alarm(LIMIT)
            ans = run_case(found[number], device)
            signal.alarm(0)
            sys.stdout.flush()
            libc.fflush(None)
            if ans != "skipped" and b"Stack-Trace" in os.pread(output.fileno(), 1 << 20, 0):
                ans = f"stack trace: {ans}"
            lines.write(f"{number} {ascii(ans[:500])}\n")


def run(found, command):
    """Runs all cases in workers; yields (number of the case, text)."""
    first = 0
    while first < len(found):
        with subprocess.Popen(
            [*command, "--worker", str(first)], stdout=subprocess.PIPE, text=True
        ) as worker:
            for line in worker.stdout:
                number, text = line.split(" ", 1)
                first = int(number) + 1
                yield int(number), ast.literal_eval(text)
        if first < len(found):
            died = -worker.returncode
            yield first, "hang" if died == signal.SIGALRM else f"crash: {worker.returncode}"
            first += 1


BAD = ("crash", "hang", "no reason", "stack trace")


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m k2_mps_tests.parity.hostile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pattern", nargs="?", default="", help="a regular expression of calls")
    parser.add_argument("--place", choices=("cpu", "host", "metal"), default="cpu")
    parser.add_argument("--all", metavar="FILE", type=Path, help="write what each call did")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    device = "cpu" if args.place == "cpu" else "mps"
    found = cases(args.pattern)
    if args.worker is not None:
        work(found, args.worker, device)
        return 0
    if device == "mps":
        os.environ["K2_MPS_FORCE"] = args.place
    command = [sys.executable, "-m", "k2_mps_tests.parity.hostile", args.pattern]
    tally = collections.Counter()
    with open(args.all or os.devnull, "w", encoding="utf-8") as out:
        for number, text in run(found, [*command, "--place", args.place]):
            call, good, form = found[number]
            kind = next((bad for bad in BAD if text.startswith(bad)), "right")
            tally["skipped" if text == "skipped" else kind] += 1
            shown = f"{call}, wrong = {form}, x = {good}: {' '.join(text.split())}"
            print(shown, file=out)
            if kind != "right":
                print(shown, flush=True)
    print(", ".join(f"{tally[kind]} {kind}" for kind in ("right", "skipped", *BAD)))
    return int(any(tally[bad] for bad in BAD))


if __name__ == "__main__":
    sys.exit(main())
