"""Draws k2's signposts for Instruments, of a loss on the emulated device.

    .venv/bin/python -m k2_mps_tests.timeline FILE.svg

The site of docs/ has this picture on its page about profiling.  The intervals and
their nesting are those of a Mac; their lengths are those of the emulated device.
"""

import argparse
import os
from pathlib import Path

DEPTH = 3  # the depth of nested functions
ROWS = ["functions", *[""] * (DEPTH - 1), "wait", "dispatch", "GPU (emulated)"]


def record():
    """Returns the trace of a CTC loss and its gradient, by Metal."""
    os.environ["K2_MPS_FORCE"] = "metal"
    import k2
    import mps_emulator
    import torch

    torch.manual_seed(1)
    segments = torch.tensor([[i, 0, 40] for i in range(4)], dtype=torch.int32)
    scores = torch.randn(4, 40, 20, device="mps", requires_grad=True)
    graph = k2.ctc_graph([[1, 2, 3], [4, 5], [6, 7, 8], [9]], device="mps")

    def loss():
        dense = k2.DenseFsaVec(scores.log_softmax(-1), segments)
        k2.ctc_loss(graph, dense, use_double_scores=False).backward()

    traces = []
    for _ in range(8):  # the first run compiles kernels
        torch.mps.synchronize()
        with mps_emulator.trace() as trace:
            loss()
            torch.mps.synchronize()
        traces.append(trace)
    # The shortest trace has the fewest interruptions.
    return min(traces, key=lambda trace: (trace.signposts[-1].time - trace.signposts[0].time))


def boxes(trace):
    """Yields (row, begin, end, kernel) of each box; functions and waits have no kernel."""
    # The thread of autograd begins where the caller's intervals end.
    ends = {}
    for interval in trace.intervals():
        row = ROWS.index("dispatch" if interval.name == "dispatch" else "wait")
        if interval.name == "function":
            around = [end for end in ends.get(interval.thread, ()) if end >= interval.end]
            ends[interval.thread] = around + [interval.end]
            row = len(around)
        if interval.name != "function" or row < DEPTH:
            kernel = interval.message if interval.name == "dispatch" else ""
            yield row, interval.begin, interval.end, kernel
    for dispatch in trace.dispatches:
        yield len(ROWS) - 1, dispatch.begin, dispatch.end, dispatch.kernel


def draw(trace, file):
    """Draws the picture, an SVG."""
    from matplotlib import pyplot

    pyplot.rcParams["svg.fonttype"] = "none"  # texts stay texts
    figure, axis = pyplot.subplots(figsize=(10, 3), layout="constrained")
    kernels = list(dict.fromkeys(dispatch.kernel for dispatch in trace.dispatches))
    for row, begin, end, kernel in boxes(trace):
        color = f"C{kernels.index(kernel)}" if kernel else "grey"
        label = f"k2 {kernel}" if row == len(ROWS) - 1 else None
        axis.barh(row, end - begin, left=begin, color=color, edgecolor=color, label=label)
    axis.set_yticks(range(len(ROWS)), ROWS)
    axis.set_xticks([])
    axis.invert_yaxis()
    axis.set_xlabel(
        "A CTC loss and its gradient, emulated:"
        " what lies in what is as on a Mac, how long it takes is not."
    )
    figure.legend(loc="outside right upper", fontsize="small", title="dispatches")
    figure.savefig(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    draw(record(), parser.parse_args().file)


if __name__ == "__main__":
    main()
