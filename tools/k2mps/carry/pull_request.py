"""The series as a pull request to k2: plain commits without this project's marks.

The commits contain the new files and have no trailers.  The author of a patch that names none is
the user.  The cover letter lists the patches; for a group it has the title and the text of
docs/pull-requests.md, which says what ran where.
"""

import dataclasses
import re
from collections.abc import Sequence

from k2mps.core import errors
from k2mps.core.project import Project
from k2mps.series import hunks, patch_folder
from k2mps.series.patch_text import Patch
from k2mps.stack.checkout import Checkout
from k2mps.stack.commits import commit_date, merged, series_tip


@dataclasses.dataclass(frozen=True)
class Submission:
    """A pull request."""

    base: str  # the commit before the first one
    tip: str  # the last commit
    cover: str  # the cover letter, subject first


def make(
    project: Project, checkout: Checkout, names: Sequence[str] = (), group: str = ""
) -> Submission:
    """Makes the commits; no ref names them yet.

    Args:
      names: the patches to submit; all where empty.
      group: the group to submit, on top of the groups before it; `names` is empty.
    """
    pinned = project.upstream()
    found = patch_folder.load(project.patches)
    below: tuple[Patch, ...] = ()
    if group:
        chosen = tuple(patch for patch in found.patches if found.groups.get(patch.name) == group)
        if not chosen:
            raise errors.K2mpsError(
                f"patches/series has no group {group}",
                why="a group begins with a comment like '# device: text'",
                next_command="name one of those in patches/series",
            )
        below = found.patches[: found.patches.index(chosen[0])]
    else:
        wanted = [found.named(name) for name in names] or found.patches
        chosen = tuple(patch for patch in found.patches if patch in wanted)
    with checkout.exclusive():
        last = series_tip(project, checkout, pinned.pin, found)
        commits = checkout.commits(f"{pinned.pin.commit}..{last}")
        # With the pin's date, the commits of earlier groups have the same ids.
        sender = f"{_sender(checkout)} {commit_date(checkout, pinned.pin.commit)}"
        base = tip = pinned.pin.commit
        for commit, patch in zip(commits, found.patches):
            if patch not in below and patch not in chosen:
                continue
            tree, conflicts = merged(checkout, commit.parents[0], tip, commit.id)
            if conflicts:
                raise _incomplete(found, patch, (*below, *chosen), conflicts)
            message = "\n\n".join(filter(None, (patch.subject, patch.body))) + "\n"
            author = f"{commit.author} {commit.when}" if patch.date else sender
            tip = checkout.store(tree, [tip], message, author, sender)
            base = tip if patch in below else base
    return Submission(base, tip, _cover(project, found, chosen, group))


def _sender(checkout: Checkout) -> str:
    """The user, as git knows them: "NAME <EMAIL>"."""
    name, email = checkout.user()
    if not name or not email:
        raise errors.K2mpsError(
            "git does not know who you are",
            why="a pull request names its author",
            next_command=f"git config --global user.{'email' if name else 'name'} ...",
        )
    return f"{name} <{email}>"


def _incomplete(
    found: patch_folder.Series, patch: Patch, taken: Sequence[Patch], conflicts: Sequence[str]
) -> errors.K2mpsError:
    """The error that names the patches which are left out and which change the same files."""
    before = found.patches[: found.patches.index(patch)]
    needs = [
        one.name
        for one in before
        if one not in taken and {*one.new_files, *one.edited} & set(conflicts)
    ]
    return errors.K2mpsError(
        f"patches/{patch.name} builds on patches that are left out",
        why=f"in {errors.some(conflicts)} it changes lines, or files, of {errors.some(needs)}",
        next_command="name the patches that it needs as well",
    )


def branch(checkout: Checkout, made: Submission, name: str) -> None:
    """Makes a branch for a submission; git refuses a name that it has or cannot have."""
    checkout.git.bytes("branch", "--no-track", "--", name, made.tip)


def _cover(
    project: Project, found: patch_folder.Series, chosen: Sequence[Patch], group: str
) -> str:
    counts = [hunks.count(patch.diff, without=found.files) for patch in chosen]
    added, removed = (sum(column) for column in zip(*counts))
    new_files = [path for patch in chosen for path in patch.new_files]
    new_lines = sum(map(found.new_lines, chosen))
    title = f"{len(chosen)} changes for an Apple MPS backend of k2"
    if len(chosen) == len(found.patches):
        title = "An Apple MPS backend for k2"
    elif len(chosen) == 1:
        title = chosen[0].subject
    title, text = words(project, group) or (title, "")
    _, common = words(project, "every group") or ("", "")
    parts = [
        title,
        f"{len(new_files)} new files with {new_lines} lines; in existing"
        f" files {added} lines added and {removed} removed.",
        "\n".join(f"* {patch.subject}" for patch in chosen),
        text,
        common,
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def words(project: Project, group: str) -> tuple[str, str] | None:
    """The title and the text of a group in docs/pull-requests.md; None where there are none."""
    page = project.root / "docs/pull-requests.md"
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    match = re.search(rf"^## {group}: (.*)\n\n((?:(?!## ).*\n)*)", text, re.MULTILINE)
    return (match[1], match[2].strip()) if match else None
