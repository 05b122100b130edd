"""Draws k2's signposts for Instruments, of a loss on the emulated device.

    .venv/bin/python -m k2_mps_tests.timeline FILE.svg

The site of docs/ has this picture on its page about profiling.  The intervals and
their nesting are those of a Mac; their lengths are those of the emulated device.
"""

import argparse
import html
import os
from pathlib import Path

WIDTH, ROW, MARGIN = 960, 22, 96
DEPTH = 3  # the depth of nested functions
COLORS = {"function": "#b9cff0", "wait": "#f2b8a0", "dispatch": "#f0d58c", "GPU": "#a9d8b8"}


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


def rows(trace):
    """Returns [(row, begin, end, kind, text)] of the boxes, and the labels of the rows."""
    # The thread of autograd begins where the caller's intervals end.
    ends, drawn = {}, []
    for interval in trace.intervals():
        row = DEPTH + 1 if interval.name == "dispatch" else DEPTH
        if interval.name == "function":
            around = [end for end in ends.get(interval.thread, ()) if end >= interval.end]
            ends[interval.thread] = around + [interval.end]
            row = len(around)
            if row >= DEPTH:
                continue
        drawn.append(
            (row, interval.begin, interval.end, interval.name, interval.message.replace("k2::", ""))
        )
    for dispatch in trace.dispatches:
        drawn.append((DEPTH + 2, dispatch.begin, dispatch.end, "GPU", dispatch.label))
    return drawn, ["function", *[""] * (DEPTH - 1), "wait", "dispatch", "GPU (emulated)"]


def draw(trace):
    """Returns the picture, as SVG."""
    drawn, labels = rows(trace)
    first = min(begin for _, begin, _, _, _ in drawn)
    last = max(end for _, _, end, _, _ in drawn)
    scale = (WIDTH - MARGIN - 8) / (last - first)
    height = ROW * (len(labels) + 1) + 14
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH}'
        f' {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for row, label in enumerate(labels):
        lines.append(f'<text x="6" y="{ROW * row + 22}">{label}</text>')
    for row, begin, end, kind, text in drawn:
        x, y = MARGIN + (begin - first) * scale, ROW * row + 8
        width = (end - begin) * scale
        if width < 0.2 and kind == "function":
            continue
        title = html.escape(f"{kind} {text}".strip())
        line = ' stroke="#667788" stroke-width="0.3"' if width > 3 else ""
        lines.append(
            f'<g><title>{title}</title><rect x="{x:.1f}" y="{y}" width='
            f'"{max(width, 0.5):.1f}" height="{ROW - 4}" fill="{COLORS[kind]}"'
            f"{line}/>"
        )
        following = min(
            (
                MARGIN + (other[1] - first) * scale
                for other in drawn
                if other[0] == row and other[1] > begin
            ),
            default=WIDTH,
        )
        needed = 6 * len(text) + 6
        if text and width > needed:
            lines.append(f'<text x="{x + 3:.1f}" y="{y + 13}">{html.escape(text)}</text>')
        elif text and kind != "function" and following > x + width + needed:
            lines.append(f'<text x="{x + width + 3:.1f}" y="{y + 13}">{html.escape(text)}</text>')
        lines.append("</g>")
    bottom = ROW * len(labels) + 24
    lines += [
        f'<text x="6" y="{bottom}">A CTC loss and its gradient, emulated: what'
        " lies in what is as on a Mac, how long it takes is not.</text>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.parse_args().file.write_text(draw(record()), encoding="utf-8")


if __name__ == "__main__":
    main()
