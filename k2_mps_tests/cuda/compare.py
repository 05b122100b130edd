"""Times k2 on CUDA with and without the series: compare.py --root FOLDER

In each round, the program runs both builds, one after the other, each in its own
process.  The order changes from round to round, so that drift of the machine affects
both builds.  The change of an operation is the median of the ratios of all rounds.  The
error of a change is half the width of the notch in a box plot: 1.57 interquartile ranges
divided by the square root of the number of rounds (McGill, Tukey and Larsen, Variations
of box plots, 1978).  Exit status: 1 if a change minus the change's error is more than
LIMIT.  After Ctrl-C, the table is of the rounds that are complete.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 27  # On an H100, these rounds take eleven minutes; five give errors of 7% to 59%.
REPEATS = 11
LIMIT = 0.03
SIZE = (32, 500, 60)  # utterances, frames, symbols


def operations(size):
    """Yields (name, function) of the operations of operations.py, and of further operations."""
    import k2
    import operations as bench
    import torch

    yield from bench.operations(size, "cuda")
    num_seqs, num_frames, num_symbols = size
    torch.manual_seed(1)
    targets = torch.randint(1, bench.VOCABULARY, (num_seqs, num_symbols)).tolist()
    graph = k2.ctc_graph(targets, device="cuda")
    scores = torch.randn(num_seqs, num_frames, bench.VOCABULARY).log_softmax(-1)
    segments = torch.tensor([[i, 0, num_frames] for i in range(num_seqs)], dtype=torch.int32)
    dense = k2.DenseFsaVec(scores.cuda().requires_grad_(True), segments)
    yield (
        "ctc_loss with gradient, float64",
        lambda: k2.ctc_loss(graph, dense, output_beam=8.0).backward(retain_graph=True),
    )
    with torch.no_grad():
        lattice = k2.intersect_dense(graph, dense, 8.0)

    def posteriors():
        lattice._invalidate_cache_()
        lattice.get_arc_post(use_double_scores=True, log_semiring=True)

    yield "posteriors of arcs, float64", posteriors
    yield "shortest_path", lambda: k2.shortest_path(lattice, False)

    seqs, symbols, frames = 8, 60, 200
    am = torch.randn(seqs, frames, 100, device="cuda", requires_grad=True)
    lm = torch.randn(seqs, symbols + 1, 100, device="cuda", requires_grad=True)
    labels = torch.randint(1, 100, (seqs, symbols), device="cuda")
    boundary = torch.zeros(seqs, 4, dtype=torch.int64, device="cuda")
    boundary[:, 2], boundary[:, 3] = symbols, frames

    def transducer():
        simple, (px, py) = k2.rnnt_loss_smoothed(
            lm=lm,
            am=am,
            symbols=labels,
            termination_symbol=0,
            boundary=boundary,
            reduction="sum",
            return_grad=True,
        )
        ranges = k2.get_rnnt_prune_ranges(px_grad=px, py_grad=py, boundary=boundary, s_range=5)
        pruned_am, pruned_lm = k2.do_rnnt_pruning(am=am, lm=lm, ranges=ranges)
        pruned = k2.rnnt_loss_pruned(
            logits=pruned_am + pruned_lm,
            symbols=labels,
            ranges=ranges,
            termination_symbol=0,
            boundary=boundary,
            reduction="sum",
        )
        (simple + pruned).backward()

    yield "pruned transducer loss with gradient", transducer


def measure():
    """Prints the median seconds of each operation as JSON."""
    import torch

    found = {}
    for name, function in operations(SIZE):
        times = []
        for _ in range(REPEATS + 3):  # The first calls warm up.
            torch.cuda.synchronize()
            begin = time.perf_counter()
            function()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        found[name] = statistics.median(times[3:])
    print(json.dumps(found))


def run(root, tree, preload):
    """Runs measure() with the k2 of a build; returns {operation: seconds}."""
    here = Path(__file__).resolve()
    path = [root / tree / "k2" / "python", root / f"build-{tree}" / "lib", here.parent]
    result = subprocess.run(
        [sys.executable, here, "--measure"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": ":".join(map(str, path)), "LD_PRELOAD": preload},
    )
    return json.loads(result.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, help="the folder in which run.sh has built")
    parser.add_argument("--preload", default="", help="a library for LD_PRELOAD")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="default: %(default)s")
    parser.add_argument("--measure", action="store_true")
    options = parser.parse_args()
    if options.measure:
        return measure()
    rounds = []
    try:
        for i in range(options.rounds):
            trees = ("base", "series") if i % 2 == 0 else ("series", "base")
            rounds.append({tree: run(options.root, tree, options.preload) for tree in trees})
            print(f"round {i + 1} of {options.rounds} is complete", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        if len(rounds) < 2:  # Quartiles need two rounds.
            raise
    report(rounds)


def report(rounds):
    """Prints the table of rounds, a list of {tree: {operation: seconds}}."""
    slower = []
    print(f"{'milliseconds':<45} {'without':>10} {'with':>10} {'change':>8} {'error':>7}")
    for name in rounds[0]["base"]:
        times = {tree: [each[tree][name] for each in rounds] for tree in ("base", "series")}
        ratios = [with_it / without for without, with_it in zip(times["base"], times["series"])]
        first, change, third = statistics.quantiles(ratios, n=4)
        error = 1.57 * (third - first) / len(ratios) ** 0.5
        without, with_it = (statistics.median(times[tree]) * 1e3 for tree in times)
        print(
            f"{name:<45} {without:10.3f} {with_it:10.3f} {(change - 1) * 100:+7.1f}% "
            f"{error * 100:6.1f}%"
        )
        if change - 1 - error > LIMIT:
            slower.append(name)
    if slower:
        sys.exit("slower by more than {:g}%: {}".format(LIMIT * 100, ", ".join(slower)))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("error: interrupted")
    except OSError as error:
        sys.exit(f"error: {error}")
