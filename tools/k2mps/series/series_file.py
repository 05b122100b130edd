"""patches/series: the patches, in order and in groups.

The file has one file name a line, as quilt's.  Lines that are empty or start with
"#" mean nothing, except that a comment like "# device: text", which starts with
the name of a group, begins that group.  The groups come in the order of GROUPS;
each but the last is a pull request to k2 that builds on those before it.
"""

import contextlib
import itertools
import os
import re
from collections.abc import Sequence

from k2mps.core import errors

# Fixes, six pull requests; what else helps any device; the mps device; operations in Metal, nine
# pull requests; the patches that k2 need not take.
GROUPS = (
    *("fixes-core", "fixes-intersect", "fixes-ragged"),
    *("fixes-errors", "fixes-autograd", "fixes-processes"),
    *("general", "device"),
    *("mutual-information", "swoosh", "rnnt", "rnnt-smoothed"),
    *("graph-index", "lattices", "scores", "ctc", "pruned", "pruned-streams"),
    "extras",
)
_GROUP = re.compile(rf"#\s*({'|'.join(GROUPS)}):(\s.*)?")
PATCH_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.patch")
# The Upstream-Status of a new patch, by its group.
TO_SEND = "Pending (not sent yet)"
NOT_FOR_K2 = "Inappropriate (k2 need not carry it)"


def parse(order: bytes) -> tuple[list[str], dict[str, str]]:
    """The patch names in patches/series, which are valid and listed once; and the group of each,
    or nothing where there are no groups."""
    groups: dict[str, str] = {}
    current = ""
    for number, line in enumerate(map(str.strip, os.fsdecode(order).split("\n")), start=1):
        match = _GROUP.fullmatch(line)
        if match:
            late = current and GROUPS.index(match[1]) <= GROUPS.index(current)
            if late or groups and not current:
                raise errors.SeriesError(
                    f"patches/series:{number}: the group {match[1]} cannot begin here",
                    why=f"each patch is in a group; the groups are {', '.join(GROUPS)}, each once",
                    next_command="put them in that order",
                )
            current = match[1]
        elif line and not line.startswith("#"):
            check_name(line, f"patches/series:{number}")
            if line in groups:
                raise errors.SeriesError(
                    f"patches/series:{number}: {line} is listed twice",
                    next_command="delete one of these lines",
                )
            groups[line] = current
    return [*groups], groups if current else {}


def regroup(old: dict[str, str], names: Sequence[str]) -> dict[str, str]:
    """The groups of patches after a change of their order.

    A new patch joins the group of the patch before it. A patch that was moved before a patch of an
    earlier group joins that earlier group.
    """
    current = next((old[name] for name in names if name in old), "")
    groups = {name: (current := old.get(name, current)) for name in names}
    for name in reversed(names if current else ()):
        current = groups[name] = min(current, groups[name], key=GROUPS.index)
    return groups if current else {}


def is_for_k2(group: str) -> bool:
    """Whether k2 is offered the patches of a group; the empty one is that of a series without
    groups."""
    return group != GROUPS[-1]


def first_status(group: str) -> str:
    """The Upstream-Status of a new patch in a group."""
    return TO_SEND if is_for_k2(group) else NOT_FOR_K2


def check_name(name: str, where: str) -> None:
    """Refuses what is no file name of a patch."""
    if not PATCH_NAME.fullmatch(name):
        raise errors.SeriesError(
            f"{where}: {name!r} is not a patch name",
            why="a patch is a file in patches/ whose name has letters, digits, dots and dashes and"
            " ends in .patch; git merge may have left a conflict in that line",
            next_command="correct the line, or give the patch another name",
        )


def render_order(old: bytes, names: Sequence[str]) -> bytes:
    """patches/series for these names.

    The old bytes stay where they have the same names; else only the comments at
    the top and those that begin a group stay.
    """
    groups: dict[str, str] = {}
    with contextlib.suppress(errors.SeriesError):
        known, groups = parse(old)
        if known == [*names]:
            return old
        groups = regroup(groups, names)
    text = os.fsdecode(old).splitlines()
    titles = {match[1]: match[0] for line in text if (match := _GROUP.fullmatch(line.strip()))}
    top = itertools.takewhile(lambda line: line.startswith("#"), text)
    lines = [line for line in top if not _GROUP.fullmatch(line.strip())]
    for group in dict.fromkeys(groups.values()) or ("",):
        if group:
            lines += [*([""] if lines else []), titles[group]]
        lines += [name for name in names if groups.get(name, "") == group]
    return os.fsencode("".join(f"{line}\n" for line in lines))


def may_edit(groups: dict[str, str], name: str, owner: str) -> bool:
    """Whether a patch may edit a file that another one adds: its group must be a
    later one, as k2 is offered the two separately."""
    mine, others = groups.get(name), groups.get(owner)
    return bool(mine and others) and GROUPS.index(mine) > GROUPS.index(others)
