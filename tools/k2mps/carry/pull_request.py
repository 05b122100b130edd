"""Makes the commits and the cover letter of a pull request to k2, for one group or all groups.

The commits contain the patches' new files, and lack the trailers that this project uses.  A commit
has the author of its patch.  If that author is the project, or if a whole group becomes one
commit, the user becomes the author of the commit.  The cover letter lists the patches, and the
tests that the patches add.  docs/pull-requests.md has the title and the text of the cover letter
of each group.
"""

import dataclasses
import itertools
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from k2mps.core import errors
from k2mps.core.objects import TREE_MODE, Entry, importable
from k2mps.core.project import Project
from k2mps.series import patch_folder
from k2mps.series.patch_folder import Series
from k2mps.series.patch_text import AUTHOR, Patch
from k2mps.series.series_file import is_fix, is_for_k2, stands_alone
from k2mps.stack.checkout import Checkout, Commit
from k2mps.stack.commits import commit_date, pick
from k2mps.stack.transaction import begin

# k2 at the pin does not build with the torch of upstream.toml without this patch.
_TO_BUILD = "torch-2.13.patch"


@dataclasses.dataclass(frozen=True)
class Submission:
    """A pull request."""

    base: str  # the parent of the first commit
    tip: str  # the last commit
    cover: str  # the cover letter, subject first


def make(
    project: Project,
    checkout: Checkout,
    group: str = "",
    squash: bool = False,
    in_series: bool = False,
) -> Submission:
    """Makes the commits and the cover letter of a pull request; makes no branch.

    Args:
      group: the group to submit, on top of the groups before it; empty for all patches.  A group
        of fixes stands on the pinned commit alone, with only the patch that k2 needs to build.
      squash: whether to make one commit of each group.  k2 squashes a pull request anyway.
      in_series: whether a group of fixes, too, stands on top of the groups before it.
    """
    with begin(project, checkout) as transaction:
        series = patch_folder.load(project.patches)
        alone = is_fix(group) and not in_series
        chosen = _chosen(series, group, alone)
        pin = transaction.pin
        commits = checkout.commits(f"{pin.commit}..{transaction.tip}")
        pairs = _with_needed(list(zip(commits, series.patches)), chosen, alone)
        # The commits have the date of the pinned commit, not the current date.  So the commits of
        # earlier groups get the same ids in each pull request.
        sender = f"{_sender(checkout)} {commit_date(checkout, pin.commit)}"
        base = pin.commit
        made: list[bytes] = []  # commits on top of `base`, in the format that git imports
        tree = checkout.tree_of(pin.commit)
        for part in _parts(pairs, series, squash):
            commit, last = part[-1]
            tree = _alone(checkout, tree, part) if alone else commit.tree
            if part[0][1] == chosen[0] and made:
                # The commits of earlier groups are below the pull request, and not part of it.
                base = checkout.objects.import_commits(made)
                made = []
            author = f"{commit.author} {commit.when}" if last.date and not squash else sender
            # Of the group of the patch to build, a group that stands alone has only that patch.
            is_whole_group = squash and (not alone or last in chosen)
            patches = [patch for _, patch in part]
            message = _squashed(project, series, patches) if is_whole_group else _message(last)
            parent = "" if made else base
            entries = {"": Entry(TREE_MODE, tree)}
            made.append(importable(parent, entries, message, author, sender))
        tip = checkout.objects.import_commits(made)
    return Submission(base, tip, _cover(project, chosen, group))


def _chosen(series: Series, group: str, alone: bool) -> list[Patch]:
    """Returns the patches of a group, or all patches if `group` is empty.

    Args:
      alone: whether to leave out the patches that need the groups before, see `stands_alone`.
    """
    patches = [
        patch for patch in series.patches if not group or series.groups.get(patch.name) == group
    ]
    if not patches:
        raise errors.K2mpsError(
            f"patches/series has no group {group}",
            why="a group begins with a comment like '# device: text'",
            next_command="name a group of patches/series",
        )
    return [patch for patch in patches if not alone or stands_alone(patch.name)]


def _with_needed(
    pairs: Sequence[tuple[Commit, Patch]], chosen: Sequence[Patch], alone: bool
) -> list[tuple[Commit, Patch]]:
    """Returns the commits and patches of the chosen patches, and of those below them.

    Args:
      pairs: the commits and patches of the series.
      alone: whether only the patch that k2 needs to build is below them, instead of all earlier
        patches.
    """
    end = [patch for _, patch in pairs].index(chosen[-1]) + 1
    return [
        (commit, patch)
        for commit, patch in pairs[:end]
        if not alone or patch in chosen or patch.name == _TO_BUILD
    ]


def _parts(
    pairs: Sequence[tuple[Commit, Patch]], series: Series, squash: bool
) -> list[list[tuple[Commit, Patch]]]:
    """Returns the commits and patches of which each commit of the pull request is made.

    Args:
      squash: whether a commit is made of each group, instead of each patch.
    """
    if not squash:
        return [[pair] for pair in pairs]

    def group_of(pair: tuple[Commit, Patch]) -> str:
        _, patch = pair
        return series.groups.get(patch.name, "")

    return [list(group) for _, group in itertools.groupby(pairs, group_of)]


def _alone(checkout: Checkout, tree: str, pairs: Sequence[tuple[Commit, Patch]]) -> str:
    """Returns the tree after the patches were applied to a tree without the rest of the series."""
    for commit, patch in pairs:
        picked = pick(checkout.objects, commit, tree)
        if picked.conflicts:
            raise errors.K2mpsError(
                f"patches/{patch.name} does not apply to k2 alone",
                why=f"earlier patches of other groups change the same lines of"
                f" {errors.some(picked.conflicts)}, or lines next to them",
                next_command="move the lines away from those, or into a patch whose name ends in"
                " -at-head.patch",
            )
        tree = picked.tree
    return tree


def _message(patch: Patch) -> str:
    """Returns the message of a commit for one patch, without this project's trailers."""
    return _paragraphs(patch.subject, patch.body)


def _squashed(project: Project, series: Series, patches: Sequence[Patch]) -> str:
    """Returns the message of one commit for several patches of a group."""
    title, text = _introduction(project, series.groups.get(patches[0].name, ""))
    parts = [f"* {_message(patch)}" for patch in patches]
    return _paragraphs(title, text.partition("\n### ")[0].strip(), *parts)


def _paragraphs(*texts: str) -> str:
    """Joins texts as paragraphs; empty texts are left out."""
    return "\n\n".join(filter(None, texts))


def _sender(checkout: Checkout) -> str:
    """Returns the user of git's configuration, "NAME <EMAIL>"; raises an error if there is none."""
    name, email = checkout.user()
    user = f"{name} <{email}>"
    if not email or not AUTHOR.fullmatch(user):
        setting = "user.email" if name else "user.name"
        raise errors.K2mpsError(
            "git does not know who you are",
            why="a pull request names its author",
            next_command=f"git config --global {setting} ...",
        )
    return user


def _cover(project: Project, chosen: Sequence[Patch], group: str) -> str:
    """Returns the cover letter of a pull request.

    Args:
      chosen: the patches of the pull request.
      group: their group; empty for the whole series.
    """
    title, text = _introduction(project, group)
    _, common = section_of(project, "every group")
    patches = "\n".join(f"* {patch.subject}" for patch in chosen)
    return _paragraphs(title, patches, text, _test_plan(chosen), common) + "\n"


def _test_plan(chosen: Sequence[Patch]) -> str:
    """Returns the part of the cover letter that has the commands to run the patches' new tests.

    The text is empty if the patches add no tests.
    """
    added = [PurePosixPath(path) for patch in chosen for path in patch.new_files]
    tests = [path for path in added if path.stem.endswith("_test")]
    in_python = [str(path) for path in tests if path.suffix == ".py"]
    commands = []
    if in_python:
        commands.append(" \\\n  ".join(["python3 -m pytest", *in_python]))
    commands += [
        f"ctest --test-dir build_release -R {path.stem}" for path in tests if path.suffix != ".py"
    ]
    if not commands:
        return ""
    return "\n".join(["### Test plan", "", "```", *commands, "```"])


def _introduction(project: Project, group: str) -> tuple[str, str]:
    """Returns the title and the text of a cover letter.

    Args:
      group: empty for the whole series.  A group that is not for k2 has no section, and gets the
        title of the whole series.
    """
    if group and is_for_k2(group):
        return section_of(project, group)
    return "An Apple MPS backend for k2", ""


def section_of(project: Project, group: str) -> tuple[str, str]:
    """Returns the title and the text of a group's section in docs/pull-requests.md.

    Args:
      group: the name of a group; or "every group", whose text is part of each cover letter.
    Raises:
      K2mpsError: the page has no such section.
    """
    page = project.root / "docs/pull-requests.md"
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    match = re.search(rf"^## {re.escape(group)}: (.*)\n\n((?:(?!## ).*\n)*)", text, re.MULTILINE)
    if not match:
        raise errors.K2mpsError(
            f"docs/pull-requests.md has no section for {group}",
            why="the cover letter of a pull request is made of these sections",
            next_command=f"write a section that begins with '## {group}: TITLE'",
        )
    return match[1], match[2].strip()
