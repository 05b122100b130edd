"""The figures of `k2mps report` for people."""

from __future__ import annotations

from k2mps.carry.report import RECENT_COMMITS, Drift, Report
from k2mps.cli.console import Section

# More hot spots than these are no longer hot.
_SHOWN = 10


def sections(result: Report) -> list[Section]:
    """The report as sections."""
    return [_patches(result), _drift(result.drift), _hot_spots(result)]


def _patches(result: Report) -> Section:
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
            f"{len(result.patches)} patches: {result.new_lines} lines in new"
            f" files, {result.upstream_lines} lines in upstream's files,"
            f" against {budget}",
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


def _drift(drift: Drift) -> Section:
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


def _hot_spots(result: Report) -> Section:
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
