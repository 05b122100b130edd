"""The result of `k2mps probe` for people."""

from __future__ import annotations

import collections

from k2mps.carry.probe import Break, Probe, Probed
from k2mps.cli.console import Section


def sections(result: Probe) -> list[Section]:
    """The result as sections."""
    broken = [one for one in result.patches if one.broken]
    way = "forward" if result.forward else "back"
    whole = len(result.patches) - len(broken)
    found = [
        Section(
            "Probe",
            (
                f"{result.steps} upstream commits {way}, from {result.start}",
                f"to {result.end}",
                f"{whole} of {len(result.patches)} patches apply all the way",
            ),
            ("patch", "commits", "breaks with", "how", "verified"),
            tuple(_row(one, result.steps) for one in result.patches),
        )
    ]
    found += [_details(one) for one in broken if not one.broken.because_of]
    return found


def _row(one: Probed, steps: int) -> tuple[str, ...]:
    if not one.broken:
        return (one.name, f"all {steps}", "", "", "")
    return (
        one.name,
        str(one.broken.step),
        str(one.broken.commit),
        _how(one.broken),
        "yes" if one.broken.verified else "no",
    )


def _how(broken: Break) -> str:
    if broken.because_of:
        return f"builds on {broken.because_of}"
    kinds = collections.Counter(place.kind.value for place in broken.places)
    files = len({place.path for place in broken.places})
    places = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return f"{places}; {files} files" if files > 1 else places


def _details(one: Probed) -> Section:
    lines = [line for place in one.broken.places for line in place.lines()]
    return Section(f"{one.name} at {one.broken.commit.id[:12]}", tuple(lines), preformatted=True)
