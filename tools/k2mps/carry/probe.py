"""The first upstream commit that breaks each patch.

The probe goes from a commit at which the series applies to an older or a newer one.  It bisects,
which supposes that a broken patch stays broken.  git merges patches into a commit without a
worktree, each on top of those before it that change the same files.  A conflict leaves git's
markers there, so that a later patch conflicts only if it changes lines beside the broken ones.
"""

import bisect
from collections.abc import Iterator, Sequence

from k2mps.core import errors
from k2mps.core.git import quoted
from k2mps.core.progress import Reporter, Section
from k2mps.core.project import Project
from k2mps.stack import extraction
from k2mps.stack.checkout import Checkout, Commit
from k2mps.stack.commits import merged_trees, series_tip


def probe(
    project: Project, checkout: Checkout, start: str, end: str, reporter: Reporter = Reporter()
) -> dict:
    """Probes all patches from one upstream commit to another; the result, as JSON has it."""
    pin = project.upstream().pin
    with checkout.exclusive():
        tip = series_tip(project, checkout, pin)
        commits = checkout.commits(f"{pin.commit}..{tip}")
        way, forward = _way(checkout, start, end)
        prober = _Prober(checkout, pin.commit, commits, way)
        patches = []
        with reporter.task("probing") as task:
            for number, commit in enumerate(commits):
                name = extraction.name_of(commit)
                task.update(number, len(commits), name)
                patches.append({"name": name, "broken": prober.find(number, forward)})
    steps = [one["broken"]["step"] for one in patches if one["broken"]]
    return {
        "start": _facts(checkout, way[0]),
        "end": _facts(checkout, way[-1]),
        "steps": len(way) - 1,
        "forward": forward,
        # The last commit on the way to which all patches apply; None where that is none.
        "carries_to": way[min(steps, default=len(way)) - 1] if 0 not in steps else None,
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


class _Prober:
    """Tries the patches of a series, made for the pin, at the commits of a way."""

    def __init__(self, checkout: Checkout, pin: str, commits: Sequence[Commit], way: Sequence[str]):
        self._checkout = checkout
        self._commits = commits
        self._way = way
        self._trees = checkout.trees_of([pin, *(one.id for one in commits)])
        self._merged: dict[tuple[int, str], tuple[str, list[str]]] = {}
        changes = checkout.changes_of(commits)
        paths = [{change.path for change in changes[one.id]} for one in commits]
        # The earlier patches that change the same files, and those that these follow.
        self._follows: list[list[int]] = []
        for number, own in enumerate(paths):
            direct = [other for other in range(number) if paths[other] & own]
            found = {*direct, *(one for other in direct for one in self._follows[other])}
            self._follows.append(sorted(found))

    def _conflicts(self, number: int, step: int) -> dict[int, list[str]]:
        """The files in which a patch, and those that it follows, conflict at a step, by patch."""
        commit = self._way[step]
        if commit not in self._trees:
            self._trees[commit] = self._checkout.tree_of(commit)
        tree, found = self._trees[commit], {}
        for one in (*self._follows[number], number):
            key = (one, tree)
            if key not in self._merged:
                made = self._commits[one]
                base, theirs = self._trees[made.parents[0]], self._trees[made.id]
                self._merged[key] = merged_trees(self._checkout, base, tree, theirs)
            tree, found[one] = self._merged[key]
        return found

    def find(self, number: int, forward: bool) -> dict | None:
        """Where a patch breaks; None if it applies all the way.

        The result has the upstream commit that breaks the patch; the number of commits from the
        start to that commit, 0 where the patch does not apply at the start; the files that
        conflict; and an earlier patch that conflicts in one of these there, if any.
        """

        def fails(step: int) -> bool:
            return bool(self._conflicts(number, step)[number])

        last = len(self._way) - 1
        if not fails(last) and not fails(0):
            return None
        bad = 0 if fails(0) else bisect.bisect_left(range(last), True, lo=1, key=fails)
        found = self._conflicts(number, bad)
        paths = found.pop(number)
        others = (one for one, theirs in found.items() if set(theirs) & set(paths))
        other = next(others, None)
        return {
            # On the way back, a patch breaks where a commit that it needs is missing.
            "commit": _facts(self._checkout, self._way[bad - (bad > 0 and not forward)]),
            "step": bad,
            "because_of": "" if other is None else extraction.name_of(self._commits[other]),
            "paths": paths,
        }


def _facts(checkout: Checkout, commit: str) -> dict[str, str]:
    """An upstream commit."""
    facts = checkout.git.text("log", "-1", "--format=%H%x02%an%x02%cs%x02%s", commit)
    return dict(zip(("id", "author", "date", "subject"), facts.split("\x02")))


def told(commit: dict[str, str]) -> str:
    """An upstream commit, for people."""
    return "{id:.12} {date} {author}: {subject}".format_map(commit)


def sections(result: dict) -> Iterator[Section]:
    """For people."""
    patches, steps = result["patches"], result["steps"]
    rows = []
    for one in patches:
        broken, row = one["broken"], (one["name"], f"all {steps}", "", "")
        if broken:
            how = "conflicts in " + ", ".join(broken["paths"])
            how += f", as {broken['because_of']} does" if broken["because_of"] else ""
            row = (one["name"], str(broken["step"]), told(broken["commit"]), how)
        rows.append(row)
    whole = sum(one["broken"] is None for one in patches)
    lines = [
        f"{steps} upstream commits {'forward' if result['forward'] else 'back'},"
        f" from {told(result['start'])}",
        f"to {told(result['end'])}",
        f"{whole} of {len(patches)} patches apply all the way",
    ]
    if result["carries_to"]:
        lines.append(f"all patches apply to {result['carries_to'][:12]}")
    yield "Probe", lines, ("patch", "commits", "breaks with", "how"), rows
