"""Versions of torch and macOS that are known to fail together on mps.

The faults are in torch and macOS, not in k2.  Other people found them, and each fault has a link to
a description.  This file imports neither k2 nor torch, so that tools can read it before k2 is
built.
"""

import re
import warnings
from dataclasses import dataclass

_PYTORCH = "https://github.com/pytorch/pytorch"


@dataclass(frozen=True)
class Fault:
    """A fault of torch on mps.

    Attributes:
      what: what happens, and what to do; a sentence without its period.
      link: the URL of a description.
      since, until: the first release of torch with the fault, and the first later release without
        it; empty for no limit.
      macos: the first macOS with the fault; empty for every macOS.
      warn: whether ``import k2_mac.gpu`` warns of the fault.  ``python3 -m k2_mac.check`` lists the
        fault in any case.
    """

    what: str
    link: str
    since: str = ""
    until: str = ""
    macos: str = ""
    warn: bool = True

    def concerns(self, torch: str, macos: str) -> bool:
        """Returns whether these versions have the fault."""
        found = _numbers(torch)
        if found < _numbers(self.since):
            return False
        if self.until and found >= _numbers(self.until):
            return False
        return _numbers(macos) >= _numbers(self.macos)


FAULTS = (
    Fault(
        "torch ends the program in a linear layer of three dimensions in "
        "bfloat16; install torch 2.14.1",
        f"{_PYTORCH}/issues/197796",
        since="2.13",
        until="2.14",
        macos="27",
    ),
    Fault(
        "the memory of a program whose batches have many lengths grows "
        "without end; install torch 2.14.1, or call "
        "torch.mps.empty_cache() now and then",
        f"{_PYTORCH}/pull/188045",
        until="2.14",
    ),
    Fault(
        "torch ends the program if two threads use mps; install torch 2.14.1",
        f"{_PYTORCH}/issues/197805",
        since="2.14",
        until="2.14.1",
    ),
    Fault(
        "MPSGraph gave wrong results on virtual machines of GitHub with "
        "macOS 26; trust mps there only if python3 -m k2_mac.check passes",
        "https://github.com/actions/runner-images/issues/14380",
        since="2.8",
        until="2.14",
        macos="26",
        warn=False,
    ),
    # A build for mps needs torch 2.12 or newer, so `since` is empty.  From 2.15 on, inductor looks
    # up a masked value by a key that contains the value, so two values have different keys.
    Fault(
        "torch.compile may use a masked value in place of another; compare "
        "gradients of a compiled model with those of the original model",
        f"{_PYTORCH}/blob/v2.14.1/torch/_inductor/codegen/mps.py",
        until="2.15",
        warn=False,
    ),
)


def known_faults(torch: str, macos: str) -> list[Fault]:
    """Returns the known faults of a release of torch on a release of macOS.

    Args:
      torch: the version of torch, e.g. ``'2.13.0'``.
      macos: the version of macOS, e.g. ``'26.1'``; empty on another system.
    """
    if not macos:
        return []
    return [fault for fault in FAULTS if fault.concerns(torch, macos)]


def warn_of_faults(torch: str, macos: str) -> None:
    """Warns of the faults whose ``warn`` is true."""
    for fault in known_faults(torch, macos):
        if fault.warn:
            warnings.warn(
                f"torch {torch} on macOS {macos}: {fault.what}. ({fault.link})", stacklevel=3
            )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.split("+")[0])))
