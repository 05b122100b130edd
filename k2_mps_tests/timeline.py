"""Draws the signposts that k2 posts for Instruments during a loss on the emulated device.

    .venv/bin/python -m k2_mps_tests.timeline FILE.svg

The page about profiling shows this picture on the site of docs/.  A Mac has the same
intervals with the same nesting, but other lengths.
"""

import argparse
import os
from pathlib import Path

from k2_mps_tests import ending

# The tracks of functions, one for each depth of nesting.  Deeper functions are left out.
FUNCTIONS = ["function", "called by it", "called by that"]
# The names of all tracks, from top to bottom.
TRACKS = [*FUNCTIONS, "wait", "dispatch", "GPU (emulated)"]


def record():
    """Returns the trace of a CTC loss and its gradient, which Metal computes."""
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
    """Yields (track, begin, end, name) of each interval, in nanoseconds."""
    # {thread: the ends of the thread's functions that can contain the next interval}.  Autograd's
    # thread has its own nesting.
    ends = {}
    for interval in trace.intervals():
        track, name = interval.name, interval.message
        if track == "function":
            around = [end for end in ends.get(interval.thread, ()) if end >= interval.end]
            ends[interval.thread] = around + [interval.end]
            if len(around) >= len(FUNCTIONS):
                continue
            track = FUNCTIONS[len(around)]
        elif track == "dispatch":
            name = f"k2 {name}"  # the same name as the GPU's label
        yield track, interval.begin, interval.end, name or track
    for dispatch in trace.dispatches:
        yield TRACKS[-1], dispatch.begin, dispatch.end, dispatch.label


def draw(trace, file):
    """Draws the picture as an SVG.  The number in a box refers to the legend.

    Along the axis, the moments at which boxes begin or end have equal distances.  The axis does not
    show times, because the emulated kernels take so long that the other boxes would have no room.
    """
    from matplotlib import patches, pyplot

    pyplot.rcParams["svg.fonttype"] = "none"  # keeps text as text, not as shapes of letters
    found = sorted(boxes(trace), key=lambda box: box[1])
    steps = {time: at for at, time in enumerate(sorted({t for box in found for t in box[1:3]}))}
    names = list(dict.fromkeys(name for *_, name in found))
    tracks = [track for track in TRACKS if any(box[0] == track for box in found)]
    colors = pyplot.get_cmap("tab20").colors
    figure, axis = pyplot.subplots(figsize=(10, 3.4), layout="constrained")
    for track, begin, end, name in found:
        number = names.index(name)
        left, width = steps[begin], steps[end] - steps[begin]
        row, color = tracks.index(track), colors[number % len(colors)]
        axis.barh(row, width, left=left, color=color, edgecolor="white", linewidth=0.5)
        axis.text(left + width / 2, row, number + 1, ha="center", va="center", fontsize=7)
    axis.set_yticks(range(len(tracks)), tracks)
    axis.set_xticks([])
    axis.invert_yaxis()
    axis.set_xlabel(
        "A CTC loss and its gradient, emulated: the order of begins and ends, not their times."
    )
    figure.legend(
        handles=[
            patches.Patch(color=colors[at % len(colors)], label=f"{at + 1}  {name}")
            for at, name in enumerate(names)
        ],
        loc="outside right upper",
        fontsize="small",
    )
    figure.savefig(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    draw(record(), parser.parse_args().file)


if __name__ == "__main__":
    ending.run(main)
