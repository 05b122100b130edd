"""Runs the tasks of a report, and writes their verdicts into the record.

A task is a command.  Some commands run several items, see items.py.  Items that are right share a
process, because a start of torch takes seconds.  An item that fails ends its process.  If other
items ran before it in this process, the item runs again, in a process of its own.  So the verdict
of an item that fails is always that of its own process.  What fails between two items, or after
the last one, costs no item: the command starts again for the rest.
"""

import contextlib
import dataclasses
import json
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from k2_mps_tests.report import items, running
from k2_mps_tests.report.record import Record

TOOL = ".venv/bin/k2mps"
# What Metal's validation prints about an access outside of a buffer.
_INVALID_ACCESS = re.compile(r"\bInvalid \w+ (load|store)\b")
_COMPILE_ERROR = re.compile(r":\d+:\d+: (fatal )?error: ")
# How many characters of an item's output the record keeps.  The log has all of it.
_KEPT = 200_000
_WHY_LINES = 12


@dataclasses.dataclass(frozen=True)
class Task:
    """A command of a report."""

    step: str
    name: str
    command: Sequence[str]
    limit: float = 600.0  # seconds for the command, or for each of its items
    is_series: bool = False  # whether the command runs items, see items.py
    needs: str = ""  # what must be right, a key of _NEEDED in __main__.py
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_quick: bool = False  # whether --quick runs the task
    # Whether each run of the report runs the task again.
    is_always_run: bool = False


@dataclasses.dataclass
class _Item:
    """An item that runs."""

    name: str
    is_first: bool  # whether no other item ran before in this process
    began: float
    lines: list[str]


class Runner:
    """Runs tasks one after another."""

    def __init__(
        self,
        record: Record,
        root: Path,
        logs: Path,
        clean: Callable[[str], str],
        say: Callable[[str], None],
        limit: float | None,
    ):
        """
        Args:
          logs: the folder for a log of each task.
          clean: replaces names, see names.py.
          say: prints a line for the person who waits.
          limit: the time limit of each item in seconds, in place of the tasks' limits.
        """
        self._record, self._root, self._logs = record, root, logs
        self._clean, self._say, self._limit = clean, say, limit
        logs.mkdir(parents=True, exist_ok=True)
        self._note = logs.parent / "running"
        running.end_left_over(self._note)

    def run(self, task: Task) -> None:
        """Runs a task, or those of its items that have no verdict."""
        self._task = task
        record, key = self._record, (task.step, task.name)
        if task.is_always_run:
            record.begun.pop(key, None)
        elif record.is_done(*key):
            return
        self._failed_after_others: dict[str, str] = {}
        self._item: _Item | None = None
        # Metal's validation can report an access after the item has ended.
        self._outside = _Item(task.name, True, time.monotonic(), [])
        while not self._run_once():
            pass

    def not_run(self, task: Task, why: str) -> None:
        self._say(f"not run: {task.step}: {task.name}: {why}")
        self._record.add(task.step, task.name, verdict="not run", why=why)

    def _name(self, item: str) -> str:
        return f"{self._task.name}: {item}"

    def _left_out(self) -> dict[str, str]:
        """Returns {item: verdict} of the items that have a verdict, or that ended two runs."""
        start = self._name("")
        done = {}
        for step, name in [*self._record.verdicts, *self._record.begun]:
            if step != self._task.step or not name.startswith(start):
                continue
            if not self._record.is_done(step, name) and not self._is_fatal(name):
                continue
            done[name.removeprefix(start)] = self._record.verdicts[step, name]["verdict"]
        return done

    def _is_fatal(self, name: str) -> bool:
        """Whether two runs ended without a word in an item; gives the item its verdict.

        The item may make macOS panic, so a third run must not run it.
        """
        if self._record.begun.get((self._task.step, name), 0) < 2:
            return False
        why = "this process, the report or the whole machine ended twice during this item"
        self._verdict(name, "crashed", 0.0, why, "")
        return True

    def _run_once(self) -> bool:
        """Starts the command once; returns whether the task has ended."""
        task, record = self._task, self._record
        variables = dict(task.variables)
        if task.is_series:
            variables[items.LEFT_OUT] = json.dumps(self._left_out())
        elif self._is_fatal(task.name):
            return True
        self._say(f"{task.step}: {task.name} ...")
        record.add(task.step, task.name, began=True)
        self._item, self._num_items = None, 0
        self._limit_since = time.monotonic()
        log = self._logs / (re.sub(r"[^a-zA-Z0-9]+", "-", f"{task.step} {task.name}") + ".log")
        try:
            outcome = running.run(
                task.command,
                cwd=self._root,
                variables=variables,
                log=log,
                limit=self._deadline,
                on_line=self._take_line,
                note=self._note,
            )
        except BaseException:
            for item in (self._item, self._outside):
                if item:
                    self._end(item, "interrupted", "the report was interrupted")
            raise
        verdict, why, item = _verdict_of(outcome), _why(outcome), self._item
        if item is None:
            if verdict == "ok" or self._num_items == 0:
                self._end(self._outside, verdict, why)
                return True
            record.add(task.step, task.name, runs_again=f"{why}, after items that are right")
            return False
        if verdict == "ok":
            verdict, why = "wrong", "the process ended in this item, with status 0"
        if item.is_first:
            self._end(item, verdict, why)
        else:
            self._failed_after_others[item.name] = "\n".join(item.lines)
            record.add(task.step, self._name(item.name), runs_again=f"{why}, after other items")
        return False

    def _deadline(self) -> float:
        return self._limit_since + (self._limit or self._task.limit)

    def _take_line(self, line: str) -> None:
        if self._task.is_series and line == items.ITEM_IS_RIGHT and self._item:
            self._end(self._item, "ok", "")
            self._item, self._limit_since = None, time.monotonic()
            return
        if self._task.is_series and line.startswith(items.ITEM):
            # The program must find the name again, and a name of the project identifies nobody.
            name = line.removeprefix(items.ITEM)
            self._limit_since = time.monotonic()
            self._item = _Item(name, self._num_items == 0, self._limit_since, [])
            self._num_items += 1
            self._record.add(self._task.step, self._name(name), began=True)
            self._say(f"  {name}")
            return
        item = self._item or self._outside
        if line.startswith(items.MEASURED):
            name = item.name if item is self._outside else self._name(item.name)
            with contextlib.suppress(ValueError, TypeError):
                values = dict(json.loads(line.removeprefix(items.MEASURED)))
                # A name can be a word of a key, or a number.
                for key, value in values.items():
                    values[key] = self._clean(value) if isinstance(value, str) else value
                self._record.add(self._task.step, name, measured=values)
                return
        item.lines.append(self._clean(line))
        if self._task.command[0] == TOOL:  # it prints lines for a person who waits
            self._say(f"  {line}")

    def _end(self, item: _Item, verdict: str, why: str) -> None:
        """Gives an item its verdict."""
        output = "\n".join(item.lines)
        if verdict == "ok" and _INVALID_ACCESS.search(output):
            verdict, why = "wrong", "Metal's validation reports an access outside of a buffer"
        if verdict == "ok" and item.name in self._failed_after_others:
            verdict, why = "wrong", "right alone, but not after other items in the same process"
            output = f"{self._failed_after_others[item.name]}\n\nalone:\n{output}"
        elif verdict not in ("ok", "interrupted"):
            # The warnings after a compiler's errors would hide them.
            shown = [line for line in item.lines if _COMPILE_ERROR.search(line)][:_WHY_LINES]
            shown = shown or [line for line in item.lines if line.strip()][-_WHY_LINES:]
            why = "\n".join([why, *shown])
        name = item.name if item is self._outside else self._name(item.name)
        self._verdict(name, verdict, time.monotonic() - item.began, why, output)

    def _verdict(self, name: str, verdict: str, seconds: float, why: str, output: str) -> None:
        values: dict[str, object] = {"verdict": verdict, "seconds": round(seconds, 2)}
        answers = re.findall(rf"^{items.ANSWER}(.*)$", output, re.MULTILINE)
        if answers:
            values["answer"] = "; ".join(answers)
        if why:
            values["why"] = why
        if len(output) > _KEPT:
            output = f"{output[: _KEPT // 2]}\n[...; the log has all]\n{output[-_KEPT // 2 :]}"
        command = self._clean(" ".join(self._task.command))
        self._record.add(self._task.step, name, **values, command=command, output=output)
        if verdict != "ok" or answers:
            self._say(f"  {verdict}: {name}" + (f": {'; '.join(answers)}" if answers else ""))


def _verdict_of(outcome: running.Outcome) -> str:
    if outcome.hung:
        return "hung"
    if outcome.status < 0:
        return "crashed"
    if outcome.status == items.NO_ANSWER:
        return "no answer"
    return "ok" if outcome.status == 0 else "wrong"


def _why(outcome: running.Outcome) -> str:
    if outcome.hung:
        return f"hung: did not end in {outcome.seconds:.0f} s"
    if outcome.status < 0:
        return f"crashed: {signal.Signals(-outcome.status).name}"
    return "" if outcome.status == 0 else f"exit status {outcome.status}"
