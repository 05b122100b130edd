"""Figures of the series: the lines that each patch adds and touches, the budget, the upstream
commits since the pin, and the files where conflicts are likely."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import os

from k2mps.core import errors
from k2mps.core.pins import Pin, Upstream
from k2mps.core.progress import Section
from k2mps.core.project import Project
from k2mps.series import hunks, patch_folder, patch_text
from k2mps.stack.checkout import Checkout

# The checkout's ref for upstream's default branch.
TIP_REF = "refs/k2mps/upstream"

# The commits before the pin that tell how often upstream changes a file.
RECENT_COMMITS = 200

# The hot spots that are shown.
_SHOWN = 10


@dataclasses.dataclass(frozen=True)
class PatchFigures:
    """One patch."""

    name: str
    group: str  # its group; empty where the series has no groups
    subject: str
    status: str
    # new_files, new_lines: its files under patches/files, and their lines
    new_files: int
    new_lines: int
    # files, added, removed: the upstream files that it edits, and the lines that it adds to
    # and removes from them
    files: int
    added: int
    removed: int


@dataclasses.dataclass(frozen=True)
class Drift:
    """How far the pin is behind upstream."""

    version: str
    commit: str
    # The date of the pinned commit, ISO 8601; None where no checkout has the commit.
    date: str | None = None
    age_days: int | None = None  # the days since that date
    tip: str | None = None  # the last commit of upstream's default branch, as far as known here
    behind: int | None = None  # the number of commits from the pin to `tip`
    # Why `tip` and `behind` are missing or may be old; empty where upstream has just answered.
    unknown: str = ""


@dataclasses.dataclass(frozen=True)
class HotSpot:
    """An upstream file that patches edit."""

    path: str
    patches: tuple[str, ...]  # the names of these patches
    # hunks, lines: the hunks and lines of all of them together
    hunks: int
    lines: int
    # How many of the last `RECENT_COMMITS` before the pin changed the file; None where
    # there is no checkout.
    commits: int | None


@dataclasses.dataclass(frozen=True)
class Report:
    """All figures."""

    patches: tuple[PatchFigures, ...]
    new_lines: int
    upstream_lines: int
    budget: int | None
    drift: Drift
    hot_spots: tuple[HotSpot, ...]


def report(
    project: Project, upstream: Upstream, checkout: Checkout | None, offline: bool = False
) -> Report:
    """Gathers the figures.

    Args:
      checkout: has upstream's history; None where there is none.
      offline: whether upstream must not be asked.
    Raises:
      SeriesError: patches/ is malformed.
    """
    found = patch_folder.load(project.patches)
    figures = tuple(_figures(found, patch) for patch in found.patches)
    return Report(
        figures,
        sum(one.new_lines for one in figures),
        sum(one.added + one.removed for one in figures),
        upstream.budget,
        _drift(upstream.pin, checkout, offline),
        _hot_spots(found, upstream.pin, checkout),
    )


def _figures(found: patch_folder.Series, patch: patch_text.Patch) -> PatchFigures:
    added, removed = hunks.count(patch.diff, without=found.files)
    return PatchFigures(
        patch.name,
        found.groups.get(patch.name, ""),
        patch.subject,
        patch.status,
        len(patch.new_files),
        sum(len(found.files[path].content.splitlines()) for path in patch.new_files),
        sum(edit.path not in found.files for edit in patch.edits),
        added,
        removed,
    )


def fetch_tip(pin: Pin, checkout: Checkout) -> str:
    """Fetches upstream's default branch; the id of its last commit.

    Raises:
      UnreachableError: upstream does not answer.
    """
    checkout.git.network(
        "asking upstream",
        "fetch",
        "--no-tags",
        "--no-write-fetch-head",
        pin.url,
        f"+HEAD:{TIP_REF}",
    )
    return checkout.git.text("rev-parse", TIP_REF)


def _drift(pin: Pin, checkout: Checkout | None, offline: bool) -> Drift:
    unknown = ""
    if checkout is None or not checkout.has(pin.commit):
        unknown = "no checkout has the pin; k2mps checkout makes one"
        return Drift(pin.version, pin.commit, unknown=unknown)
    if offline:
        unknown = "upstream was not asked"
    else:
        try:
            fetch_tip(pin, checkout)
        except errors.UnreachableError as error:
            unknown = f"upstream cannot be reached: {error.what}"
    seconds = int(checkout.git.text("log", "-1", "--format=%ct", pin.commit))
    date = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    today = datetime.datetime.now(datetime.timezone.utc)
    tip = checkout.commit_of(TIP_REF)
    behind = None
    if tip:
        range_ = f"{pin.commit}..{tip}"
        behind = int(checkout.git.text("rev-list", "--count", range_))
    return Drift(
        pin.version, pin.commit, date.date().isoformat(), (today - date).days, tip, behind, unknown
    )


def _hot_spots(
    found: patch_folder.Series, pin: Pin, checkout: Checkout | None
) -> tuple[HotSpot, ...]:
    by_path: dict[str, list[tuple[str, hunks.Hunk]]] = {}
    for patch in found.patches:
        for hunk in patch.hunks:
            if hunk.path not in found.files:
                by_path.setdefault(hunk.path, []).append((patch.name, hunk))
    commits = _recent_changes(pin, checkout, list(by_path))
    spots = [
        HotSpot(
            path,
            tuple(dict.fromkeys(name for name, _ in entries)),
            len(entries),
            sum(len(hunk.changes(b"+")) + len(hunk.changes(b"-")) for _, hunk in entries),
            None if commits is None else commits[path],
        )
        for path, entries in by_path.items()
    ]
    # A file that only one side changes does not conflict.
    spots.sort(key=lambda spot: (-spot.hunks * (spot.commits or 0), -spot.lines, spot.path))
    return tuple(spots)


def _recent_changes(
    pin: Pin, checkout: Checkout | None, paths: list[str]
) -> collections.Counter | None:
    if checkout is None or not paths or not checkout.has(pin.commit):
        return None
    output = checkout.git.bytes(
        *"log -z --format= --name-only --first-parent --diff-merges=first-parent".split(),
        f"--max-count={RECENT_COMMITS}",
        pin.commit,
    )
    return collections.Counter(map(os.fsdecode, output.split(b"\0")))


def sections(result: Report) -> list[Section]:
    """For people."""
    return [_patches_section(result), _drift_section(result.drift), _hot_spots_section(result)]


def _patches_section(result: Report) -> Section:
    budget = (
        f"a budget of {result.budget} ({result.budget - result.upstream_lines} left)"
        if result.budget is not None
        else "no budget"
    )
    groups = dict.fromkeys(one.group for one in result.patches if one.group)
    rows = tuple(
        (
            *([one.group] if groups else []),
            one.name,
            str(one.new_lines),
            f"+{one.added} -{one.removed}",
            str(one.files),
            one.status,
        )
        for one in result.patches
    )
    return Section(
        "Patches",
        (
            f"{len(result.patches)} patches: {result.new_lines} lines in new files,"
            f" {result.upstream_lines} lines in upstream's files, against {budget}",
            *(_group(result, group) for group in groups),
        ),
        (
            *(["group"] if groups else []),
            "patch",
            "lines in new files",
            "in upstream's",
            "files",
            "status",
        ),
        rows,
    )


def _group(result: Report, group: str) -> str:
    own = [one for one in result.patches if one.group == group]
    touched = sum(one.added + one.removed for one in own)
    return (
        f"{group}: {len(own)} patches, {sum(one.new_lines for one in own)}"
        f" lines in new files, {touched} in upstream's"
    )


def _drift_section(drift: Drift) -> Section:
    lines = [f"the pin is k2 {drift.version}, {drift.commit[:12]}"]
    if drift.date:
        lines[0] += f" of {drift.date}, {drift.age_days} days ago"
    if drift.behind is not None:
        when = ", as it was when last asked" if drift.unknown else ""
        lines.append(
            f"{drift.behind} commits behind upstream's default branch ({drift.tip[:12]}{when})"
        )
    if drift.unknown:
        lines.append(f"how far behind it is now is unknown: {drift.unknown}")
    return Section("Drift", tuple(lines))


def _hot_spots_section(result: Report) -> Section:
    rows = tuple(
        (
            spot.path,
            str(spot.hunks),
            str(spot.lines),
            "" if spot.commits is None else str(spot.commits),
            ", ".join(name.removesuffix(".patch") for name in spot.patches),
        )
        for spot in result.hot_spots[:_SHOWN]
    )
    return Section(
        "Hot spots",
        (
            f"{len(result.hot_spots)} files of upstream's are edited; first"
            " those where both sides work most",
        ),
        ("file", "hunks", "lines", f"of upstream's last {RECENT_COMMITS} commits", "patches"),
        rows,
    )
