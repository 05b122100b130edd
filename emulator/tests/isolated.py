"""Runs cases in child processes, so that a crash or a hang is an outcome."""

import contextlib
import os
import pickle
import resource
import signal
import tempfile
import time
import traceback

import torch

# Seconds after which a case that uses no processor time ends its process.
_SILENCE = 900


class Slow(Exception):
    """A case used more processor time than its limit."""


def _on_timer(*_):
    raise Slow


def _judge_all(judge, cases, outcomes, log, seconds):
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, _on_timer)
    # A Mac's device does not survive a fork, so torch.manual_seed() leaves mps
    # out in a forked process.  The emulated device does survive.
    torch.mps._is_in_bad_fork = lambda: False
    for case in cases:
        # The limits are processor time, which a busy machine does not change.
        # The second limit ends the process of a case that is stuck in C++.
        signal.alarm(_SILENCE)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        limit = int(time.process_time()) + 2 * seconds
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        try:
            outcome = judge(case)
        except Slow:
            outcome = ("slow", f"took more than {seconds} s")
        except Exception:
            outcome = ("broken", traceback.format_exc())
        signal.setitimer(signal.ITIMER_PROF, 0)
        pickle.dump(outcome, outcomes)
        outcomes.flush()


def _start(judge, cases, seconds):
    """Starts a child; returns (its id, (cases, file of its outcomes, file of its output))."""
    outcomes, log = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    child = os.fork()
    if child == 0:
        try:
            _judge_all(judge, cases, outcomes, log, seconds)
        finally:
            os._exit(0)  # without a wait for threads that a case left
    return child, (cases, outcomes, log)


def _judged(status, cases, outcomes, log):
    """The outcomes of an ended child, in the order of the cases; the last may be its end."""
    outcomes.seek(0)
    found = []
    with contextlib.suppress(EOFError):
        while True:
            found.append(pickle.load(outcomes))
    if len(found) < len(cases):
        log.seek(0)
        code = os.waitstatus_to_exitcode(status)
        why = f"status {code}: " + log.read().decode(errors="replace").strip().split("\n")[-1]
        # The second limit on the processor's time.
        found.append(("slow" if code == -signal.SIGXCPU else "ended", why))
    return found


def run(judge, groups, seconds=60):
    """Judges the cases of each group in a process of its own.

    If a case ends the process, another process judges the rest of the group.

    Args:
      judge: judge(case) returns (outcome, detail), two texts.
      groups: lists of cases.
      seconds: the limit of processor time for each case.
    Yields:
      (case, (outcome, detail)), as they come.  Further outcomes are "slow",
      "broken" (an exception, with its traceback) and "ended" (the process).
    """
    torch.set_num_threads(1)  # and none that a fork would lose
    waiting = list(groups)
    children = {}
    while waiting or children:
        while waiting and len(children) < os.cpu_count():
            child, its = _start(judge, waiting.pop(), seconds)
            children[child] = its
        child, status = os.wait()
        cases, *files = children.pop(child)
        judged = _judged(status, cases, *files)
        yield from zip(cases, judged)
        if len(judged) < len(cases):
            waiting.append(cases[len(judged) :])
