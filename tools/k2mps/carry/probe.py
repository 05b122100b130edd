"""Finds the first upstream commit that breaks each patch.

The probe bisects the commits from the pin to a newer commit.  Bisection assumes that a broken patch
stays broken.  git needs no worktree to merge a patch into an upstream commit.  Before git merges a
patch, git merges the earlier patches that change the same files.  If an earlier patch conflicts,
the files keep git's conflict markers.  So the later patch conflicts only if it changes lines next
to the earlier conflict.
"""

import bisect
from collections.abc import Sequence

from k2mps.core import errors
from k2mps.core.progress import Reporter, Section
from k2mps.core.project import Project
from k2mps.series import hunks
from k2mps.stack import commits as making
from k2mps.stack import extraction
from k2mps.stack.checkout import Checkout, Commit


def probe(project: Project, checkout: Checkout, end: str, reporter: Reporter = Reporter()) -> dict:
    """Probes all patches from the pin to the upstream commit `end`.

    Args:
      checkout: a clone that has the commit `end`, see branches.py.
    Returns:
      The object that `k2mps probe --json` prints.
    """
    pin = checkout.pinned(project.upstream().pin)
    if not checkout.is_ancestor(pin.commit, end):
        raise errors.K2mpsError(
            f"{end[:12]} is not after the pin",
            why="probe tries the commits from the pin to a later commit",
            next_command="k2mps rebase --onto that commit",
        )
    tip = making.series_tip(project, checkout, pin)
    commits = checkout.commits(f"{pin.commit}..{tip}")
    line = ("rev-list", "--first-parent", "--reverse", f"{pin.commit}..{end}")
    way = (pin.commit, *checkout.objects.text(*line).split())
    prober = _Prober(checkout, pin.commit, commits, way)
    patches = []
    with reporter.task("probing") as update:
        for number, commit in enumerate(commits):
            name = extraction.name_of(commit)
            update(number, len(commits), name)
            patches.append({"name": name, "broken": prober.find(number)})
    steps = [one["broken"]["step"] for one in patches if one["broken"]]
    return {
        "start": _facts(checkout, way[0]),
        "end": _facts(checkout, way[-1]),
        "steps": len(way) - 1,
        # The last commit to which all patches still apply.
        "carries_to": way[min(steps, default=len(way)) - 1],
        "patches": patches,
    }


class _Prober:
    """Merges the patches, which were made for the pin, into upstream commits of `way`."""

    def __init__(self, checkout: Checkout, pin: str, commits: Sequence[Commit], way: Sequence[str]):
        self._checkout = checkout
        self._commits = commits
        self._way = way
        self._trees = {pin: checkout.tree_of(pin), **{one.id: one.tree for one in commits}}
        self._merged: dict[tuple[int, str], tuple[str, Sequence[str]]] = {}
        changes = checkout.changes_of(commits)
        paths = [{change.path for change in changes[one.id]} for one in commits]
        # For each patch, the numbers of the earlier patches that it follows: the patches that
        # change the same files, and recursively the patches that these follow.
        self._follows: list[list[int]] = []
        for number, own in enumerate(paths):
            direct = [other for other in range(number) if paths[other] & own]
            followed = {*direct, *(one for other in direct for one in self._follows[other])}
            self._follows.append(sorted(followed))

    def _conflicts(self, number: int, step: int) -> Sequence[str]:
        """Returns the files that conflict if a patch is merged after the patches that it follows.

        Args:
          number: the patch's number in the series, from 0 on.
          step: the number of the upstream commit in `way`; 0 is the pin.
        """
        commit = self._way[step]
        if commit not in self._trees:
            self._trees[commit] = self._checkout.tree_of(commit)
        tree, conflicts = self._trees[commit], ()
        for one in (*self._follows[number], number):
            key = (one, tree)
            if key not in self._merged:
                picked = making.pick(self._checkout.objects, self._commits[one], tree)
                self._merged[key] = (picked.tree, picked.conflicts)
            tree, conflicts = self._merged[key]
        return conflicts

    def find(self, number: int) -> dict | None:
        """Returns where a patch breaks, or None if it applies to the last commit.

        The result has the upstream commit that breaks the patch; the number of commits from the
        pin to that commit; the files that conflict at that commit; and whether the files that
        conflict at the last commit have all lines that the patch adds.
        """

        def fails(step: int) -> bool:
            return bool(self._conflicts(number, step))

        last = len(self._way) - 1
        if not fails(last):
            return None
        step = bisect.bisect_left(range(last), True, lo=1, key=fails)
        return {
            "commit": _facts(self._checkout, self._way[step]),
            "step": step,
            "paths": list(self._conflicts(number, step)),
            "upstream_has": self._has(number, self._conflicts(number, last)),
        }

    def _has(self, number: int, paths: Sequence[str]) -> bool:
        """Whether the last commit has all lines that a patch adds to the files `paths`.

        White space is ignored.
        """
        diff = ("diff-tree", "-p", "--no-color", "--no-ext-diff", "-U0", "-r")
        patch_commit = self._commits[number]
        ends = [self._trees[patch_commit.parents[0]], self._trees[patch_commit.id]]
        change = self._checkout.objects.bytes(*diff, *ends, "--", *paths)
        for path in paths:
            shown = self._checkout.objects.run("cat-file", "blob", f"{self._way[-1]}:{path}")
            text = b"".join(shown.stdout.split())
            for hunk in hunks.split(change):
                added = b"".join(line[1:] for line in hunk.body if line[:1] == b"+")
                if hunk.path == path and b"".join(added.split()) not in text:
                    return False
        return bool(paths)


def _facts(checkout: Checkout, commit: str) -> dict[str, str]:
    """Returns the id, author, date and subject of an upstream commit."""
    fields = checkout.objects.text("log", "-1", "--format=%H%x02%an%x02%cs%x02%s", commit)
    return dict(zip(("id", "author", "date", "subject"), fields.split("\x02")))


def _shown(commit: dict[str, str]) -> str:
    """Returns one line of text about an upstream commit."""
    return "{id:.12} {date} {author}: {subject}".format_map(commit)


def section(result: dict) -> Section:
    """Returns the result of `probe` as text for people."""
    patches, steps = result["patches"], result["steps"]
    rows = []
    for one in patches:
        broken, row = one["broken"], (one["name"], f"all {steps}", "", "")
        if broken:
            how = "conflicts in " + ", ".join(broken["paths"])
            how += "; upstream has its lines" if broken["upstream_has"] else ""
            row = (one["name"], str(broken["step"]), _shown(broken["commit"]), how)
        rows.append(row)
    whole = sum(one["broken"] is None for one in patches)
    lines = [
        f"{steps} upstream commits, from {_shown(result['start'])}",
        f"to {_shown(result['end'])}",
        f"{whole} of {len(patches)} patches apply all the way",
        f"all patches apply to {result['carries_to'][:12]}",
    ]
    return "Probe", lines, ("patch", "commits", "breaks with", "how"), rows
