"""Measure the times of operations on this machine, in Metal and on the host.

    python -m k2_mac.calibrate             # measure, keep the result
    python -m k2_mac.calibrate --dry-run   # only measure
    python -m k2_mac.calibrate --forget    # back to k2's own estimates

The program takes less than 10 seconds.  ``import k2`` reads the result.  From this result, k2 then
estimates whether Metal or the host is faster.  ``k2.mps.explain()`` returns the estimates.

Other programs on this machine make a call slower, never faster.  So the program times each call in
several rounds.  The time of a round is the time of its fastest call, and the costs are computed
from the fastest rounds.  If the times of a call's rounds differ by more than STEADY, the program
does not keep the result.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import k2
import k2.mps
import torch
from k2.mps import placement

SEQUENCES, SYMBOLS, TARGETS = 8, 50, 20
FRAMES = 50, 200
# The program times intersect_dense_pruned with each of these numbers of frames, on one sequence.  A
# part of the host's time for a frame does not depend on the number of arcs.  So the number of arcs
# in a frame is chosen such that the host and Metal are about equally fast.
PRUNED_FRAMES = 10, 40
# Each round times all calls.  So another program that runs for a short time disturbs only a few of
# the rounds of a call.
ROUNDS = 4
# A round repeats a call up to MOST_CALLS times.  After LEAST_CALLS calls, the round ends if its
# calls took MOST_SECONDS.  Before LEAST_CALLS calls, the round ends only if its calls took
# LONG_SECONDS.
LEAST_CALLS, MOST_CALLS, MOST_SECONDS, LONG_SECONDS = 3, 20, 0.1, 0.5
# A result with a larger Measured.spread is not kept.  k2 prefers Metal for problems above a certain
# size.  If a cost is measured too high or too low by some percentage, that size is too high or too
# low by about this percentage.  Near that size, the host and Metal take about the same time, so a
# wrong choice costs little.
STEADY = 0.15


@dataclasses.dataclass
class Measured:
    """The times of one call.

    Attributes:
      rounds: the time of the fastest call of each round, in nanoseconds.
      work, steps: the work and the steps of the call.  k2 estimates the time of the call from both,
        see k2/csrc/mps/placement.h.
    """

    rounds: list[float]
    work: float
    steps: float

    @property
    def time(self) -> float:
        return min(self.rounds)

    @property
    def spread(self) -> float:
        """The time of the slowest round divided by the time of the fastest round, minus 1."""
        return max(self.rounds) / min(self.rounds) - 1


class Case(NamedTuple):
    """What the program times.

    Attributes:
      name: the name of an operation.
      place: where the operation runs: 'host' or 'metal'.
      length: the length of its problem: 'short' or 'long'.
    """

    name: str
    place: str
    length: str


def _problems(num_frames: int, pruned_frames: int) -> dict[str, Callable[[], None]]:
    """Returns {name of an operation: a function that calls the operation}."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(SEQUENCES, num_frames, SYMBOLS, generator=generator)
    scores = scores.log_softmax(-1).to("mps").requires_grad_(True)
    segments = torch.tensor([[i, 0, num_frames] for i in range(SEQUENCES)], dtype=torch.int32)
    targets = torch.randint(1, SYMBOLS, (SEQUENCES, TARGETS), generator=generator)
    graph = k2.ctc_graph(targets.tolist(), device="mps")
    topo = k2.ctc_topo(SYMBOLS - 1, device="mps")
    dense = k2.DenseFsaVec(scores, segments)
    # The pruned search decodes fewer frames, of one sequence.
    pruned_segments = torch.tensor([[0, 0, pruned_frames]], dtype=torch.int32)
    pruned_dense = k2.DenseFsaVec(scores, pruned_segments)
    # Without detach(), the times of get_tot_scores would include the gradient of intersect_dense,
    # which the GPU may compute.
    lattice = k2.intersect_dense(graph, dense, output_beam=8.0).detach()
    lattice.requires_grad_(True)

    def tot_scores():
        lattice._invalidate_cache_()
        lattice.get_tot_scores(True, True).sum().backward(retain_graph=True)

    return {
        "intersect_dense": lambda: k2.intersect_dense(graph, dense, output_beam=8.0),
        "ctc_loss": lambda: k2.ctc_loss(graph, dense).backward(retain_graph=True),
        "get_tot_scores": tot_scores,
        "intersect_dense_pruned": lambda: k2.intersect_dense_pruned(
            topo, pruned_dense, 20, 8, 30, 10000
        ),
    }


def _time(call: Callable[[], None]) -> float:
    """Times several calls, and returns the shortest time, in nanoseconds."""
    times: list[float] = []
    while len(times) < MOST_CALLS:
        limit = LONG_SECONDS if len(times) < LEAST_CALLS else MOST_SECONDS
        if sum(times) >= limit * 1e9:
            break
        begin = time.perf_counter_ns()
        call()
        torch.mps.synchronize()
        times.append(time.perf_counter_ns() - begin)
    return min(times)


@contextlib.contextmanager
def _forced(place: str) -> Iterator[None]:
    """Lets the host or Metal run the operations that both can run.

    torch uses one thread, so that the times do not depend on how many cores are free.

    Args:
      place: 'host' or 'metal'.
    """
    before, threads = os.environ.get("K2_MPS_FORCE"), torch.get_num_threads()
    os.environ["K2_MPS_FORCE"] = place
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        del os.environ["K2_MPS_FORCE"]
        if before is not None:
            os.environ["K2_MPS_FORCE"] = before


def _prepared(name: str, call: Callable[[], None]) -> Measured:
    """Calls an operation once, so that kernels are compiled and caches are full.  Returns a
    Measured that has no rounds yet."""
    call()
    torch.mps.synchronize()
    last = {p.operation: p for p in placement.placements()}[name]
    return Measured([], last.last_work, last.last_steps)


def measure() -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Measures each operation that both Metal and the host can do.

    Returns:
      A dict with the costs of each operation, see k2/csrc/mps/placement.h; and a dict with the
      largest Measured.spread of each operation.
    """
    short, long = [_problems(*frames) for frames in zip(FRAMES, PRUNED_FRAMES)]
    calls = {}
    for name in short:
        calls[Case(name, "host", "long")] = long[name]
        calls[Case(name, "metal", "short")] = short[name]
        calls[Case(name, "metal", "long")] = long[name]
    found = {}
    for case, call in calls.items():
        with _forced(case.place):
            found[case] = _prepared(case.name, call)
    for _ in range(ROUNDS):
        for case, call in calls.items():
            with _forced(case.place):
                found[case].rounds.append(_time(call))
    costs, spread = {}, {}
    for name in short:
        host = found[Case(name, "host", "long")]
        first = found[Case(name, "metal", "short")]
        last = found[Case(name, "metal", "long")]
        step = max(0.0, last.time - first.time) / (last.steps - first.steps)
        costs[name] = {
            "host": host.time / host.work,
            "step": step,
            "call": max(0.0, first.time - step * first.steps),
        }
        spread[name] = max(each.spread for each in (host, first, last))
    return costs, spread


def _entries(path: Path) -> dict:
    """Returns what the file has of all machines; nothing if the file is missing or damaged.

    k2 advises the user of a damaged file to measure again.
    """
    try:
        entries = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _save(costs: dict[str, dict[str, float]]) -> None:
    """Replaces this machine's entry in the file.  If `costs` is empty, removes the entry."""
    path = placement.path_of_costs()
    path.parent.mkdir(parents=True, exist_ok=True)
    saved = _entries(path)
    saved.pop(platform.node(), None)
    if costs:
        saved[platform.node()] = {
            "device": torch.backends.mps.get_name(),
            "date": datetime.date.today().isoformat(),
            "costs": costs,
        }
    # Replace the file as a whole: another process that imports k2 meanwhile must not read a part of
    # the new file.
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(json.dumps(saved, indent=1) + "\n")
    new.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m k2_mac.calibrate", description=__doc__.splitlines()[0]
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--dry-run", action="store_true", help="do not keep the result")
    action.add_argument(
        "--forget", action="store_true", help="forget what was measured on this machine"
    )
    options = parser.parse_args()
    if not options.dry_run and placement.path_of_costs() is None:
        print(
            "K2_MPS_COSTS is empty, so there is no file to keep the result "
            "in: unset it, or give --dry-run.",
            file=sys.stderr,
        )
        return 1
    if options.forget:
        _save({})
        return 0
    problem = k2.mps.unavailable_reason()
    if problem is not None:
        print(problem, file=sys.stderr)
        return 1
    costs, spread = measure()
    print(f"{torch.backends.mps.get_name()}, nanoseconds:")
    units = {p.operation: p for p in placement.placements()}
    for name, each in costs.items():
        work, steps = units[name].work, units[name].steps
        print(
            f"{name}: the host {each['host']:.3g} x {work}, Metal "
            f"{each['step']:.0f} x {steps} + {each['call']:.0f}; "
            f"the rounds differ by {spread[name]:.0%}"
        )
    if platform.system() != "Darwin":
        print("This is not the GPU of a Mac: these are no times of a GPU.")
    if max(spread.values()) > STEADY:
        print(
            f"The times are not steady: rounds may differ by {STEADY:.0%}. "
            "Other programs use this machine, or it saves power. Nothing "
            "was kept.",
            file=sys.stderr,
        )
        return 0 if options.dry_run else 1
    if not options.dry_run:
        _save(costs)
        print(f"kept in {placement.path_of_costs()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
