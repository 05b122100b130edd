"""Measures the cost of k2's swoosh functions in a step of zipformer-M on mps.

    .venv/bin/python -m k2_mps_tests.benchmarks.swoosh_cost [UTTERANCES FRAMES]

The functions run on random tensors.  The tensors have the shapes that a step of icefall's zipformer
passes to the functions, by default for 6 utterances of 1,000 frames.  The program prints a row for
each function, forward or backward, with the sums over all calls:

- calls: the number of calls of the function in one step
- commands: k2's kernels, and torch's operators that give work to the GPU
- MB: the bytes of the tensors that a command reads or writes, summed over the commands

The shapes follow from the defaults of zipformer/train.py in icefall's recipe for LibriSpeech, see
`STACKS`.  These defaults give a model of 65.8 million parameters.
- The subsampling has three convolutions of 3 x 3 over frames and 80 features, and a SwooshR
  after each.  The second convolution halves both axes, and the third halves the features.
  Only the first convolution pads the features.  Then a ConvNeXt layer has a SwooshL on 3 * 128
  channels.
- A layer of an encoder has three feed-forward modules, with a SwooshL each.  These modules are
  3/4, 1 and 5/4 times as wide as the feed-forward dimension.  The layer also has two
  convolution modules as wide as the encoder, with a SwooshR each.
- In the encoders, autograd does not record swoosh.  The forward pass keeps the input and calls
  `swoosh_l_forward`, and the backward pass calls `swoosh_l_forward_and_deriv`.

On Linux mps is emulated, which changes none of these numbers.
"""

import argparse
import tempfile
from pathlib import Path
from typing import NamedTuple

import k2
import torch

from k2_mps_tests import ending
from k2_mps_tests.benchmarks.step_cost import MEGABYTE, Bytes, bytes_of_kernels

MPS = "mps"


class Stack(NamedTuple):
    """One of zipformer's encoders."""

    layers: int
    downsampling: int  # of frames
    feedforward: int
    width: int


STACKS = [
    Stack(2, 1, 512, 192),
    Stack(2, 2, 768, 256),
    Stack(3, 4, 1024, 384),
    Stack(4, 8, 1536, 512),
    Stack(3, 4, 1024, 384),
    Stack(2, 2, 768, 256),
]


def shapes_of_subsampling(utterances, frames):
    """Returns the shapes of the inputs of SwooshR, and of SwooshL, as two lists.

    A shape is (utterances, channels, frames, features).
    """
    last = (utterances, 384, (frames - 7) // 2, 19)
    return [
        (utterances, 8, frames - 2, 80),
        (utterances, 32, (frames - 3) // 2, 39),
        (utterances, 128, (frames - 7) // 2, 19),
    ], [last]


def shapes_of_encoders(utterances, frames):
    """Returns the shapes of the inputs of SwooshR, and of SwooshL, as two lists.

    A shape is (frames, utterances, channels).
    """
    of_r, of_l = [], []
    for stack in STACKS:
        # The encoder repeats the last frame until `downsampling` divides the number of frames.  So
        # the quotient is rounded up.
        left = -(-((frames - 7) // 2) // stack.downsampling)
        wide = stack.feedforward
        of_r += [(left, utterances, stack.width)] * 2 * stack.layers
        of_l += [(left, utterances, x) for x in (wide * 3 // 4, wide, wide * 5 // 4)] * stack.layers
    return of_r, of_l


def cost_of(run, shapes):
    """Returns (commands, bytes) of the calls for all shapes.

    run: a function that takes a tensor and returns the call, a function without arguments.
    """
    import mps_emulator

    tensors = [torch.randn(shape).to(MPS).requires_grad_(True) for shape in shapes]
    prepared = [run(x) for x in tensors]
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder) / "recording"
        with k2.mps.counters() as counted, mps_emulator.record(recording), Bytes() as noted:
            for call in prepared:
                call()
            torch.mps.synchronize()
        moved = noted.moved + bytes_of_kernels(recording)
    return counted.dispatches + counted.operators, moved


def gradient_of(function):
    """Returns a `run` of cost_of() whose call computes the gradient of function(x)."""

    def prepare(x):
        y = function(x)
        grad = torch.ones_like(y)
        return lambda: torch.autograd.grad(y, x, grad)

    return prepare


def call_of(function):
    """Returns a `run` of cost_of() whose call is function(x)."""
    return lambda x: lambda: function(x)


def rows_of(utterances, frames):
    """Yields (function, calls, commands, bytes) of a step."""
    of_r, of_l = shapes_of_subsampling(utterances, frames)
    for name, shapes in (("swoosh_r", of_r), ("swoosh_l", of_l)):
        function = getattr(k2, name)
        yield name, len(shapes), *cost_of(call_of(function), shapes)
        yield f"{name}, its gradient", len(shapes), *cost_of(gradient_of(function), shapes)
    of_r, of_l = shapes_of_encoders(utterances, frames)
    for letter, shapes in (("r", of_r), ("l", of_l)):
        for name in (f"swoosh_{letter}_forward", f"swoosh_{letter}_forward_and_deriv"):
            yield name, len(shapes), *cost_of(call_of(getattr(k2, name)), shapes)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("utterances", nargs="?", type=int, default=6)
    parser.add_argument("frames", nargs="?", type=int, default=1000)
    options = parser.parse_args()
    print(f"{'':<28} calls commands        MB")
    total = [0, 0, 0]
    for name, *numbers in rows_of(options.utterances, options.frames):
        total = [a + b for a, b in zip(total, numbers)]
        _say(name, *numbers)
    _say("all", *total)


def _say(name, calls, commands, moved):
    print(f"  {name:<26} {calls:5} {commands:8} {moved / MEGABYTE:9.1f}", flush=True)


if __name__ == "__main__":
    ending.run(main)
