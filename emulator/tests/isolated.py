"""Runs cases in child processes, so that a crash or a hang is an outcome."""

import json
import os
import resource
import selectors
import signal
import time
import traceback

import torch


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
        os.write(pipe, (json.dumps(outcome) + "\n").encode())
    os._exit(0)


class _Child:
    """A process that judges the cases of one group."""

    def __init__(self, judge, group, cases, seconds):
        self.group = group
        self.cases = cases
        self.said = b""
        self.last_word = time.monotonic()
        self.reader, pipe = os.pipe()
        self.log = os.memfd_create("log")
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _judge_all(judge, cases, pipe, self.log, seconds)
            finally:
                os._exit(1)
        os.close(pipe)

    def at_end(self):
        """Reads the child's output; returns whether the child has ended."""
        data = os.read(self.reader, 1 << 16)
        self.said += data
        self.last_word = time.monotonic()
        return not data

    def end_if_silent(self, silence):
        if time.monotonic() - self.last_word > silence:
            os.kill(self.pid, signal.SIGKILL)

    def outcomes(self):
        """The outcomes of the cases so far; the last case may have ended the child."""
        _, status = os.waitpid(self.pid, 0)
        outcomes = [tuple(json.loads(line)) for line in self.said.splitlines()]
        if len(outcomes) < len(self.cases):
            log = os.pread(self.log, 1 << 20, 0).decode(errors="replace").strip()
            # The second limit on the processor's time.
            slow = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
            why = f"status {status}: " + log.split("\n")[-1]
            outcomes.append(("slow" if slow else "ended", why))
        os.close(self.reader)
        os.close(self.log)
        return dict(zip(self.cases, outcomes))


def run(judge, groups, seconds=60, silence=900, jobs=None):
    """Judges the cases of each group in a process of its own.

    If a case ends the process, another process judges the rest of the group.

    Args:
      judge: judge(case) returns (outcome, detail), two texts.
      groups: {group: [case]}.
      seconds: the limit of processor time for each case.
      silence: seconds after which the parent ends a case that uses no processor time.
      jobs: the number of processes at a time; default: that of the processors.
    Yields:
      (case, (outcome, detail)), as they come.  Further outcomes are "slow",
      "broken" (an exception, with its traceback) and "ended" (the process).
    """
    torch.set_num_threads(1)  # and none that a fork would lose
    waiting = dict(groups)
    children = {}
    with selectors.DefaultSelector() as selector:
        while waiting or children:
            while waiting and len(children) < (jobs or os.cpu_count()):
                group, mine = waiting.popitem()
                child = _Child(judge, group, mine, seconds)
                children[child.reader] = child
                selector.register(child.reader, selectors.EVENT_READ)
            for child in children.values():
                child.end_if_silent(silence)
            for key, _ in selector.select(timeout=10):
                child = children[key.fd]
                if not child.at_end():
                    continue
                selector.unregister(key.fd)
                del children[key.fd]
                judged = child.outcomes()
                yield from judged.items()
                left = child.cases[len(judged) :]
                if left:
                    waiting[child.group] = left
