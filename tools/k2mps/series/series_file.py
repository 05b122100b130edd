"""patches/series: the patches, in order and in groups.

The file has one file name a line, as quilt's.  Lines that are empty or start with
"#" mean nothing, except that a comment like "# device: text", which starts with
the name of a group, begins that group.  The groups come in the order of GROUPS;
each but the last is a pull request to k2 that builds on those before it.
"""

import itertools
import os
import re
from collections.abc import Sequence

from k2mps.core import errors

# Fixes; what else helps any device; the mps device; operations in Metal, five pull
# requests; the patches that k2 need not take.
GROUPS = (
    *("fixes", "general", "device"),
    *("mutual-information", "graph-index", "lattices", "scores", "ctc"),
    "extras",
)
_GROUP = re.compile(rf"#\s*({'|'.join(GROUPS)}):(\s.*)?")
PATCH_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.patch")


def parse_order(order: bytes) -> list[str]:
    """The patch names in patches/series, which are valid and listed once."""
    names: list[str] = []
    for number, line in enumerate(os.fsdecode(order).split("\n"), start=1):
        name = line.strip()
        if not name or name.startswith("#"):
            continue
        check_name(name, f"patches/series:{number}")
        if name in names:
            raise errors.SeriesError(
                f"patches/series:{number}: {name} is listed twice",
                next_command="delete one of these lines",
            )
        names.append(name)
    return names


def parse_groups(order: bytes) -> dict[str, str]:
    """The group of each patch in patches/series; empty where there are no groups."""
    groups: dict[str, str] = {}
    current = ""
    for number, line in enumerate(map(str.strip, os.fsdecode(order).split("\n")), start=1):
        match = _GROUP.fullmatch(line)
        late = match and current and GROUPS.index(match[1]) <= GROUPS.index(current)
        if late or match and groups and not current:
            raise errors.SeriesError(
                f"patches/series:{number}: the group {match[1]} cannot begin here",
                why=f"each patch is in a group; the groups are {', '.join(GROUPS)}, each once",
                next_command="put them in that order",
            )
        current = match[1] if match else current
        if line and not line.startswith("#"):
            groups.setdefault(line, current)
    return groups if current else {}


def regroup(old: dict[str, str], names: Sequence[str]) -> dict[str, str]:
    """The groups of patches after a change of their order.

    As many patches as possible keep their group.  Any other patch, and a new
    one, joins the group of the patch before it.
    """
    # The longest chain of patches whose groups do not go back, by its end.
    chains: dict[str, list[str]] = {}
    for name in filter(old.__contains__, names):
        level = GROUPS.index(old[name])
        before = [chain for last, chain in chains.items() if GROUPS.index(old[last]) <= level]
        chains[name] = [*max(before, key=len, default=[]), name]
    kept = max(chains.values(), key=len, default=[])
    current = old[kept[0]] if kept else ""
    groups = {}
    for name in names:
        current = groups[name] = old[name] if name in kept else current
    return groups if current else {}


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
    try:
        known = parse_order(old)
        renamed = {os.fsencode(a): os.fsencode(b) for a, b in zip(known, names) if a != b}
        if len(known) == len(names) and len(renamed) <= 1:
            return b"\n".join(renamed.get(line.strip(), line) for line in old.split(b"\n"))
        groups = regroup(parse_groups(old), names)
    except errors.SeriesError:
        pass
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
