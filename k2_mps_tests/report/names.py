"""Replaces the names of users, hosts and folders in everything that leaves this machine."""

import os
import platform
import pwd
import re
import sys
from collections.abc import Callable
from pathlib import Path

from k2_mps_tests.report import running

# Names that identify nobody, and also occur as words.
_NOBODY = {"root", "runner", "localhost", "user", "admin", "mac", "macbook", "linux"}


def _computer_names() -> list[str]:
    """Returns the names of this computer."""
    found = [platform.node(), platform.node().split(".")[0]]
    if sys.platform == "darwin":
        for kind in ("ComputerName", "LocalHostName", "HostName"):
            status, said = running.output("scutil", "--get", kind, seconds=10)
            if status == 0:
                found.append(said.strip())
    return found


def _user_names() -> list[str]:
    """Returns the names of this user: the account, and the full name."""
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:  # for example in a container
        return [os.environ.get("USER", "")]
    return [os.environ.get("USER", ""), entry.pw_name, entry.pw_gecos.split(",")[0]]


def cleaner(root: Path) -> Callable[[str], str]:
    """Returns a function that replaces in a text all names that a report must not contain.

    The function finds names only as whole words, and finds paths even where JSON has escaped
    their slashes, as in macOS's crash reports.

    Args:
      root: the folder of the project.
    """
    replaced = []
    for path, what in ((str(root), "<project>"), (str(Path.home()), "<home>")):
        if len(path) > 1:
            replaced.append((re.escape(path).replace("/", r"\\?/"), what, len(path)))
    for found, what in ((_computer_names(), "<host>"), (_user_names(), "<user>")):
        for name in {name for name in found if len(name) > 1 and name.lower() not in _NOBODY}:
            replaced.append((rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", what, len(name)))
    # A longer name can contain a shorter one.
    replaced.sort(key=lambda one: -one[2])
    patterns = [(re.compile(pattern, re.IGNORECASE), what) for pattern, what, _ in replaced]

    def clean(text: str) -> str:
        for pattern, what in patterns:
            text = pattern.sub(what, text)
        return text

    return clean
