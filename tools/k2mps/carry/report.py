"""`k2mps report`: counts the lines of each patch and group, and compares them with the budget."""

from pathlib import PurePosixPath

from k2mps.core.pins import Upstream
from k2mps.core.progress import Section
from k2mps.core.project import Project
from k2mps.series import hunks, patch_folder, patch_text

_COUNTS = ("new_lines", "new_files", "tests", "added", "removed")


def report(project: Project, upstream: Upstream) -> dict:
    """Returns the object that `k2mps report --json` prints."""
    series = patch_folder.load(project.patches)
    figures = [_figures(series, patch) for patch in series.patches]
    return {
        "patches": figures,
        "new_lines": sum(one["new_lines"] for one in figures),
        "upstream_lines": sum(one["added"] + one["removed"] for one in figures),
        "budget": upstream.budget,
    }


def _figures(series: patch_folder.Series, patch: patch_text.Patch) -> dict:
    added, removed = hunks.count(patch.diff, without=series.files)
    return {
        "name": patch.name,
        "group": series.groups.get(patch.name, ""),
        "subject": patch.subject,
        "status": patch.status,
        # How many new files, new tests, and lines in new files the patch has.
        "new_files": len(patch.new_files),
        "tests": sum(PurePosixPath(one).stem.endswith("_test") for one in patch.new_files),
        "new_lines": sum(len(series.files[one].content.splitlines()) for one in patch.new_files),
        # How many of upstream's files the patch edits, and how many lines it adds to these files or
        # removes from them.
        "files": sum(path not in series.files for path in patch.edited),
        "added": added,
        "removed": removed,
    }


def section(result: dict) -> Section:
    """Returns the report as text for people."""
    patches, budget = result["patches"], result["budget"]
    left = "no budget"
    if budget is not None:
        left = f"a budget of {budget} ({budget - result['upstream_lines']} left)"
    lines = [
        f"{len(patches)} patches: {result['new_lines']} lines in new files,"
        f" {result['upstream_lines']} lines in upstream's files, against {left}"
    ]
    for group in dict.fromkeys(one["group"] for one in patches if one["group"]):
        own = [one for one in patches if one["group"] == group]
        total = {key: sum(one[key] for one in own) for key in _COUNTS}
        lines.append(
            f"{group}: {len(own)} patches; {total['new_lines']} lines in {total['new_files']} new"
            f" files, {total['tests']} of them tests; +{total['added']} -{total['removed']} lines"
            " in upstream's files"
        )
    head = ("group", "patch", "lines in new files", "in upstream's", "files", "status")
    rows = [
        [
            one["group"],
            one["name"],
            str(one["new_lines"]),
            f"+{one['added']} -{one['removed']}",
            str(one["files"]),
            one["status"],
        ]
        for one in patches
    ]
    return "Patches", lines, head, rows
