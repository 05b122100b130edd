"""Figures of the series: lines of each patch, the budget, upstream's commits since the pin."""

import datetime
from collections.abc import Iterator

from k2mps.carry import branches
from k2mps.core import errors
from k2mps.core.pins import Pin, Upstream
from k2mps.core.progress import Section
from k2mps.core.project import Project
from k2mps.series import hunks, patch_folder, patch_text
from k2mps.stack.checkout import Checkout


def report(
    project: Project, upstream: Upstream, checkout: Checkout | None, offline: bool = False
) -> dict:
    """Gathers the figures, as JSON has them; the checkout, if any, has upstream's history."""
    found = patch_folder.load(project.patches)
    figures = [_figures(found, patch) for patch in found.patches]
    if checkout is not None and not checkout.commit_of(upstream.pin.commit):
        checkout = None
    return {
        "patches": figures,
        "new_lines": sum(one["new_lines"] for one in figures),
        "upstream_lines": sum(one["added"] + one["removed"] for one in figures),
        "budget": upstream.budget,
        "drift": _drift(upstream.pin, checkout, offline),
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
        "files": sum(path not in found.files for path in patch.edited),
        "added": added,
        "removed": removed,
    }


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
            branches.fetch_all(pin, checkout)
        except errors.UnreachableError as error:
            drift["unknown"] = f"{error.what}: {error.why}"
    seconds = int(checkout.git.text("log", "-1", "--format=%ct", pin.commit))
    date = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    age = datetime.datetime.now(datetime.timezone.utc) - date
    drift.update(
        date=date.date().isoformat(), age_days=age.days, tip=checkout.commit_of(branches.TIP_REF)
    )
    if drift["tip"]:
        range_ = f"{pin.commit}..{drift['tip']}"
        drift["behind"] = int(checkout.git.text("rev-list", "--count", range_))
    return drift


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
