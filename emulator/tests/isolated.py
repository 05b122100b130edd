"""Runs cases in child processes.

So a crash or a hang of a case does not end the program, but is the outcome of the case.
"""

import multiprocessing
import multiprocessing.connection
import os
import resource
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

import torch

# Children are forks.  A new interpreter would have to import torch, and could not receive a
# function `judge` that is a closure.
_PROCESSES = multiprocessing.get_context("fork")

# The maximum time of a case in seconds, including waits.  After this time, SIGALRM ends the process
# of the case.
_SILENCE = 900


class Slow(Exception):
    """A case used more processor time than its limit."""


def _on_timer(*_):
    raise Slow


class _Child(NamedTuple):
    """A process that judges cases one after another."""

    process: multiprocessing.Process
    cases: list[Any]
    outcomes: list[tuple[str, str]]  # of the cases that the process has judged
    log: BinaryIO  # receives the output of the process


def _judge_all(judge, cases, sender, log, seconds):
    """Judges a child's cases, and sends their outcomes through the pipe `sender`.

    Args:
      log: the file that receives the output of the cases.
      seconds: the limit of processor time for each case.
    """
    try:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGPROF, _on_timer)
        # On a Mac the device is not usable after a fork.  So in a forked process
        # torch.manual_seed() does not seed mps.  The emulated device is usable after a fork.
        torch.mps._is_in_bad_fork = lambda: False
        for case in cases:
            sender.send(_outcome(judge, case, seconds))
    finally:
        os._exit(0)  # does not wait for threads that a case has started


def _outcome(judge, case, seconds):
    """Returns the outcome of a case within the limits of time."""
    # The limits count processor time, because it does not depend on other programs on the machine.
    # The first limit raises Slow in Python code.  The second limit ends the process if a case does
    # not return from C++ code.
    signal.alarm(_SILENCE)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    limit = int(time.process_time()) + 2 * seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
    try:
        return judge(case)
    except Slow:
        return "slow", f"took more than {seconds} s"
    except Exception:
        return "broken", traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _start(judge, cases, seconds):
    """Starts a child; returns the pipe from which to read the child's outcomes, and the _Child."""
    log = tempfile.TemporaryFile()
    receiver, sender = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=_judge_all, args=(judge, cases, sender, log, seconds))
    process.start()
    # Now only the child can write to the pipe.  So the pipe is closed when the child ends.
    sender.close()
    return receiver, _Child(process, cases, [], log)


def _outcome_of_ended(child):
    """Returns the outcome of the case that has ended a child."""
    child.process.join()
    child.log.seek(0)
    last_line = child.log.read().decode(errors="replace").strip().split("\n")[-1]
    code = child.process.exitcode
    # SIGXCPU means that the case has reached the second limit of processor time.
    return "slow" if code == -signal.SIGXCPU else "ended", f"status {code}: {last_line}"


def run(
    judge: Callable[[Any], tuple[str, str]], groups: Iterable[Sequence[Any]], seconds: int = 60
) -> Iterator[tuple[Any, tuple[str, str]]]:
    """Judges the cases of each group in a separate process.

    If a case ends the process, another process judges the other cases of the group.

    Args:
      judge: takes a case and returns its outcome and a detail.
      groups: the cases of each group.
      seconds: the limit of processor time for each case.
    Yields:
      Each case with its outcome and detail, as soon as it is judged.  The outcome can also be
      "slow" (the case reached the limit), "broken" (`judge` raised an exception; the detail is its
      traceback) or "ended" (the case ended the process).
    """
    torch.set_num_threads(1)  # so that torch starts no threads, which a fork would not copy
    waiting = list(groups)
    children = {}
    while waiting or children:
        while waiting and len(children) < os.cpu_count():
            receiver, child = _start(judge, waiting.pop(), seconds)
            children[receiver] = child
        for receiver in multiprocessing.connection.wait(children):
            child = children[receiver]
            try:
                outcome, has_ended = receiver.recv(), False
            except EOFError:
                del children[receiver]
                if len(child.outcomes) == len(child.cases):
                    child.process.join()
                    continue
                outcome, has_ended = _outcome_of_ended(child), True
            yield child.cases[len(child.outcomes)], outcome
            child.outcomes.append(outcome)
            rest = child.cases[len(child.outcomes) :]
            if has_ended and rest:
                waiting.append(rest)
