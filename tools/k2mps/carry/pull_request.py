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
from k2mps.series import patch_folder
from k2mps.series.patch_text import Patch
from k2mps.stack.checkout import Checkout
from k2mps.stack.commits import commit_date, series_tip


@dataclasses.dataclass(frozen=True)
class Submission:
    """A pull request."""

    base: str  # the commit before the first one
    tip: str  # the last commit
    cover: str  # the cover letter, subject first


def make(project: Project, checkout: Checkout, group: str = "") -> Submission:
    """Makes the commits; no ref names them yet.

    Args:
      group: the group to submit, on top of the groups before it; all patches where empty.
    """
    pin = checkout.pinned(project.upstream().pin)
    found = patch_folder.load(project.patches)
    chosen = [one for one in found.patches if not group or found.groups.get(one.name) == group]
    if not chosen:
        raise errors.K2mpsError(
            f"patches/series has no group {group}",
            why="a group begins with a comment like '# device: text'",
            next_command="name one of those in patches/series",
        )
    with checkout.exclusive():
        last = series_tip(project, checkout, pin, found)
        commits = checkout.commits(f"{pin.commit}..{last}")
        # With the pin's date, the commits of earlier groups have the same ids.
        sender = f"{_sender(checkout)} {commit_date(checkout, pin.commit)}"
        base = tip = pin.commit
        end = found.patches.index(chosen[-1]) + 1
        for commit, patch in zip(commits, found.patches[:end]):
            base = tip if patch == chosen[0] else base
            message = "\n\n".join(filter(None, (patch.subject, patch.body))) + "\n"
            author = f"{commit.author} {commit.when}" if patch.date else sender
            tip = checkout.objects.commit(commit.tree, [tip], message, author, sender)
    return Submission(base, tip, _cover(project, chosen, group))


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


def _cover(project: Project, chosen: Sequence[Patch], group: str) -> str:
    title, text = words(project, group) or ("An Apple MPS backend for k2", "")
    _, common = words(project, "every group") or ("", "")
    patches = "\n".join(f"* {patch.subject}" for patch in chosen)
    return "\n\n".join(filter(None, (title, patches, text, common))) + "\n"


def words(project: Project, group: str) -> tuple[str, str] | None:
    """The title and the text of a group in docs/pull-requests.md; None where there are none."""
    page = project.root / "docs/pull-requests.md"
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    match = re.search(rf"^## {group}: (.*)\n\n((?:(?!## ).*\n)*)", text, re.MULTILINE)
    return (match[1], match[2].strip()) if match else None
