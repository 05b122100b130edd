"""The dispatches that mutual_information.cu makes."""

import dataclasses
import math

from k2_mps_tests.kernels.sources import enumerators

TUNING = enumerators("mutual_information.h")


@dataclasses.dataclass
class Slices:
    """The dispatches for B sequence pairs of lengths S and T.

    Attributes:
      suffix: what the kernels' names end with.
      threads: of a threadgroup.
      scratch_columns, scratch_stride: as MutualInformationParams has them.
      dispatches: [(threadgroups, first_pass, begin, length, delay, is_last)].
    """

    suffix: str
    threads: int
    scratch_columns: int
    scratch_stride: int
    dispatches: list

    def params(self, B, S, T, offset, has_boundary):
        """MutualInformationParams of each dispatch: [(threadgroups, [int])].

        offset: 0, or -1 if modified.
        """
        return [
            (
                threadgroups,
                [
                    S,
                    T,
                    offset,
                    int(has_boundary),
                    B,
                    self.scratch_columns,
                    self.scratch_stride,
                    *rest,
                ],
            )
            for threadgroups, *rest in self.dispatches
        ]


def slices(B, S, T, cores):
    """Returns the Slices for a GPU with so many cores."""
    strips = S // TUNING["kMiRows"] + 1
    passes = -(-strips // TUNING["kMiMaxStrips"])
    at_once = -(-strips // passes)
    threads = at_once * TUNING["kMiThreadsPerStrip"]
    lag, start = TUNING["kMiMaxLag"], TUNING["kMiRoundsToStart"]
    columns = TUNING["kMiColumns"]
    rounds = (T + columns - 1 + TUNING["kMiMaxCarry"]) // columns + 1 + (at_once - 1) * lag
    diagonals = 3 * (S + 1) + 1
    if passes == 1:
        return Slices("", threads, 0, diagonals, [(B, 0, 0, rounds, rounds, 1)])

    length = delay = rounds
    behind = at_once * lag
    best = int(math.sqrt(start * (rounds + (passes - 1) * behind) // (passes - 1)))
    if best + behind < rounds:
        count = -(-(rounds + (passes - 1) * (best + behind)) // best)
        active = min(passes, -(-rounds // (best + behind)))
        if count * (best + start) * -(-B * active // cores) < passes * (rounds + start) * -(
            -B // cores
        ):
            length, delay = best, best + behind
    count = -(-(rounds + (passes - 1) * delay) // length)
    dispatches = []
    for i in range(count):
        begin = i * length
        first = max(0, -(-(begin - rounds + 1) // delay))
        last = min(passes - 1, (begin + length - 1) // delay)
        dispatches.append(
            (B * (last - first + 1), first, begin, length, delay, int(i == count - 1))
        )
    scratch_columns = T + TUNING["kMiScratchMargin"]
    return Slices(
        "_slice",
        threads,
        scratch_columns,
        2 * scratch_columns + passes * at_once * TUNING["kMiSavedSize"] + diagonals,
        dispatches,
    )
