"""The series as a pull request to k2: plain commits without this project's marks.

The commits contain the new files and have no trailers.  The author of a patch that names none is
the user.  The cover letter lists the patches and the figures of the last run of the suites.
"""

import collections
import dataclasses
import sys
from collections.abc import Sequence

from k2mps.carry import style
from k2mps.carry.probe import Prober
from k2mps.core import errors
from k2mps.core.git import quoted
from k2mps.core.project import Project
from k2mps.run import suites
from k2mps.series import hunks, patch_folder
from k2mps.series.patch_text import Patch
from k2mps.stack import extraction, states
from k2mps.stack.checkout import Checkout, Commit
from k2mps.stack.commits import commit_date, merged, series_tip

# The suites in the cover letter, and their titles there.
_SUITES = {
    "parity": "mps against CPU",
    "upstream-mps": "k2's own tests on mps",
    "upstream-cpu": "k2's own tests with K2_WITH_MPS=OFF",
}
_TITLES = {
    "fixes": "Fixes found on the way to an Apple MPS backend",
    "general": "Waits, tensors of a context and scores on any device",
    "device": "Apple's MPS as a device of k2",
    "mutual-information": "Mutual information in Metal",
    "lattices": "Lattices of intersect_dense in Metal",
    "scores": "Scores and posteriors of arcs in Metal",
    "ctc": "CTC in Metal, without a lattice",
    "extras": "Provenance, counters, signposts and a check for MPS",
}


@dataclasses.dataclass(frozen=True)
class Submission:
    """A pull request."""

    base: str  # the commit before the first one
    tip: str  # the last commit
    cover: str  # the cover letter, subject first
    notes: tuple[str, ...]  # offences against k2's conventions, and checks that cannot run


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
        states.settle(checkout)
        last = series_tip(project, checkout, pinned.pin, found)
        commits = checkout.commits(f"{pinned.pin.commit}..{last}")
        # With the pin's date, the commits of earlier groups have the same ids.
        sender = f"{_sender(checkout)} {commit_date(checkout, pinned.pin.commit)}"
        base = tip = pinned.pin.commit
        for patch in found.patches:
            if patch in below or patch in chosen:
                tip = _commit(checkout, commits, patch, tip, sender)
            if patch in below:
                base = tip
    new_files = [path for patch in chosen for path in patch.new_files]
    return Submission(
        base,
        tip,
        _cover(project, found, chosen, group),
        (
            *style.conventions(checkout, tip, new_files),
            *style.findings(checkout, base, tip, with_cpplint=False),
        ),
    )


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


def _commit(
    checkout: Checkout, commits: Sequence[Commit], patch: Patch, tip: str, sender: str
) -> str:
    """Commits one patch of the series on another commit; `sender` is as git has it in a commit."""
    commit = next(one for one in commits if extraction.name_of(one) == patch.name)
    tree, conflicts = merged(checkout, commit.parents[0], tip, commit.id)
    if conflicts:
        needs = Prober(checkout, commits[0].parents[0], commits).builds_on[patch.name]
        raise errors.K2mpsError(
            f"patches/{patch.name} builds on patches that are left out, or do not come before it",
            why=f"it needs {', '.join(needs)}: it changes their lines, or files that they add",
            next_command="name the patches that it needs as well",
        )
    message = "\n\n".join(filter(None, (patch.subject, patch.body))) + "\n"
    author = commit.author.raw if patch.date else sender
    return checkout.store(tree, [tip], message, author, sender)


def branch(checkout: Checkout, made: Submission, name: str) -> None:
    """Makes a branch for a submission."""
    result = checkout.git.run("branch", "--no-track", "--", name, made.tip)
    if result.status != 0:
        raise errors.K2mpsError(
            f"git makes no branch {name} in {checkout.directory}",
            why=result.stderr,
            next_command=f"choose another name; or git -C {quoted(checkout.directory)} branch -D --"
            f" {quoted(name)}",
        )


def mailbox(checkout: Checkout, made: Submission) -> bytes:
    """A submission as a mailbox, the cover letter first."""
    subject, _, text = made.cover.partition("\n\n")
    name, email = checkout.user()
    sender = {"GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": email}
    options = (
        "--stdout --cover-letter --no-signature -U3 --no-attach --no-thread --no-to --no-cc"
        " --no-add-header --subject-prefix=PATCH --numbered --cover-from-description=none"
        " --full-index --binary"
    ).split()
    options += [f"--from={name} <{email}>", f"--base={made.base}", f"{made.base}..{made.tip}"]
    output = checkout.git.bytes("format-patch", *options, environment=sender)
    output = output.replace(b"*** SUBJECT HERE ***", subject.encode(), 1)
    return output.replace(b"*** BLURB HERE ***", text.encode(), 1)


def _cover(
    project: Project, found: patch_folder.Series, chosen: Sequence[Patch], group: str
) -> str:
    counts = [hunks.count(patch.diff, without=found.files) for patch in chosen]
    added, removed = (sum(column) for column in zip(*counts))
    new_files = [path for patch in chosen for path in patch.new_files]
    new_lines = sum(map(found.new_lines, chosen))
    lines = [
        "An Apple MPS backend for k2"
        if len(chosen) == len(found.patches)
        else chosen[0].subject
        if len(chosen) == 1
        else _TITLES[group]
        if group
        else f"{len(chosen)} changes for an Apple MPS backend of k2",
        "",
        f"{len(new_files)} new files with {new_lines} lines; in existing"
        f" files {added} lines added and {removed} removed.",
        "",
        *(f"* {patch.subject}" for patch in chosen),
        "",
        *_figures(project),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _figures(project: Project) -> list[str]:
    """The results of the suites, if the suites ran on this very series."""
    folder = project.build_root / "tests"
    # Only a Mac has mps.
    where = "" if sys.platform == "darwin" else ", emulated"
    written = project.config_file.stat().st_mtime
    lines = []
    for name, title in _SUITES.items():
        report = folder / f"{name}.xml"
        fresh = report.is_file() and report.stat().st_mtime >= written
        counts = collections.Counter(map(suites.outcome_of, suites.read_cases(report)))
        if fresh and counts:
            lines.append(
                f"* {title}{'' if name == 'upstream-cpu' else where}: {counts['passed']} passed,"
                f" {counts['failure'] + counts['error']} failed, {counts['skipped']} skipped"
            )
    if not lines:
        return ["Tests: no results of this series are at hand (k2mps test)."]
    return ["Tests:", "", *lines]
