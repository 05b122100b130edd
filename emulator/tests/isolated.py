"""Runs cases in child processes, so that a crash or a hang is an outcome."""

import multiprocessing
import multiprocessing.connection
import os
import resource
import signal
import time
import traceback

import torch

# Seconds after which the parent ends a case that uses no processor time.
_SILENCE = 900


class Slow(Exception):
    """A case used more processor time than its limit."""


def _on_timer(*_):
    raise Slow


def _judge_all(judge, cases, pipe, log, seconds):
    os.dup2(log, 1)
    os.dup2(log, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, _on_timer)
    # A Mac's device does not survive a fork, so torch.manual_seed() leaves mps
    # out in a forked process.  The emulated device does survive.
    torch.mps._is_in_bad_fork = lambda: False
    for case in cases:
        # The limits are processor time, which a busy machine does not change.
        # The second limit ends the process of a case that is stuck in C++.
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
        pipe.send(outcome)
    os._exit(0)  # without a wait for threads that a case left


class _Child:
    """A process that judges the cases of one group."""

    def __init__(self, judge, group, cases, seconds):
        self.group = group
        self.cases = cases
        self.outcomes = []
        self.last_word = time.monotonic()
        self.log = os.memfd_create("log")
        fork = multiprocessing.get_context("fork")
        self.pipe, writer = fork.Pipe(duplex=False)
        self.process = fork.Process(
            target=_judge_all, args=(judge, cases, writer, self.log, seconds)
        )
        self.process.start()
        writer.close()

    def at_end(self):
        """Reads an outcome of the child; returns whether the child has ended instead."""
        try:
            self.outcomes.append(self.pipe.recv())
        except EOFError:
            return True
        self.last_word = time.monotonic()
        return False

    def end_if_silent(self):
        if time.monotonic() - self.last_word > _SILENCE:
            self.process.kill()

    def judged(self):
        """{case: outcome} of the cases so far; the last case may have ended the child."""
        self.process.join()
        if len(self.outcomes) < len(self.cases):
            log = os.pread(self.log, 1 << 20, 0).decode(errors="replace").strip()
            # The second limit on the processor's time.
            slow = self.process.exitcode == -signal.SIGXCPU
            why = f"status {self.process.exitcode}: " + log.split("\n")[-1]
            self.outcomes.append(("slow" if slow else "ended", why))
        self.pipe.close()
        os.close(self.log)
        return dict(zip(self.cases, self.outcomes))


def run(judge, groups, seconds=60):
    """Judges the cases of each group in a process of its own.

    If a case ends the process, another process judges the rest of the group.

    Args:
      judge: judge(case) returns (outcome, detail), two texts.
      groups: {group: [case]}.
      seconds: the limit of processor time for each case.
    Yields:
      (case, (outcome, detail)), as they come.  Further outcomes are "slow",
      "broken" (an exception, with its traceback) and "ended" (the process).
    """
    torch.set_num_threads(1)  # and none that a fork would lose
    waiting = dict(groups)
    children = {}
    while waiting or children:
        while waiting and len(children) < os.cpu_count():
            child = _Child(judge, *waiting.popitem(), seconds)
            children[child.pipe] = child
        for child in children.values():
            child.end_if_silent()
        for pipe in multiprocessing.connection.wait(children, timeout=10):
            child = children[pipe]
            if not child.at_end():
                continue
            del children[pipe]
            judged = child.judged()
            yield from judged.items()
            left = child.cases[len(judged) :]
            if left:
                waiting[child.group] = left
