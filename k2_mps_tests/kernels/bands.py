"""Dispatches of mutual_information.metal, whose words these are.

A threadgroup does a band of a sequence, and a dispatch some rounds of each
band.  The kernels give the same bits however the rounds are divided; what k2
does for the sake of speed is in mutual_information.cu.
"""

import dataclasses

from k2_mps_tests.kernels.sources import enumerators

TUNING = enumerators("mutual_information.h")
# How many rows, S + 1, one band has at most.
BAND_ROWS = TUNING["kMiMaxStrips"] * TUNING["kMiRows"]
# Rounds of which no band has more.
ALL = 1 << 20


@dataclasses.dataclass
class Dispatches:
    """What a kernel is launched with.

    Attributes:
      suffix: what its name ends with.
      threadgroups, threads: of each dispatch, and of a threadgroup.
      scratch_stride: as MutualInformationParams has it.
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
    # The last lane of a strip is at most as many steps behind as it has rows.
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
