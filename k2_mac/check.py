"""Tests whether k2 on mps is right and fast on this machine.

    python -m k2_mac.check
    python -m k2_mac.check --html check.html

The program lists the facts about the machine.  Then the program computes the main losses and
algorithms on the CPU and on mps, compares values and gradients, and times both devices.

The exit code is 0 if all results agree, 1 if a result differs, 2 for a wrong command line, and 3 if
there is no mps device that k2 can use.
"""

import argparse
import dataclasses
import platform
import statistics
import sys
import time
from collections.abc import Callable

import _k2
import k2
import torch

from k2_mac.check_operations import OPERATIONS, SIZES
from k2_mac.faults import known_faults

OK, DIFFERS, NO_DEVICE = 0, 1, 3


@dataclasses.dataclass
class Fact:
    """A fact about this machine.

    Attributes:
      name: the name of the fact.
      found: the value, in words.
      wanted: what is wrong and what to do; empty if the value is good.
    """

    name: str
    found: str
    wanted: str = ""


@dataclasses.dataclass
class Comparison:
    """The comparison of an operation's results on mps and on the CPU.

    Attributes:
      name: the name of the operation.
      difference: the largest difference of values and gradients, relative to the largest absolute
        value of each tensor.  NaN if a shape differs, or if an element is NaN or infinite on one
        device only.
      tolerance: the largest difference that is allowed.
      error: the error that the operation raised on mps, or an empty text.
    """

    name: str
    difference: float
    tolerance: float
    error: str = ""

    @property
    def ok(self) -> bool:
        # A difference of NaN fails, since `NaN <= tolerance` is False.
        return not self.error and self.difference <= self.tolerance


@dataclasses.dataclass
class Timing:
    """The times of an operation.

    Attributes:
      name: the name of the operation.
      cpu, mps: the median time of several runs on the device, in seconds.
      counted: what k2.mps.counters() counted in one run on mps.
    """

    name: str
    cpu: float
    mps: float
    counted: k2.mps.Counters

    @property
    def counts(self) -> dict[str, int]:
        """The counts that the tables show."""
        return {
            "dispatches": self.counted.dispatches,
            "gates": self.counted.gates,
            "drains": self.counted.drains,
            "bytes copied": self.counted.bytes_to_mps + self.counted.bytes_to_cpu,
        }


@dataclasses.dataclass
class Result:
    """The results of all checks.

    Attributes:
      facts: the facts about this machine.
      name: the name of the device; empty if there is no device.
      size: the size of the timed problems, a key of SIZES.
      comparisons, timings: empty if there is no device.
      times_count: whether the times of mps are times of a GPU; true only on macOS.
    """

    facts: list[Fact]
    name: str
    size: str
    comparisons: list[Comparison] = dataclasses.field(default_factory=list)
    timings: list[Timing] = dataclasses.field(default_factory=list)
    times_count: bool = dataclasses.field(default_factory=lambda: platform.system() == "Darwin")

    @property
    def status(self) -> int:
        """The exit code."""
        if any(fact.wanted for fact in self.facts):
            return NO_DEVICE
        ok = self.comparisons and all(each.ok for each in self.comparisons)
        return OK if ok else DIFFERS

    @property
    def device(self) -> str:
        """The name of mps on this machine."""
        return f"mps ({self.name})"

    @property
    def unit(self) -> str:
        """The unit of the times, with a warning if mps is not a GPU."""
        unit = f"milliseconds, size {self.size}"
        return unit if self.times_count else f"{unit}, NOT OF A GPU"

    def verdict(self) -> list[str]:
        """The verdict, in sentences."""
        if self.status == NO_DEVICE:
            return [
                "k2 cannot use mps here. It works on the CPU.",
                *(f"{fact.name}: {fact.wanted}" for fact in self.facts if fact.wanted),
            ]
        raised = [each.name for each in self.comparisons if each.error]
        wrong = [each.name for each in self.comparisons if not each.ok and not each.error]
        lines = []
        if not wrong and not raised:
            lines.append(
                f"{len(self.comparisons)} of {len(self.comparisons)}"
                " operations agree with the CPU, values and gradients."
            )
        lines.append(self._times_verdict())
        # These lines come last: `k2mps build` gives the last line as the reason of a failure.
        if wrong:
            lines.append(
                f"DO NOT TRAIN on this device: {', '.join(wrong)}"
                " differ from the CPU by more than rounding explains."
            )
        if raised:
            lines.append(
                f"DO NOT TRAIN on this device: {', '.join(raised)}"
                " raised errors, which the table shows."
            )
        return lines

    def _times_verdict(self) -> str:
        """What the times say, in a sentence."""
        if not self.times_count:
            return (
                f"{self.device} on {platform.system()} is not the"
                " GPU of a Mac: its times say nothing about speed."
            )
        faster = [each.name for each in self.timings if each.mps < each.cpu]
        return (
            f"{self.device} is faster for"
            f" {', '.join(faster) or 'none'}, of {len(self.timings)}"
            f" operations timed at size {self.size}."
        )


def examine() -> list[Fact]:
    """Returns the facts that decide whether k2 can use mps."""
    release = platform.mac_ver()[0]
    available = torch.backends.mps.is_available()
    problem = k2.mps.unavailable_reason() or ""
    return [
        Fact("k2", _k2.version.__version__),
        Fact("torch", torch.__version__),
        Fact("Python", platform.python_version()),
        Fact("system", f"macOS {release}" if release else platform.platform()),
        Fact("processor", platform.machine()),
        Fact("k2 with mps", "yes" if k2.with_mps else "no"),
        Fact("mps device", "yes" if available else "no", problem.replace("\n", " ")),
        *(
            Fact("known fault", f"{fault.what} ({fault.link})")
            for fault in known_faults(torch.__version__, release)
        ),
    ]


def _difference(cpu: torch.Tensor, mps: torch.Tensor | None) -> float:
    """Returns the difference between a result on the CPU and the same result on mps, as described
    at Comparison.difference.

    Args:
      mps: None for a gradient that mps does not compute; then the difference is NaN.
    """
    if mps is None:
        return float("nan")
    cpu, mps = cpu.detach().double(), mps.detach().cpu().double()
    if cpu.shape != mps.shape:
        return float("nan")
    finite = torch.isfinite(cpu) & torch.isfinite(mps)
    same = (cpu == mps) | (cpu.isnan() & mps.isnan())
    if not same[~finite].all():
        return float("nan")
    if not finite.any():
        return 0.0
    scale = cpu[finite].abs().max().clamp(min=torch.finfo().tiny)
    return ((cpu - mps)[finite].abs().max() / scale).item()


def compare(name: str, size: str) -> Comparison:
    """Computes an operation on both devices, and compares the results.

    Args:
      name: a key of OPERATIONS.
      size: a key of SIZES.
    """
    make, allowed = OPERATIONS[name]
    tolerance = allowed(size)
    torch.manual_seed(1)
    operation = make(size)
    expected = operation(torch.device("cpu"))()
    try:
        found = operation(torch.device("mps", 0))()
        # A kernel that does not complete is an error at the next wait.
        k2.mps.synchronize()
        differences = [_difference(*pair) for pair in zip(expected, found, strict=True)]
    except Exception as error:
        # torch and k2 raise errors of several types, for example a TypeError for float64 on mps.
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        return Comparison(name, float("nan"), tolerance, reason)
    # Python's max() may drop a NaN.
    worst = float(torch.tensor(differences).max())
    return Comparison(name, worst, tolerance)


def measure(name: str, size: str, seconds: float) -> Timing:
    """Times an operation on both devices.

    Args:
      name: a key of OPERATIONS.
      size: a key of SIZES.
      seconds: the time limit for each device, which may be exceeded because there are at least
        three runs.
    """
    torch.manual_seed(1)
    operation = OPERATIONS[name][0](size)

    def median(device: torch.device) -> float:
        synchronize = torch.mps.synchronize if device.type == "mps" else lambda: None
        run = operation(device)
        run()  # compiles kernels, fills caches
        times: list[float] = []
        while len(times) < 3 or sum(times) < seconds and len(times) < 100:
            synchronize()
            begin = time.perf_counter()
            run()
            synchronize()
            times.append(time.perf_counter() - begin)
        return statistics.median(times)

    mps = torch.device("mps", 0)
    cpu_seconds, mps_seconds = median(torch.device("cpu")), median(mps)
    run = operation(mps)
    torch.mps.synchronize()
    with k2.mps.counters() as counted:
        run()
    return Timing(name, cpu_seconds, mps_seconds, counted)


def check(size: str, seconds: float, say: Callable[[str], object] = lambda line: None) -> Result:
    """Collects the facts, compares all operations, and times them.

    Args:
      size: the size of the timed problems, a key of SIZES.  Comparisons use both sizes.
      seconds: as for measure().
      say: is called with each fact, and with a line before each long step.
    """
    device = torch.backends.mps.get_name() if torch.backends.mps.is_available() else ""
    result = Result(examine(), device, size)
    for fact in result.facts:
        say(f"{fact.name}: {fact.found}")
    if result.status == NO_DEVICE:
        return result
    for name in OPERATIONS:
        say(f"comparing {name} ...")
        found = [compare(name, each) for each in SIZES]
        # Keep the worse of the two comparisons, by the share of what is allowed.  A comparison that
        # failed is worse than one that succeeded.
        found.sort(key=lambda each: (each.ok, -each.difference / each.tolerance))
        result.comparisons.append(found[0])
    for each in result.comparisons:
        if not each.error:
            say(f"timing {each.name} ...")
            result.timings.append(measure(each.name, size, seconds))
    return result


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    return [
        "  ".join(
            cell.ljust(width) if number == 0 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in (head, *rows)
    ]


def text(result: Result) -> list[str]:
    """Returns the result, without the facts, as lines for a terminal."""
    lines: list[str] = []
    if result.comparisons:
        lines += [
            "",
            *_table(
                ["mps against the CPU", "difference", "allowed", ""],
                [
                    [
                        each.name,
                        f"{each.difference:.1e}",
                        f"{each.tolerance:.1e}",
                        each.error or ("ok" if each.ok else "WRONG"),
                    ]
                    for each in result.comparisons
                ],
            ),
        ]
    if result.timings:
        lines += [
            "",
            *_table(
                [result.unit, "cpu", result.device, *result.timings[0].counts],
                [
                    [
                        each.name,
                        f"{each.cpu * 1e3:.2f}",
                        f"{each.mps * 1e3:.2f}",
                        *map(str, each.counts.values()),
                    ]
                    for each in result.timings
                ],
            ),
        ]
    return [*lines, "", *result.verdict()]


def main(arguments: list[str] | None = None) -> int:
    """Runs the program, and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m k2_mac.check",
        description="Compare k2 on mps with k2 on the CPU, on this machine.",
    )
    parser.add_argument("--html", metavar="FILE", help="also write a page, with plots")
    parser.add_argument(
        "--size", choices=list(SIZES), default="large", help="the size of the timed problems"
    )
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="the time limit of each operation and device"
    )
    options = parser.parse_args(arguments)
    if options.html:
        # The checks take minutes, so a page that cannot be written is an error before them.
        try:
            open(options.html, "a", encoding="utf-8").close()
        except OSError as error:
            parser.error(f"--html: {error}")
    result = check(options.size, options.seconds, lambda line: print(line, flush=True))
    print("\n".join(text(result)))
    if options.html:
        from k2_mac import check_page

        with open(options.html, "w", encoding="utf-8") as stream:
            stream.write(check_page.page(result))
        print(f"wrote {options.html}")
    return result.status


if __name__ == "__main__":
    sys.exit(main())
