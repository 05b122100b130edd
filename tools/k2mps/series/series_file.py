"""patches/series: lists the patches in their order, and in groups.

Each line has the file name of a patch, as in quilt's series files.  Empty lines and comments, which
start with "#", are ignored.  But a comment like "# device: text", which starts with the name of a
group, begins that group.  The groups come in the order of GROUPS.  Each group except the last is a
pull request to k2: a group of fixes on the pinned commit, any other group on top of the groups
before it.
"""

import os
import re
from collections.abc import Sequence

from k2mps.core import errors

GROUPS = (
    # These make mps a device of k2.
    "shared-memory",
    "mps-context",
    "device",
    # Kernels.
    "mutual-information",
    "swoosh",
    "waits",
    "rnnt",
    "rnnt-smoothed",
    "graph-index",
    "lattices",
    "scores",
    "ctc",
    "pruned",
    "pruned-streams",
    # Corrections of k2 on any device.
    "fixes-core",
    "fixes-intersect",
    "fixes-ragged",
    "fixes-errors",
    "fixes-autograd",
    "fixes-processes",
    # Less time on the CPU, sorts on the host, why mps cannot be used and the name of a wheel, and
    # no wait for what the host makes.
    "speed",
    "sorting",
    "availability",
    "idle-memory",
    # Not offered to k2.
    "profiling",
)
_GROUP = re.compile(rf"#\s*({'|'.join(GROUPS)}):(\s.*)?")
PATCH_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.patch")
# The Upstream-Status of a new patch, by its group.
TO_SEND = "Pending (not sent yet)"
NOT_FOR_K2 = "Inappropriate (k2 need not carry it)"


def parse(order: bytes) -> tuple[list[str], dict[str, str]]:
    """Parses the contents of patches/series.

    Returns:
      The names of the patches, in order; and the group of each patch by its name, or an empty dict
      if the file has no groups.
    Raises:
      SeriesError: a name is invalid or listed twice, or a group is out of order.
    """
    groups: dict[str, str] = {}
    current = ""
    for number, raw_line in enumerate(os.fsdecode(order).split("\n"), start=1):
        line = raw_line.strip()
        match = _GROUP.fullmatch(line)
        if match:
            is_late = current and GROUPS.index(match[1]) <= GROUPS.index(current)
            has_patches_above = groups and not current
            if is_late or has_patches_above:
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
    names = list(groups)
    return names, groups if current else {}


def regroup(old_groups: dict[str, str], names: Sequence[str]) -> dict[str, str]:
    """Returns the group of each patch after the order of the patches has changed.

    A new patch joins the group of the patch before it.  If a patch was moved before a patch of an
    earlier group, the moved patch joins that earlier group.

    Args:
      old_groups: the groups before the change, by the names of the patches.
      names: the patches in their new order.
    """
    # New patches before all others join the group of the first of the others.
    group = next((old_groups[name] for name in names if name in old_groups), "")
    groups = {}
    for name in names:
        group = old_groups.get(name, group)
        groups[name] = group
    if not group:
        return {}
    for name in reversed(names):
        group = min(group, groups[name], key=GROUPS.index)
        groups[name] = group
    return groups


def is_for_k2(group: str) -> bool:
    """Whether the patches of a group are offered to k2.

    Args:
      group: empty if the series has no groups; then all patches are offered.
    """
    return group != GROUPS[-1]


def last_group(groups: dict[str, str]) -> str:
    """Returns the group of the last patch, which a new patch joins; "" if there are no groups.

    Args:
      groups: as from `parse`.
    """
    return list(groups.values())[-1] if groups else ""


def is_fix(group: str) -> bool:
    """Whether a group corrects k2 on any device, and so applies to the pinned commit alone."""
    return group.startswith("fixes-")


def stands_alone(name: str) -> bool:
    """Whether a patch of a group of fixes is part of the group that applies to the pinned commit.

    The other patches are what the group changes in lines that earlier groups of the series add.
    """
    return not name.endswith("-at-head.patch")


def first_status(group: str) -> str:
    """Returns the Upstream-Status of a new patch in a group."""
    return TO_SEND if is_for_k2(group) else NOT_FOR_K2


def check_name(name: str, where: str) -> None:
    """Raises `SeriesError` if `name` is not a valid file name of a patch.

    Args:
      where: the beginning of the message, such as the file and line of the name.
    """
    if not PATCH_NAME.fullmatch(name):
        raise errors.SeriesError(
            f"{where}: {name!r} is not a patch name",
            why="a patch is a file in patches/ whose name has letters, digits, dots and dashes and"
            " ends in .patch; git merge may have left a conflict in that line",
            next_command="correct the line, or give the patch another name",
        )


def render_order(old_order: bytes, names: Sequence[str]) -> bytes:
    """Returns the new contents of patches/series.

    Every comment stays: the comments below a group's title with this title, other comments above
    the same patch or, if its group has no such patch any more, above the group's next patch or at
    the group's end.  A group without patches keeps its title.

    Args:
      old_order: the old contents.
      names: the patches in their new order.
    Raises:
      SeriesError: see `parse`.
    """
    old_names, old_groups = parse(old_order)
    if old_names == list(names):
        return old_order
    groups = regroup(old_groups, names)
    sections, above = _comments(old_order, names)
    lines: list[str] = []
    for group, title, end in sections:
        lines += title
        for name in names:
            # Without a known patch, the new patches join the last group.
            if groups.get(name, sections[-1][0]) == group:
                lines += [*above.get(name, ()), name]
        lines += end
    return os.fsencode("".join(f"{line}\n" for line in lines))


def _comments(
    order: bytes, names: Sequence[str]
) -> tuple[list[tuple[str, list[str], list[str]]], dict[str, list[str]]]:
    """Returns the comments and empty lines of patches/series.

    Args:
      names: the patches that the new contents have.
    Returns:
      The lines (group, title, end) of each group, and first of what is above all groups; and the
      lines above each patch, by its name.
    """
    sections: list[tuple[str, list[str], list[str]]] = [("", [], [])]
    above: dict[str, list[str]] = {}
    in_title = True
    lines = os.fsdecode(order).removesuffix("\n").split("\n") if order else []
    for line in lines:
        word = line.strip()
        if match := _GROUP.fullmatch(word):
            sections.append((match[1], [line], []))
            in_title = True
            continue
        _, title, end = sections[-1]
        if not word or word.startswith("#"):
            comments = title if in_title else end
            comments.append(line)
        elif word in names:
            above[word] = [*end]
            end.clear()
        in_title = in_title and word.startswith("#")  # An empty line is the title's last line.
    return sections, above


def may_edit(groups: dict[str, str], name: str, owner: str) -> bool:
    """Whether patch `name` may edit a file that patch `owner` adds.

    A patch of a later group may, because the two patches are in different pull requests.  A patch
    of the same group may only if it is not part of the group that applies to the pinned commit, see
    `stands_alone`.
    """
    group, group_of_owner = groups.get(name), groups.get(owner)
    if not group or not group_of_owner:
        return False
    if group == group_of_owner:
        return not stands_alone(name)
    return GROUPS.index(group) > GROUPS.index(group_of_owner)
