"""Figures of the series: lines of each patch, the budget, the upstream commits since the pin, and
the files where conflicts are likely."""

import collections
import datetime
import os
from collections.abc import Iterator

from k2mps.core import errors
from k2mps.core.pins import Pin, Upstream
from k2mps.core.progress import Section
from k2mps.core.project import Project
from k2mps.series import hunks, patch_folder, patch_text
from k2mps.stack.checkout import Checkout
from k2mps.stack.clone import fetch

# The checkout's ref for upstream's default branch.
TIP_REF = "refs/k2mps/upstream"

# The number of commits before the pin in which the changes of a file count.
RECENT_COMMITS = 200

# The number of hot spots that are shown.
_SHOWN = 10


def report(
    project: Project, upstream: Upstream, checkout: Checkout | None, offline: bool = False
) -> dict:
    """Gathers the figures, as JSON has them; the checkout, if any, has upstream's history."""
    found = patch_folder.load(project.patches)
    figures = [_figures(found, patch) for patch in found.patches]
    if checkout is not None and not checkout.has(upstream.pin.commit):
        checkout = None
    return {
        "patches": figures,
        "new_lines": sum(one["new_lines"] for one in figures),
        "upstream_lines": sum(one["added"] + one["removed"] for one in figures),
        "budget": upstream.budget,
        "drift": _drift(upstream.pin, checkout, offline),
        "hot_spots": _hot_spots(found, upstream.pin, checkout),
    }


def _figures(found: patch_folder.Series, patch: patch_text.Patch) -> dict:
    added, removed = hunks.count(patch.diff, without=found.files)
    return {
        "name": patch.name,
        "group": found.groups.get(patch.name, ""),
        "subject": patch.subject,
        "status": patch.status,
        # Its files under patches/files, and their lines.
        "new_files": len(patch.new_files),
        "new_lines": found.new_lines(patch),
        # The upstream files that it edits, and the lines that it adds and removes there.
        "files": sum(edit.path not in found.files for edit in patch.edits),
        "added": added,
        "removed": removed,
    }


def fetch_tip(pin: Pin, checkout: Checkout) -> str:
    """Fetches upstream's default branch; the id of its last commit."""
    options = "--no-write-fetch-head"
    fetch(checkout, "asking upstream", pin.url, f"+HEAD:{TIP_REF}", options=options)
    return checkout.git.text("rev-parse", TIP_REF)


def _drift(pin: Pin, checkout: Checkout | None, offline: bool) -> dict:
    """How far the pin is behind upstream."""
    drift = {
        "version": pin.version,
        "commit": pin.commit,
        # The date of the pinned commit, and the days since.
        "date": None,
        "age_days": None,
        # The last commit of upstream's default branch, as far as known here, and the number of
        # commits from the pin to it.
        "tip": None,
        "behind": None,
        # Why `tip` and `behind` are missing or may be old; empty where upstream has just answered.
        "unknown": "",
    }
    if checkout is None:
        return {**drift, "unknown": "no checkout has the pin; k2mps checkout makes one"}
    if offline:
        drift["unknown"] = "upstream was not asked"
    else:
        try:
            fetch_tip(pin, checkout)
        except errors.UnreachableError as error:
            drift["unknown"] = f"upstream cannot be reached: {error.what}"
    seconds = int(checkout.git.text("log", "-1", "--format=%ct", pin.commit))
    date = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    age = datetime.datetime.now(datetime.timezone.utc) - date
    drift.update(date=date.date().isoformat(), age_days=age.days, tip=checkout.commit_of(TIP_REF))
    if drift["tip"]:
        range_ = f"{pin.commit}..{drift['tip']}"
        drift["behind"] = int(checkout.git.text("rev-list", "--count", range_))
    return drift


def _hot_spots(found: patch_folder.Series, pin: Pin, checkout: Checkout | None) -> list[dict]:
    """The upstream files that patches edit; files that both sides change most come first."""
    spots: dict[str, dict] = {}
    for patch in found.patches:
        for hunk in patch.hunks:
            if hunk.path in found.files:
                continue
            empty = {"path": hunk.path, "patches": [], "hunks": 0, "lines": 0, "commits": None}
            spot = spots.setdefault(hunk.path, empty)
            if patch.name not in spot["patches"]:
                spot["patches"].append(patch.name)
            spot["hunks"] += 1
            spot["lines"] += len(hunk.changes(b"+")) + len(hunk.changes(b"-"))
    if checkout is not None:
        options = "log -z --format= --name-only --first-parent --diff-merges=first-parent"
        output = checkout.git.bytes(*options.split(), f"--max-count={RECENT_COMMITS}", pin.commit)
        commits = collections.Counter(map(os.fsdecode, output.split(b"\0")))
        for path, spot in spots.items():
            spot["commits"] = commits[path]
    # A file that only one side changes does not conflict.
    return sorted(
        spots.values(),
        key=lambda spot: (-spot["hunks"] * (spot["commits"] or 0), -spot["lines"], spot["path"]),
    )


def sections(result: dict) -> Iterator[Section]:
    """For people."""
    patches, budget, drift = result["patches"], result["budget"], result["drift"]
    left = "no budget"
    if budget is not None:
        left = f"a budget of {budget} ({budget - result['upstream_lines']} left)"
    lines = [
        f"{len(patches)} patches: {result['new_lines']} lines in new files,"
        f" {result['upstream_lines']} lines in upstream's files, against {left}"
    ]
    for group in dict.fromkeys(one["group"] for one in patches if one["group"]):
        own = [one for one in patches if one["group"] == group]
        lines.append(
            f"{group}: {len(own)} patches, {sum(one['new_lines'] for one in own)} lines in new"
            f" files, {sum(one['added'] + one['removed'] for one in own)} in upstream's"
        )
    head = ("group", "patch", "lines in new files", "in upstream's", "files", "status")
    form = "{group}|{name}|{new_lines}|+{added} -{removed}|{files}|{status}"
    yield "Patches", lines, head, [form.format_map(one).split("|", 5) for one in patches]
    lines = [f"the pin is k2 {drift['version']}, {drift['commit'][:12]}"]
    if drift["date"]:
        lines[0] += f" of {drift['date']}, {drift['age_days']} days ago"
    if drift["tip"]:
        when = ", as it was when last asked" if drift["unknown"] else ""
        lines.append(
            f"{drift['behind']} commits behind upstream's default branch"
            f" ({drift['tip'][:12]}{when})"
        )
    if drift["unknown"]:
        lines.append(f"how far behind it is now is unknown: {drift['unknown']}")
    yield "Drift", lines, (), ()
    head = ("file", "hunks", "lines", f"of upstream's last {RECENT_COMMITS} commits", "patches")
    rows = [
        (
            spot["path"],
            str(spot["hunks"]),
            str(spot["lines"]),
            "" if spot["commits"] is None else str(spot["commits"]),
            ", ".join(name.removesuffix(".patch") for name in spot["patches"]),
        )
        for spot in result["hot_spots"][:_SHOWN]
    ]
    edited = f"{len(result['hot_spots'])} files of upstream's are edited"
    yield "Hot spots", [f"{edited}; first those where both sides work most"], head, rows
