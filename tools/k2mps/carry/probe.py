"""The first upstream commit that breaks each patch.

The probe goes from a commit at which the series applies to an older or a newer one.  It bisects,
which supposes that a broken patch stays broken.  git merges a patch into a commit without a
worktree.

The probe tries a patch on top of only those earlier patches that the patch builds on: another patch
that breaks is not to blame.
"""

import bisect
from collections.abc import Iterator, Sequence

from k2mps.carry import conflict
from k2mps.carry.conflict import Culprit
from k2mps.core import errors
from k2mps.core.git import quoted
from k2mps.core.progress import Reporter, Section
from k2mps.core.project import Project
from k2mps.stack import extraction, states
from k2mps.stack.checkout import Checkout, Commit
from k2mps.stack.commits import merged_trees, series_tip


def probe(
    project: Project, checkout: Checkout, start: str, end: str, reporter: Reporter = Reporter()
) -> dict:
    """Probes all patches from one upstream commit to another; the result, as JSON has it."""
    pin = project.upstream().pin
    with checkout.exclusive():
        states.settle(checkout)
        tip = series_tip(project, checkout, pin)
        commits = checkout.commits(f"{pin.commit}..{tip}")
        way, forward = _way(checkout, start, end)
        prober = Prober(checkout, pin.commit, commits)
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


def _way(checkout: Checkout, start: str, end: str) -> tuple[Sequence[str], bool]:
    """The commits from start to end, with both; and whether end is the newer one."""
    ids = []
    for name in (start, end):
        commit = checkout.commit_of(name)
        if not commit:
            raise errors.K2mpsError(
                f"{checkout.directory} has no commit {name}",
                next_command=f"git -C {quoted(checkout.directory)} fetch",
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


class Prober:
    """Tries the patches of a series, made for the pin, at other commits."""

    def __init__(self, checkout: Checkout, pin: str, commits: Sequence[Commit]):
        self._checkout = checkout
        self._pin = pin
        self._commits = {extraction.name_of(one): one for one in commits}
        changes = checkout.changes_of(commits)
        self._paths = {
            name: [change.path for change in changes[one.id]] for name, one in self._commits.items()
        }
        self._trees = checkout.trees_of([pin, *(one.id for one in commits)])
        self._merged: dict[tuple[str, str], tuple[str, list[str]]] = {}
        # The tree of the last merge; where that conflicts, with git's markers.
        self._last = ""
        # The earlier patches without which a patch does not apply at the pin.
        self.builds_on: dict[str, tuple[str, ...]] = {}
        for name in self._commits:
            self.builds_on[name] = self._find_builds_on(name)

    def _find_builds_on(self, name: str) -> tuple[str, ...]:
        order = list(self.builds_on)
        needed: set[str] = set()
        for path in self._conflicts([name], self._pin)[1]:
            for other in order:
                if path in self._paths[other]:
                    needed |= {other, *self.builds_on[other]}
        for other in reversed(order):
            fewer = sorted(needed - {other}, key=order.index)
            if other in needed and not self._conflicts([*fewer, name], self._pin)[0]:
                needed.remove(other)
        return tuple(sorted(needed, key=order.index))

    def _conflicts(self, names: Sequence[str], target: str) -> tuple[str, list[str]]:
        """The first of these patches that git cannot merge into a commit, and the files in which
        it conflicts; or an empty text."""
        if target not in self._trees:
            self._trees[target] = self._checkout.tree_of(target)
        tree = self._trees[target]
        for name in names:
            key = (name, tree)
            if key not in self._merged:
                commit = self._commits[name]
                base, theirs = self._trees[commit.parents[0]], self._trees[commit.id]
                self._merged[key] = merged_trees(self._checkout, base, tree, theirs)
            tree, conflicts = self._merged[key]
            self._last = tree
            if conflicts:
                return name, conflicts
        return "", []

    def find(self, name: str, commits: Sequence[str], forward: bool) -> dict | None:
        """Where a patch breaks; None if it applies all the way.

        The result has the upstream commit that breaks the patch; the number of commits from the
        start to that commit, 0 where the patch does not apply at the start; the earlier patch that
        breaks there and that this patch builds on, if any; and the files that conflict.
        """
        names = [*self.builds_on[name], name]
        last = len(commits) - 1

        def fails(at: int) -> bool:
            return bool(self._conflicts(names, commits[at])[0])

        if fails(0):
            bad = 0
        elif not fails(last):
            return None
        else:
            bad = bisect.bisect_left(range(last), True, lo=1, key=fails)
        culprit, paths = self._conflicts(names, commits[bad])
        texts = self._checkout.files(self._last, paths)
        places = [
            conflict.place(
                self._checkout,
                path,
                texts[path].content if path in texts else b"",
                self._pin,
                commits[bad],
            )
            for path in paths
        ]
        return {
            # On the way back, a patch breaks where a commit that it needs is missing.
            "commit": _culprit(self._checkout, commits[bad - (bad > 0 and not forward)]),
            "step": bad,
            "because_of": "" if culprit == name else culprit,
            "places": places,
        }


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
    return "conflicts in " + ", ".join(place.path for place in broken["places"])
