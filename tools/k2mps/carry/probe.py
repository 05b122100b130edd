"""The first upstream commit that breaks each patch.

The probe goes from a commit at which the series applies to an older or a newer
one.  It bisects, which supposes that a broken patch stays broken.  Then it checks
the result with git: git must apply the patch to the commit before, and must fail
at the commit.

The probe tries a patch on top of the earlier patches that it builds on, and of no
others, so that it blames the patch that breaks.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import re
from collections.abc import Mapping, Sequence

from k2mps.carry.conflict import Culprit, Explainer, Place
from k2mps.carry.merging import Merger
from k2mps.core import errors, objects
from k2mps.core.progress import Reporter, Section
from k2mps.core.project import Project
from k2mps.series import patch_folder
from k2mps.stack import extraction
from k2mps.stack.apply import locked
from k2mps.stack.checkout import Change, Checkout, Commit
from k2mps.stack.commits import commit_series


@dataclasses.dataclass(frozen=True)
class Break:
    """Where a patch breaks."""

    commit: Culprit  # the upstream commit that breaks it
    step: int  # the number of commits from the start; 0 where the patch does not apply at the start
    verified: bool  # whether git agrees about the commit and the one before it
    # The earlier patch that breaks there and that this patch builds on; empty where this
    # patch breaks.
    because_of: str
    places: tuple[Place, ...]  # the hunks that conflict


@dataclasses.dataclass(frozen=True)
class Probed:
    """One patch."""

    name: str
    builds_on: tuple[str, ...]  # the earlier patches that it needs
    broken: Break | None  # where the patch breaks, or None if it applies all the way


@dataclasses.dataclass(frozen=True)
class Probe:
    """The result."""

    # start, end: the first and the last upstream commit
    start: Culprit
    end: Culprit
    steps: int  # the number of commits between them, the end included
    forward: bool  # whether the end is newer
    patches: tuple[Probed, ...]


def probe(
    project: Project, checkout: Checkout, start: str, end: str, reporter: Reporter = Reporter()
) -> Probe:
    """Probes all patches from one upstream commit to another."""
    pinned = project.upstream()
    found = locked(project, pinned)
    with checkout.exclusive():
        checkout.recover()
        tip = commit_series(checkout, pinned.pin, found).tip
        commits = checkout.commits(f"{pinned.pin.commit}..{tip}")
        way = _Way.between(checkout, start, end)
        prober = _Prober(checkout, pinned.pin.commit, commits, way)
        patches = []
        with reporter.task("probing") as task:
            for number, commit in enumerate(commits):
                name = extraction.name_of(commit)
                task.update(number, len(commits), name)
                patches.append(prober.probe(commit, found))
    return Probe(
        _culprit(checkout, way.commits[0]),
        _culprit(checkout, way.commits[-1]),
        len(way.commits) - 1,
        way.forward,
        tuple(patches),
    )


def needs(checkout: Checkout, commits: Sequence[Commit], name: str) -> tuple[str, ...]:
    """The earlier patches that a patch needs."""
    pin = commits[0].parents[0]
    prober = _Prober(checkout, pin, commits, _Way((pin,), True))
    return prober.builds_on(name)


@dataclasses.dataclass(frozen=True)
class _Way:
    """The commits from start to end, both included."""

    commits: tuple[str, ...]
    forward: bool

    @staticmethod
    def between(checkout: Checkout, start: str, end: str) -> _Way:
        ids = []
        for name in (start, end):
            commit = checkout.commit_of(name)
            if not commit:
                raise errors.K2mpsError(
                    f"{checkout.directory} has no commit {name}",
                    next_command=f"git -C {checkout.directory} fetch",
                )
            ids.append(commit)
        first, last = ids
        forward = checkout.is_ancestor(first, last)
        if not forward and not checkout.is_ancestor(last, first):
            raise errors.K2mpsError(
                f"neither of {start} and {end} is an ancestor of the other",
                why="probe follows one line of commits",
                next_command="probe to their common ancestor, then from there on",
            )
        old, new = (first, last) if forward else (last, first)
        output = checkout.git.text("rev-list", "--first-parent", "--reverse", f"{old}..{new}")
        line = (old, *output.split())
        return _Way(line if forward else line[::-1], forward)


class _Prober:
    """Tries patches at commits."""

    def __init__(self, checkout: Checkout, pin: str, commits: Sequence[Commit], way: _Way):
        self._checkout = checkout
        self._merger = Merger(checkout)
        self._pin = pin
        self._way = way
        self._commits = {extraction.name_of(one): one for one in commits}
        self._changes: dict[str, Sequence[Change]] = {}
        self._builds_on: dict[str, tuple[str, ...]] = {}
        changes = checkout.changes_of(commits)
        for name, commit in self._commits.items():
            self._changes[name] = changes[commit.id]
            self._builds_on[name] = self._find_builds_on(name)

    def probe(self, commit: Commit, found: patch_folder.Series) -> Probed:
        name = extraction.name_of(commit)
        return Probed(name, self._builds_on[name], self._break(name, found))

    def builds_on(self, name: str) -> tuple[str, ...]:
        return self._builds_on[name]

    def _find_builds_on(self, name: str) -> tuple[str, ...]:
        """The earlier patches without which a patch does not apply at the pin."""
        order = list(self._changes)
        needed: set[str] = set()
        for path in self._try([name], self._pin).get(name, []):
            for other in order:
                if other != name and path in (change.path for change in self._changes[other]):
                    needed |= {other, *self._builds_on[other]}
        for other in reversed(order):
            fewer = sorted(needed - {other}, key=order.index)
            if other in needed and not self._try([*fewer, name], self._pin):
                needed.remove(other)
        return tuple(sorted(needed, key=order.index))

    def _try(self, names: Sequence[str], target: str) -> dict[str, list[str]]:
        """Picks patches in order; the paths that conflict, by patch."""
        paths = {change.path for name in names for change in self._changes[name]}
        files = self._merger.blobs(target, sorted(paths))
        renames: dict[str, str] = {}
        if len(files) < len(paths):
            renames = self._merger.renames(self._pin, target)
            there = [renames[path] for path in paths if path in renames]
            if there:
                files.update(self._merger.blobs(target, there))
        result = {}
        for name in names:
            conflicts = self._merger.pick(self._changes[name], files, renames)
            if conflicts:
                result[name] = conflicts
        return result

    def _conflicts(self, name: str, step: int) -> dict[str, list[str]]:
        names = [*self._builds_on[name], name]
        return self._try(names, self._way.commits[step])

    def _break(self, name: str, found: patch_folder.Series) -> Break | None:
        good, bad = 0, len(self._way.commits) - 1
        if self._conflicts(name, good):
            good, bad = -1, 0
        elif not self._conflicts(name, bad):
            return None
        while bad - good > 1:
            middle = (good + bad) // 2
            if self._conflicts(name, middle):
                bad = middle
            else:
                good = middle
        conflicts = self._conflicts(name, bad)
        verified = not self._git_applies(name, bad, found) and (
            good < 0 or self._git_applies(name, good, found)
        )
        culprit = next(iter(conflicts))
        explainer = Explainer(self._checkout, self._merger, self._pin, self._way.commits[bad])
        return Break(
            _culprit(self._checkout, self._breaker(bad)),
            bad,
            verified,
            "" if culprit == name else culprit,
            tuple(explainer.explain(self._commits[culprit], conflicts[culprit])),
        )

    def _breaker(self, step: int) -> str:
        """The upstream commit between a step and the step before."""
        if self._way.forward or step == 0:
            return self._way.commits[step]
        # On the way back, a patch breaks where a commit that it needs is missing.
        return self._way.commits[step - 1]

    def _git_applies(self, name: str, step: int, found: patch_folder.Series) -> bool:
        """Whether git applies a patch and those it builds on, by 3-way merges."""
        target = self._way.commits[step]
        renames = self._merger.renames(self._pin, target)
        patches = {patch.name: patch for patch in found.patches}
        with self._checkout.scratch_index() as index:
            index.bytes("read-tree", target)
            for one in (*self._builds_on[name], name):
                patch = patches[one]
                paths = [edit.path for edit in patch.edits]
                there = self._merger.blobs(target, paths)
                gone = {
                    path: renames[path] for path in paths if path not in there and path in renames
                }
                if patch.diff and not index.succeeds(
                    "apply", "--cached", "--3way", "-", stdin=_renamed(patch.diff, gone)
                ):
                    return False
                if self._merger.blobs(target, patch.new_files):
                    return False
                # A patch of a later group may edit them.
                files = {path: found.files[path] for path in patch.new_files}
                lines = "".join(
                    f"{file.mode} {objects.blob_id(file.content)}\t{path}\0"
                    for path, file in files.items()
                )
                index.bytes("update-index", "-z", "--index-info", stdin=os.fsencode(lines))
        return True


def _renamed(diff: bytes, renames: Mapping[str, str]) -> bytes:
    """A diff whose files have other paths."""
    for old, new in renames.items():
        for head in ("diff --git a/{0} b/{0}", "--- a/{0}", "+++ b/{0}"):
            diff = re.sub(
                rb"^" + re.escape(os.fsencode(head.format(old))) + rb"$",
                lambda match: os.fsencode(head.format(new)),
                diff,
                flags=re.MULTILINE,
            )
    return diff


def _culprit(checkout: Checkout, commit: str) -> Culprit:
    facts = checkout.git.text("log", "-1", "--format=%H%x02%an%x02%cs%x02%s", commit)
    return Culprit(*facts.split("\x02"))


def sections(result: Probe) -> list[Section]:
    """For people."""
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
