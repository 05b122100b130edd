"""The first upstream commit that breaks each patch.

The probe goes from a commit at which the series applies to an older or a newer one.  It bisects,
which supposes that a broken patch stays broken.

The probe tries a patch on top of only those earlier patches that the patch builds on: another patch
that breaks is not to blame.
"""

import bisect
import collections
import functools
import os
from collections.abc import Iterator, Mapping, Sequence

from k2mps.carry.conflict import Culprit, Explainer
from k2mps.core import errors
from k2mps.core.progress import Reporter, Section
from k2mps.core.project import Project
from k2mps.stack import extraction
from k2mps.stack.apply import locked
from k2mps.stack.checkout import Checkout, Commit
from k2mps.stack.commits import commit_series


def probe(
    project: Project, checkout: Checkout, start: str, end: str, reporter: Reporter = Reporter()
) -> dict:
    """Probes all patches from one upstream commit to another; the result, as JSON has it."""
    pinned = project.upstream()
    found = locked(project, pinned)
    with checkout.exclusive():
        checkout.recover()
        tip = commit_series(checkout, pinned.pin, found).tip
        commits = checkout.commits(f"{pinned.pin.commit}..{tip}")
        way, forward = _way(checkout, start, end)
        prober = _Prober(checkout, commits)
        patches = []
        with reporter.task("probing") as task:
            for number, commit in enumerate(commits):
                name = extraction.name_of(commit)
                task.update(number, len(commits), name)
                broken = prober.find(name, way, forward)
                builds_on = prober.builds_on[name]
                patches.append({"name": name, "builds_on": builds_on, "broken": broken})
    return {
        "start": _culprit(checkout, way[0]),
        "end": _culprit(checkout, way[-1]),
        "steps": len(way) - 1,
        "forward": forward,
        "patches": patches,
    }


def needs(checkout: Checkout, commits: Sequence[Commit], name: str) -> tuple[str, ...]:
    """The earlier patches that a patch needs."""
    return _Prober(checkout, commits).builds_on[name]


def _way(checkout: Checkout, start: str, end: str) -> tuple[Sequence[str], bool]:
    """The commits from start to end, with both; and whether end is the newer one."""
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
    return line if forward else line[::-1], forward


class _Prober:
    """Tries patches at commits."""

    def __init__(self, checkout: Checkout, commits: Sequence[Commit]):
        self._checkout = checkout
        self._pin = commits[0].parents[0] if commits else ""
        self._commits = {extraction.name_of(one): one for one in commits}
        self._diffs = {
            name: checkout.diff(one.parents[0], one.id) for name, one in self._commits.items()
        }
        changes = checkout.changes_of(commits)
        self._changes = {name: changes[one.id] for name, one in self._commits.items()}
        self._renames = functools.cache(checkout.renames)
        # The earlier patches without which a patch does not apply at the pin.
        self.builds_on: dict[str, tuple[str, ...]] = {}
        for name in self._commits:
            self.builds_on[name] = self._find_builds_on(name)

    def _find_builds_on(self, name: str) -> tuple[str, ...]:
        order = list(self.builds_on)
        needed: set[str] = set()
        for path in self._conflicts([name], self._pin):
            for other in order:
                if path in self._paths(other):
                    needed |= {other, *self.builds_on[other]}
        for other in reversed(order):
            fewer = sorted(needed - {other}, key=order.index)
            if other in needed and not self._fails([*fewer, name], self._pin):
                needed.remove(other)
        return tuple(sorted(needed, key=order.index))

    def _fails(self, names: Sequence[str], target: str, path: str = "") -> str:
        """The first of these patches that git cannot merge into a commit, or an empty text.

        Args:
          path: the only file of the last patch that counts; all files where empty.
        """
        renames = self._renames(self._pin, target)
        with self._checkout.scratch_index() as index:
            index.bytes("read-tree", target)
            for name in names:
                moved = {old: renames[old] for old in self._paths(name) if old in renames}
                # cherry-pick, too, takes a deletion for done where the file is gone already.
                some = [
                    f"--exclude={change.path}"
                    for change in self._changes[name]
                    if not change.new_id
                    and not index.bytes("ls-files", "--", moved.get(change.path, change.path))
                ]
                if path and name == names[-1]:
                    some.append(f"--include={moved.get(path, path)}")
                diff = _renamed(self._diffs[name], moved)
                if not index.succeeds("apply", "--cached", "--3way", *some, "-", stdin=diff):
                    return name
        return ""

    def _conflicts(self, names: Sequence[str], target: str) -> list[str]:
        """The files in which the last of these patches conflicts; the other patches apply."""
        if not self._fails(names, target):
            return []
        return [path for path in self._paths(names[-1]) if self._fails(names, target, path)]

    def _paths(self, name: str) -> list[str]:
        return [change.path for change in self._changes[name]]

    def find(self, name: str, commits: Sequence[str], forward: bool) -> dict | None:
        """Where a patch breaks; None if it applies all the way.

        The result has the upstream commit that breaks the patch; the number of commits from the
        start to that commit, 0 where the patch does not apply at the start; the earlier patch that
        breaks there and that this patch builds on, if any; and the hunks that conflict.
        """
        names = [*self.builds_on[name], name]
        last = len(commits) - 1

        def fails(at: int) -> bool:
            return bool(self._fails(names, commits[at]))

        if fails(0):
            bad = 0
        elif not fails(last):
            return None
        else:
            bad = bisect.bisect_left(range(last), True, lo=1, key=fails)
        culprit = self._fails(names, commits[bad])
        paths = self._conflicts(names[: names.index(culprit) + 1], commits[bad])
        explainer = Explainer(self._checkout, self._pin, commits[bad])
        return {
            # On the way back, a patch breaks where a commit that it needs is missing.
            "commit": _culprit(self._checkout, commits[bad - (bad > 0 and not forward)]),
            "step": bad,
            "because_of": "" if culprit == name else culprit,
            "places": explainer.explain(self._commits[culprit], paths),
        }


def _renamed(diff: bytes, renames: Mapping[str, str]) -> bytes:
    """A diff whose files have other paths."""
    lines = {}
    for old, new in renames.items():
        for head in ("diff --git a/{0} b/{0}", "--- a/{0}", "+++ b/{0}"):
            lines[os.fsencode(head.format(old))] = os.fsencode(head.format(new))
    return b"\n".join(lines.get(line, line) for line in diff.split(b"\n"))


def _culprit(checkout: Checkout, commit: str) -> Culprit:
    facts = checkout.git.text("log", "-1", "--format=%H%x02%an%x02%cs%x02%s", commit)
    return Culprit(*facts.split("\x02"))


def sections(result: dict) -> Iterator[Section]:
    """For people."""
    patches, steps = result["patches"], result["steps"]
    broken = {one["name"]: one["broken"] for one in patches if one["broken"]}
    lines = [
        f"{steps} upstream commits {'forward' if result['forward'] else 'back'},"
        f" from {result['start']}",
        f"to {result['end']}",
        f"{len(patches) - len(broken)} of {len(patches)} patches apply all the way",
    ]
    rows = []
    for one in patches:
        found = one["broken"]
        told = (str(found["step"]), str(found["commit"]), _how(found)) if found else ()
        rows.append((one["name"], *(told or (f"all {steps}", "", ""))))
    yield "Probe", lines, ("patch", "commits", "breaks with", "how"), rows
    for name, found in broken.items():
        if not found["because_of"]:
            lines = [line for place in found["places"] for line in place.lines()]
            yield f"{name} at {found['commit'].id[:12]}", lines, (), ()


def _how(broken: dict) -> str:
    if broken["because_of"]:
        return f"builds on {broken['because_of']}"
    kinds = collections.Counter(place.kind.value for place in broken["places"])
    files = len({place.path for place in broken["places"]})
    places = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return f"{places}; {files} files" if files > 1 else places
