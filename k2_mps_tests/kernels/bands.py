"""Dispatches of mutual_information.metal; see its header for the words.

A threadgroup does a band of a sequence, a dispatch some rounds of each band.  Every division of
the rounds gives the same bits.  k2's division, which is for speed, is in mutual_information.cu.
"""

import dataclasses

from k2_mps_tests.kernels.sources import enumerators

TUNING = enumerators("mutual_information.h")
# The most rows, S + 1, of one band.
BAND_ROWS = TUNING["kMiMaxStrips"] * TUNING["kMiRows"]
# More rounds than any band has.
ALL = 1 << 20


@dataclasses.dataclass
class Dispatches:
    """The dispatches of a kernel.

    Attributes:
      suffix: the end of the kernel's name.
      threadgroups, threads: the threadgroups of each dispatch, the threads of each
        threadgroup.
      scratch_stride: the member of MutualInformationParams.
      params: MutualInformationParams of each dispatch, [[int]].
    """

    suffix: str
    threadgroups: int
    threads: int
    scratch_stride: int
    params: list


def dispatches(
    B: int, S: int, T: int, offset: int, has_boundary: bool, length: int = ALL
) -> Dispatches:
    """Returns the dispatches for B sequence pairs of lengths S and T.

    Args:
      offset: 0, or -1 if modified.
      length: the rounds of each dispatch; by default, all of a band.
    """
    strips = S // TUNING["kMiRows"] + 1
    bands = -(-strips // TUNING["kMiMaxStrips"])
    at_once = -(-strips // bands)
    behind = at_once * TUNING["kMiMaxLag"]
    delay = length if length == ALL else length + behind
    # The last lane of a strip is behind by at most as many steps as the strip has rows.
    steps = T + TUNING["kMiColumns"] + TUNING["kMiRows"]
    rounds = min(ALL, -(-steps // TUNING["kMiColumns"]) + behind)
    count = -(-(rounds + (bands - 1) * delay) // length)
    columns = T + TUNING["kMiColumns"] if bands > 1 else 0
    stride = 4 * (S + 1)
    if bands > 1:
        stride += 2 * columns + bands * at_once * TUNING["kMiSavedSize"]
    shared = [S, T, offset, int(has_boundary), B, columns, stride]
    return Dispatches(
        "_bands" if bands > 1 else "",
        B * bands,
        at_once * TUNING["kMiThreadsPerStrip"],
        stride,
        [[*shared, i * length, length, delay] for i in range(count)],
    )
