"""Repeats the work of a recording, compares the results, and prints them with their times."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .judge import Judge
from .player import CommandSequence, Player
from .recording import Recording

# The exit status of a program if a result is wrong.
WRONG = 1


class Times(NamedTuple):
    """The measured times of a sequence, in microseconds."""

    steps: list[list[float]]  # for each step the times of its runs
    sequence: list[float]  # the times of the runs of the whole sequence


def _tolerance(text):
    pattern, _, value = text.rpartition("=")
    try:
        return pattern, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}; a tolerance looks like KERNEL=1e-5") from None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds to a parser the options that `check` and replay.py have in common."""
    parser.add_argument(
        "--tolerance",
        action="append",
        default=[],
        type=_tolerance,
        metavar="KERNEL=VALUE",
        help="how much the floats that a kernel writes may differ: by VALUE, and floats above 1 "
        "by VALUE times the float; KERNEL may have the wildcards * and ?; by default all bits "
        "must be equal",
    )


def replay(
    recording: Recording,
    machine: Any,
    kernels: Sequence[dict[str, dict]],
    tolerances: Sequence[tuple[str, float]],
    say: Callable[[str], None] = print,
    measure: Callable[[CommandSequence], Times] | None = None,
) -> int:
    """Replays a recording, and prints a line for each command and each wrong buffer.

    Args:
      recording, machine: the arguments of Player.
      kernels, tolerances: the arguments of Judge.
      say: prints a line of text.
      measure: measures a sequence; None to measure nothing.
    Returns:
      The number of wrong results.
    Raises:
      ValueError: the recording's folder was made with --times-only, and `measure` is None.
    """
    if recording.times_only:
        _say_times(recording, machine, say, measure)
        return 0
    judge = Judge(kernels, tolerances)
    player = Player(recording, machine)
    outcomes = list(player.check(judge))
    stray = outcomes.pop()[1]

    sequence = CommandSequence(recording, player, machine)
    times = measure(sequence) if measure else None
    sequence.restore()
    sequence.run()
    first = player.read(recording.sizes)
    sequence.restore()
    sequence.run()
    again = judge.differences(first, player.read(recording.sizes), {})
    at_end = judge.differences(player.expected, first, sequence.writers)

    medians = _medians(sequence, times) if times else {}
    for command, differences in outcomes:
        say(_line(command, differences, medians.get(id(command))))
    for buffer, difference in stray.items():
        say(f"buffer {buffer}, to which no command should write: {difference}")
    for buffer, difference in at_end.items():
        say(f"buffer {buffer} after the sequence: {difference}")
    for buffer in again:
        say(f"buffer {buffer} differs after a second run")
    if times:
        others = sum(medians.pop(None, []))
        say(
            f"kernels {sum(map(sum, medians.values())):.1f} us; copies of other work's results "
            f"{others:.1f} us; {_whole(times)}"
        )
    wrong = sum(not _is_allowed(differences) for _, differences in outcomes)
    wrong += len(stray) + len(again) + sum(not d.allowed for d in at_end.values())
    say(f"{len(outcomes)} commands, {f'{wrong} wrong' if wrong else 'all as recorded'}")
    return wrong


def _medians(sequence, times):
    """Returns the median times of the steps of each command, {id of the command: list}.

    The key None has the times of the copies between the commands.
    """
    medians = {}
    for (command, _), values in zip(sequence.steps, times.steps):
        medians.setdefault(id(command) if command else None, []).append(np.median(values))
    return medians


def _whole(times):
    return (
        f"the whole sequence {np.median(times.sequence):.1f} us (least {min(times.sequence):.1f})"
    )


def _say_times(recording, machine, say, measure):
    """Prints a line for each kernel with the kernel's times, then a line with the total times."""
    if measure is None:
        raise ValueError(
            f"{recording.folder} was made with --times-only: it has no results to compare"
        )
    sequence = CommandSequence(recording, Player(recording, machine), machine)
    times = measure(sequence)
    kernels = {}
    copies = 0
    for (command, _), values in zip(sequence.steps, times.steps):
        if command is None:
            copies += np.median(values)
        else:
            kernels.setdefault(command["name"], []).append(np.median(values))
    for name, medians in kernels.items():
        say(f"{name:<48}{len(medians):6} x {np.median(medians):9.1f} us {sum(medians):12.1f} us")
    say(
        f"{sum(map(len, kernels.values()))} kernels {sum(map(sum, kernels.values())):.1f} us; "
        f"copies of other work's results {copies:.1f} us; {_whole(times)}; nothing was compared"
    )


def _is_allowed(differences):
    return all(difference.allowed for difference in differences.values())


def _line(command, differences, times):
    """Returns a line with a command, its times in microseconds, and its result."""
    size = ""
    if command["kind"] == "dispatch":
        size = " {} / {}".format(_extent(command["grid"]), _extent(command["threadgroup"]))
    us = f"{sum(times):9.1f} us" if times else ""
    result = "same bits"
    if differences:
        result = "; ".join(f"{buffer}: {found}" for buffer, found in differences.items())
        if not _is_allowed(differences):
            result = "WRONG: buffer " + result
    return f"{command['name'] + size:<48}{us}  {result}"


def _extent(sizes):
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes = sizes[:-1]
    return "x".join(map(str, sizes))
