"""Runs cases in child processes, so that a crash or a hang is an outcome."""

import multiprocessing
import multiprocessing.connection
import os
import resource
import signal
import tempfile
import time
import traceback
from typing import Any, BinaryIO, NamedTuple

import torch

# A fork: judges are closures, and a new interpreter would import torch.
_PROCESSES = multiprocessing.get_context("fork")

# Seconds after which a case that uses no processor time ends its process.
_SILENCE = 900


class Slow(Exception):
    """A case used more processor time than its limit."""


def _on_timer(*_):
    raise Slow


class _Child(NamedTuple):
    """A process that judges cases, one after the other."""

    process: multiprocessing.Process
    cases: list
    outcomes: list  # the outcomes of the cases that the process has judged
    log: BinaryIO  # what the process prints


def _judge_all(judge, cases, sender, log, seconds):
    """Sends the outcome of each case; runs in a child."""
    try:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGPROF, _on_timer)
        # A Mac's device does not survive a fork, so torch.manual_seed() leaves mps
        # out in a forked process.  The emulated device does survive.
        torch.mps._is_in_bad_fork = lambda: False
        for case in cases:
            sender.send(_outcome(judge, case, seconds))
    finally:
        os._exit(0)  # ends without a wait for threads that a case left


def _outcome(judge, case, seconds) -> tuple[str, Any]:
    # The limits are processor time, which a busy machine does not change.
    # The second limit ends the process of a case that is stuck in C++.
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
    """Starts a child; returns (the end of a pipe with its outcomes, the _Child)."""
    log = tempfile.TemporaryFile()
    receiver, sender = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=_judge_all, args=(judge, cases, sender, log, seconds))
    process.start()
    sender.close()  # The child has the only other end, so its end closes the pipe.
    return receiver, _Child(process, cases, [], log)


def _how_it_ended(child):
    """The outcome of a case that ended its process."""
    child.process.join()
    child.log.seek(0)
    last_line = child.log.read().decode(errors="replace").strip().split("\n")[-1]
    code = child.process.exitcode
    # SIGXCPU comes from the second limit, of a case that is stuck in C++.
    return "slow" if code == -signal.SIGXCPU else "ended", f"status {code}: {last_line}"


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
    torch.set_num_threads(1)  # so torch has no threads, which a fork would lose
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
                outcome, has_ended = _how_it_ended(child), True
            yield child.cases[len(child.outcomes)], outcome
            child.outcomes.append(outcome)
            rest = child.cases[len(child.outcomes) :]
            if has_ended and rest:
                waiting.append(rest)
