"""Cases of dense_fsa_vec and of the kernel of its gradient.

The kernels copy numbers, so results must be equal.  If a frame is in two segments, the frame's
gradient is a sum of two numbers.  Such a sum does not depend on the order, so gradients must also
be equal.
"""

from typing import NamedTuple

import numpy as np

from k2_mps_tests.kernels.case import UNTOUCHED, Buffer, Case
from k2_mps_tests.kernels.sources import enumeration, enumerators, layout

Number = enumeration("dense_fsa_vec.h", "DenseFsaVecBuffer")
PARAMS = layout("dense_fsa_vec.h", "DenseFsaVecParams")
GRAD_PARAMS = layout("dense_fsa_vec.h", "DenseFsaVecGradParams")
MOST = enumerators("dense_fsa_vec.h")["kDvMaxSegments"]


class Segment(NamedTuple):
    """A part of a sequence."""

    sequence: int
    start: int  # the first frame
    frames: int  # the number of frames


class Shape(NamedTuple):
    """The sizes of the log-probs, and the segments of them that k2 takes."""

    sequences: int
    frames: int
    symbols: int
    segments: list  # [Segment]


SHAPES = [
    Shape(sequences=1, frames=1, symbols=1, segments=[Segment(0, 0, 1)]),
    Shape(sequences=2, frames=5, symbols=3, segments=[Segment(1, 0, 5), Segment(0, 2, 3)]),
    Shape(
        sequences=3,
        frames=7,
        symbols=40,
        segments=[Segment(2, 1, 6), Segment(0, 0, 0), Segment(2, 0, 4), Segment(1, 6, 1)],
    ),
    Shape(sequences=2, frames=4, symbols=0, segments=[Segment(0, 0, 4), Segment(1, 1, 2)]),
]


def cases():
    for number, shape in enumerate(SHAPES):
        yield _forward(number, shape)
        yield _backward(number, shape, 0)
        yield _backward(number, shape, 1)


def _first_rows(segments):
    """Returns the row of the scores where each segment begins, and the number of all rows."""
    return np.cumsum([0] + [n + 1 for _, _, n in segments])


def _filled(values, size=MOST):
    """Returns a list of `size` numbers that begins with `values`."""
    return [*values, *[0] * (size - len(values))]


def _params(shape, log_probs):
    """Returns the buffer of DenseFsaVecParams; `log_probs` can be any array of three axes."""
    _, _, symbols, segments = shape
    strides = [stride // log_probs.itemsize for stride in log_probs.strides]
    return Buffer.struct(
        PARAMS,
        num_segments=len(segments),
        first_segment=0,
        num_symbols=symbols,
        sequence_stride=strides[0],
        frame_stride=strides[1],
        symbol_stride=strides[2],
        first_rows=_filled(_first_rows(segments), MOST + 1),
        sequences=_filled([sequence for sequence, _, _ in segments]),
        start_frames=_filled([t for _, t, _ in segments]),
    )


def _grad_params(shape, adds):
    _, frames, symbols, segments = shape
    # The kernel takes the segments in the order of their sequences.
    in_order = sorted(zip(segments, _first_rows(segments)), key=lambda item: item[0][0])
    return Buffer.struct(
        GRAD_PARAMS,
        num_segments=len(segments),
        num_frames=frames,
        num_symbols=symbols,
        adds=adds,
        sequences=_filled([sequence for (sequence, _, _), _ in in_order]),
        first_rows=_filled([row for _, row in in_order]),
        start_frames=_filled([t for (_, t, _), _ in in_order]),
        end_frames=_filled([t + n for (_, t, n), _ in in_order]),
    )


def _forward(number, shape):
    sequences, frames, symbols, segments = shape
    random = np.random.default_rng(number)
    # The kernel reads every second element of a row, and not the last row of a sequence.
    memory = random.standard_normal((sequences, frames + 1, 2 * symbols + 1)).astype(np.float32)
    values = memory[:, :frames, : 2 * symbols : 2]
    expected, splits = [], [0]
    for sequence, start, count in segments:
        part = np.full((count + 1, symbols + 1), np.float32(-np.inf))
        part[:-1, 1:] = values[sequence, start : start + count]
        part[-1, 0] = 0
        expected.append(part)
        splits.append(splits[-1] + count + 1)
    expected = np.concatenate(expected)
    buffers = {
        Number.kDvLogProbs: Buffer(memory),
        Number.kDvScores: Buffer.output(expected),
        Number.kDvRowSplits: Buffer.output(np.array(splits, np.int32), dtype=np.int32),
        Number.kDvParams: _params(shape, values),
    }
    return Case(f"{number}", "dense_fsa_vec", len(expected), 32, buffers)


def _backward(number, shape, adds):
    sequences, frames, symbols, segments = shape
    random = np.random.default_rng(100 + number)
    num_rows = sum(n + 1 for _, _, n in segments)
    grad = random.standard_normal((num_rows, symbols + 1)).astype(np.float32)
    size = max(1, sequences * frames * symbols)
    begin = np.full(size, UNTOUCHED, np.float32)
    expected = np.full((sequences, frames, symbols), UNTOUCHED * adds, np.float32)
    row = 0
    for sequence, start, count in segments:
        expected[sequence, start : start + count] += grad[row : row + count, 1:]
        row += count + 1
    buffers = {
        Number.kDvScoresGrad: Buffer(grad),
        Number.kDvGrad: Buffer(begin, expected.ravel() if symbols else begin),
        Number.kDvParams: _grad_params(shape, adds),
    }
    return Case(f"{number}, adds {adds}", "dense_fsa_vec_grad", sequences * frames, 32, buffers)
