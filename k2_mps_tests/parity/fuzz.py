"""Compares k2 on mps with k2 on the CPU, for random FSAs, ragged tensors and losses.

    python -m k2_mps_tests.parity.fuzz --seconds 60 --seed 1

hypothesis makes the cases and shrinks failing ones.  Both devices must give the same
values and gradients, or raise the same type of exception.  Results must be bit for bit
identical if both devices run the same host code, or if Metal's kernels compute only maxima.
If the kernels use exp() and log(), results may differ by the errors of these functions.

For each failure, the program prints the smallest case that hypothesis found, as a Python
program that repeats the case.
"""

import argparse
import collections
import contextlib
import itertools
import os
import sys
import time
import warnings
from pathlib import Path

import hypothesis
import torch
from hypothesis import strategies as st

from k2_mps_tests import ending
from k2_mps_tests.parity.fuzz_cases import CASES, FORCE, PLACES
from k2_mps_tests.parity.helpers import MPS, assert_equal

CPU = torch.device("cpu")
LOG = Path(__file__).parents[2] / "build/tests/fuzz.log"


def outcome(function, device, **kwargs):
    """Calls a case's function.

    Returns ('returned', value), or ('raised', name of the exception's type).
    """
    try:
        with _quiet():
            print(f"{function.__name__} on {device}, {kwargs}", flush=True)
            return "returned", function(device, **kwargs)
    except (RuntimeError, ValueError, AssertionError, TypeError, AttributeError) as error:
        return "raised", type(error).__name__


@contextlib.contextmanager
def _quiet():
    """Sends the process's output to LOG.

    Many cases raise exceptions, and k2 prints warnings for some.  If a call crashes the process,
    LOG shows the arguments of this call.
    """
    sys.stdout.flush()
    saved = [os.dup(fd) for fd in (1, 2)]
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with open(LOG, "w") as log:
        for fd in (1, 2):
            os.dup2(log.fileno(), fd)
    try:
        yield
    finally:
        for fd, copy in zip((1, 2), saved):
            os.dup2(copy, fd)
            os.close(copy)


def check(kind, place=None, **kwargs):
    """Runs one case on both devices; raises AssertionError if the results differ.

    Args:
      place: where k2 runs an operation on mps that can run in both places: "host" or "metal".  If
        `place` is None, k2 chooses.
    Returns:
      "returned" or "raised", see outcome().
    """
    function, _ = CASES[kind]
    os.environ.pop(FORCE, None)
    if place is not None:
        os.environ[FORCE] = place
    cpu = outcome(function, CPU, **kwargs)
    mps = outcome(function, MPS, **kwargs)
    assert cpu[0] == mps[0], f"{cpu[0]} {cpu[1]} on the CPU, {mps[0]} {mps[1]} on mps"
    assert_equal(mps[1], cpu[1])
    return cpu[0]


def fuzz(seconds, seed, kinds, tally, place=None):
    """Runs cases of `kinds` for a number of seconds, and at least one round of each kind.

    Args:
      tally: a Counter of (kind, outcome), to which this function adds.
      place: as in check(); None: hypothesis draws the place of each case.
    Returns:
      A list of failures: (kind, arguments of the smallest failing case, message).
    """
    deadline = time.monotonic() + seconds
    failures = []
    remaining = list(kinds)
    fixed = {} if place is None else {"place": place}
    for round_number in itertools.count():
        for kind in list(remaining):
            if round_number > 0 and time.monotonic() > deadline:
                return failures
            failure = run_cases(kind, seed + round_number, tally, fixed)
            if failure is not None:
                failures.append(failure)
                # A further failure of this kind would probably have the same cause as this one.
                remaining.remove(kind)
        if not remaining:
            return failures


def run_cases(kind, seed, tally, fixed, examples=50):
    """Runs hypothesis once on `examples` cases of a kind.

    Args:
      tally: as in fuzz().
      fixed: {name: value} of arguments that do not vary.  An argument for which the kind has no
        strategy is ignored.
    Returns:
      A failure, in the format of fuzz(), or None if all cases pass.
    """
    smallest = {}
    arguments = dict(CASES[kind][1])
    arguments.update({name: st.just(fixed[name]) for name in arguments.keys() & fixed.keys()})

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(**arguments)
    def run(**kwargs):
        try:
            tally[kind, check(kind, **kwargs)] += 1
        except AssertionError:
            # The last case that hypothesis tries is the smallest.
            smallest.clear()
            smallest.update(kwargs)
            raise

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run()
    except AssertionError as difference:
        return kind, dict(smallest), str(difference)
    return None


def _reproducer(kind, kwargs):
    arguments = ",\n    ".join(f"{k}={v!r}" for k, v in kwargs.items())
    return (
        "import torch\n"
        "from k2_mps_tests.parity import fuzz\n"
        "inf, nan = float('inf'), float('nan')\n"
        f"fuzz.check({kind!r},\n    {arguments})"
    )


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m k2_mps_tests.parity.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=60, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument(
        "--kind",
        action="append",
        choices=sorted(CASES),
        help="run only this kind of case; may be repeated; default: all kinds",
    )
    parser.add_argument(
        "--place",
        choices=PLACES,
        help="runs operations that both the host and Metal can run; default: random for each case",
    )
    args = parser.parse_args(argv)

    emulated = "" if sys.platform == "darwin" else " (emulated)"
    print(f"comparing cpu with mps{emulated} for {args.seconds:g} s, seed {args.seed}", flush=True)
    tally = collections.Counter()
    failures = fuzz(args.seconds, args.seed, args.kind or list(CASES), tally, args.place)
    for kind, kwargs, text in failures:
        print(f"\nfailure of {kind}: {text}\nto see it again:\n\n{_reproducer(kind, kwargs)}\n")
    print(f"{'kind':<20}{'equal':>8}{'both raised':>13}")
    for kind in CASES:
        print(f"{kind:<20}{tally[kind, 'returned']:>8}{tally[kind, 'raised']:>13}")
    print(f"{sum(tally.values())} cases, {len(failures)} failures{emulated}")
    return 1 if failures else 0


if __name__ == "__main__":
    ending.run(main)
