# Copyright      2026  The k2-mps authors
#
# See ../../../../LICENSE for clarification regarding multiple authors
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
'''Measure the times of operations on this machine, in Metal and on the host.

    python -m k2.mps.calibrate             # measure, keep the result
    python -m k2.mps.calibrate --dry-run   # only measure
    python -m k2.mps.calibrate --forget    # back to k2's own estimates

This takes less than 10 seconds.  When k2 is imported, it reads the result, to
estimate whether Metal or the host is faster; ``k2.mps.explain()`` prints the
estimates.

Other programs on this machine make a call slower, never faster. So each call is
timed in several rounds. The fastest call gives the time of a round, and the
fastest round gives the costs.  If the rounds differ too much, nothing is kept.
'''
import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import platform
import sys
import time
from typing import Callable, Dict, Iterator, List, Tuple

import k2
import k2.mps
from k2.mps import placement
import torch

SEQUENCES, SYMBOLS, TARGETS = 8, 50, 20
FRAMES = 50, 200
# A problem of intersect_dense_pruned, with one sequence. The host's time for a
# frame has a part that does not depend on its arcs. So a frame has about as
# many arcs as make host and Metal equally fast.
PRUNED_FRAMES = 10, 40
# Each round times all calls, so that another program disturbs few of the
# rounds of one call.
ROUNDS = 4
# The number of calls in a round, and the seconds after which a round ends
# early. A call that takes LONG_SECONDS is not repeated.
LEAST_CALLS, MOST_CALLS, MOST_SECONDS, LONG_SECONDS = 3, 20, 0.1, 0.5
# A result is kept if the rounds of each call differ by at most this, relative
# to the fastest round.  An error of that size moves the limit between host and
# Metal by the same share, and near the limit both take about the same time.
STEADY = 0.15


@dataclasses.dataclass
class Measured:
    '''The times of one call.

    Attributes:
      rounds: nanoseconds, the least of each round.
      work, steps: what k2's estimate of the call counts, see
        k2/csrc/mps/placement.h.
    '''
    rounds: List[float]
    work: float
    steps: float

    @property
    def time(self) -> float:
        return min(self.rounds)

    @property
    def spread(self) -> float:
        '''By how much the slowest round exceeds the fastest, relative to the
        fastest.'''
        return max(self.rounds) / min(self.rounds) - 1


def _problems(num_frames: int,
              pruned_frames: int) -> Dict[str, Callable[[], None]]:
    '''Return a function to call for each placement, by its name.'''
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(SEQUENCES, num_frames, SYMBOLS, generator=generator)
    scores = scores.log_softmax(-1).to('mps').requires_grad_(True)
    segments = torch.tensor([[i, 0, num_frames] for i in range(SEQUENCES)],
                            dtype=torch.int32)
    targets = torch.randint(1, SYMBOLS, (SEQUENCES, TARGETS),
                            generator=generator)
    graph = k2.ctc_graph(targets.tolist(), device='mps')
    topo = k2.ctc_topo(SYMBOLS - 1, device='mps')
    dense = k2.DenseFsaVec(scores, segments)
    one = torch.tensor([[0, 0, pruned_frames]], dtype=torch.int32)
    one_dense = k2.DenseFsaVec(scores, one)
    # Without the gradients of intersect_dense, which the GPU may compute.
    lattice = k2.intersect_dense(graph, dense, output_beam=8.0).detach()
    lattice.requires_grad_(True)

    def tot_scores():
        lattice._invalidate_cache_()
        lattice.get_tot_scores(True, True).sum().backward(retain_graph=True)

    return {
        'intersect_dense':
        lambda: k2.intersect_dense(graph, dense, output_beam=8.0),
        'ctc_loss':
        lambda: k2.ctc_loss(graph, dense).backward(retain_graph=True),
        'get_tot_scores': tot_scores,
        'intersect_dense_pruned':
        lambda: k2.intersect_dense_pruned(topo, one_dense, 20, 8, 30, 10000),
    }


def _time(call: Callable[[], None]) -> float:
    '''Return the least time of a call, in nanoseconds.'''
    times: List[float] = []
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
def _forced(who: str) -> Iterator[None]:
    '''Make `who`, the host or Metal, run the operations that both can run.
    torch gets one thread, so that the number of free cores does not matter.'''
    before, threads = os.environ.get('K2_MPS_FORCE'), torch.get_num_threads()
    os.environ['K2_MPS_FORCE'] = who
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        del os.environ['K2_MPS_FORCE']
        if before is not None:
            os.environ['K2_MPS_FORCE'] = before


def _first(name: str, call: Callable[[], None]) -> Measured:
    '''Call once, to compile kernels and fill caches. Return a Measured that has
    no rounds yet.'''
    call()
    torch.mps.synchronize()
    last = {p.operation: p for p in placement.placements()}[name]
    return Measured([], last.last_work, last.last_steps)


def measure() -> Tuple[Dict[str, Dict[str, float]], Dict[str, float]]:
    '''Measure each operation that both Metal and the host can do.

    Returns:
      The costs of each operation, see k2/csrc/mps/placement.h; and how much
      the rounds of its measurements differ, relative to the fastest.
    '''
    short, long = [_problems(*frames)
                   for frames in zip(FRAMES, PRUNED_FRAMES)]
    calls = {}
    for name in short:
        calls[name, 'host', 'long'] = long[name]
        calls[name, 'metal', 'short'] = short[name]
        calls[name, 'metal', 'long'] = long[name]
    found = {}
    for key, call in calls.items():
        with _forced(key[1]):
            found[key] = _first(key[0], call)
    for _ in range(ROUNDS):
        for key, call in calls.items():
            with _forced(key[1]):
                found[key].rounds.append(_time(call))
    costs, spread = {}, {}
    for name in short:
        host = found[name, 'host', 'long']
        first = found[name, 'metal', 'short']
        last = found[name, 'metal', 'long']
        step = (max(0.0, last.time - first.time) / (last.steps - first.steps))
        costs[name] = {
            'host': host.time / host.work,
            'step': step,
            'call': max(0.0, first.time - step * first.steps),
        }
        spread[name] = max(each.spread for each in (host, first, last))
    return costs, spread


def _save(costs: Dict[str, Dict[str, float]]) -> None:
    '''Replace this machine's entry in the file; without costs, remove it.'''
    path = placement.path_of_costs()
    path.parent.mkdir(parents=True, exist_ok=True)
    saved = json.loads(path.read_text()) if path.is_file() else {}
    saved.pop(platform.node(), None)
    if costs:
        saved[platform.node()] = {
            'device': torch.backends.mps.get_name(),
            'date': datetime.date.today().isoformat(),
            'costs': costs,
        }
    # Another process that imports k2 meanwhile reads the old file or the new
    # one, never a part.
    new = path.with_name(f'{path.name}.{os.getpid()}')
    new.write_text(json.dumps(saved, indent=1) + '\n')
    new.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog='python -m k2.mps.calibrate',
        description=__doc__.splitlines()[0])
    parser.add_argument('--dry-run', action='store_true',
                        help='do not keep the result')
    parser.add_argument('--forget', action='store_true',
                        help='forget what was measured on this machine')
    options = parser.parse_args()
    if not options.dry_run and placement.path_of_costs() is None:
        print('K2_MPS_COSTS is empty, so there is no file to keep the result '
              'in: unset it, or give --dry-run.', file=sys.stderr)
        return 1
    if options.forget:
        _save({})
        return 0
    problem = k2.mps.unavailable_reason()
    if problem is not None:
        print(problem, file=sys.stderr)
        return 1
    costs, spread = measure()
    print(f'{torch.backends.mps.get_name()}, nanoseconds:')
    units = {p.operation: p for p in placement.placements()}
    for name, each in costs.items():
        work, steps = units[name].work, units[name].steps
        print(f'{name}: the host {each["host"]:.3g} by {work}, Metal '
              f'{each["step"]:.0f} by {steps} and {each["call"]:.0f} a call; '
              f'the rounds differ by {spread[name]:.0%}')
    if platform.system() != 'Darwin':
        print('This is not the GPU of a Mac: these are no times of a GPU.')
    if max(spread.values()) > STEADY:
        print(f'The times are not steady: rounds may differ by {STEADY:.0%}. '
              'Other programs use this machine, or it saves power. Nothing '
              'was kept.', file=sys.stderr)
        return 0 if options.dry_run else 1
    if not options.dry_run:
        _save(costs)
        print(f'kept in {placement.path_of_costs()}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
