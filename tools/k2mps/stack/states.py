"""The states of patches/ and of branch k2-mps, one after each command.

`STATE_REF` names the last state.  A state is a commit: its tree is patches/ and upstream.toml, its
first parent is the state before, its last parent the commit of k2.  Its message is the command and
some facts.  In a synced state, the patches and the commit of k2 say the same.  The ids of both show
what git or an editor has changed since.

A command records what it finds, if that is no state yet, then what it leaves (`carry_out`).  So
`undo` has everything that a command overwrote, and git keeps it.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from k2mps.core import errors, git, interrupts
from k2mps.core.git import Git
from k2mps.core.objects import File
from k2mps.core.progress import Reporter
from k2mps.core.project import Project, exclusive
from k2mps.stack import moving
from k2mps.stack.checkout import Checkout, Head
from k2mps.stack.moving import Move

# Each worktree has its own.
STATE_REF = "refs/worktree/k2mps/state"
_NO_COMMIT = "0" * 40
_PATHS = ("patches", "upstream.toml")


class State(NamedTuple):
    """One state."""

    id: str  # its commit
    tree: str  # of patches/ and upstream.toml
    tip: str  # the commit of k2
    seconds: int  # when, since 1970
    command: str  # the command that made it, or an empty text where a command found it
    synced: bool  # whether patches/ and the commit of k2 say the same
    head: str  # the branch of k2's HEAD; empty where it was detached
    branch: str  # the commit of branch k2-mps; empty where there was none
    staged: bool  # whether the command made a commit of edits in the checkout

    @property
    def when(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(self.seconds))


class States:
    """The states of a checkout, the last one first."""

    def __init__(self, project: Project, checkout: Checkout):
        self._project = project
        self._checkout = checkout
        self.all = list(_read(checkout))
        self.tree = snapshot(project, checkout)

    @property
    def last_synced(self) -> State | None:
        """The last state in which patches/ and the branch said the same."""
        return next((one for one in self.all if one.synced), None)

    def known(self) -> State | None:
        """A state in which patches/ as it is was synced."""
        return next((one for one in self.all if one.synced and one.tree == self.tree), None)

    def changed_paths(self) -> list[str]:
        """The files that differ from the last synced state."""
        last = self.last_synced
        if last is None or last.tree == self.tree:
            return []
        return [change.path for change in self._checkout.changes(last.tree, self.tree)]

    def record(
        self,
        command: str = "",
        *,
        synced: bool = False,
        staged: bool = False,
        head: Head | None = None,
    ) -> None:
        """Adds a state, unless the last one says the same; `head` saves asking for it."""
        checkout = self._checkout
        head = head or checkout.head()
        last = self.all[0] if self.all else None
        here = (self.tree, head.commit, head.branch or "", head.tip)
        was = last and (last.tree, last.tip, last.head, last.branch)
        if here == was and (not command or (command, synced) == (last.command, last.synced)):
            return
        first = last.id if last else _commit(checkout, self.tree, "")
        facts = {"head": here[2], "branch": here[3], "synced": synced, "staged": staged}
        message = f"{command}\n\n{json.dumps(facts)}\n"
        made = _commit(checkout, self.tree, message, first, head.commit)
        checkout.git.bytes("update-ref", STATE_REF, made, last.id if last else _NO_COMMIT)
        now = State(made, self.tree, head.commit, int(time.time()), command, **facts)
        self.all.insert(0, now)

    def refresh(self) -> None:
        """Looks at patches/ again."""
        self.tree = snapshot(self._project, self._checkout)


def _commit(checkout: Checkout, tree: str, message: str, *parents: str) -> str:
    """As `Checkout.store`, without GitPython: `k2mps apply` does without."""
    options = [word for one in parents for word in ("-p", one)]
    return checkout.git.text("commit-tree", tree, *options, stdin=os.fsencode(message))


def _read(checkout: Checkout) -> Iterator[State]:
    found = checkout.git.run(
        *"log -z --first-parent --no-notes --no-decorate".split(),
        "--format=%H%x00%T%x00%P%x00%ct%x00%B",
        STATE_REF,
        "--",
    )
    for id_, tree, parents, when, message in zip(*[iter(git.split_z(found.stdout))] * 5):
        command, _, facts = message.partition("\n\n")
        if not parents:
            return  # the oldest state has a parent, too, which is none
        facts = {key: value for key, value in json.loads(facts).items() if key in State._fields}
        yield State(id_, tree, parents.split()[-1], int(when), command.strip(), **facts)


def snapshot(project: Project, checkout: Checkout) -> str:
    """The tree of patches/ and upstream.toml as they are."""
    here = Git(project.root, literal=True, reporter=checkout.reporter)
    with git.own_index() as environment:
        environment |= {"GIT_DIR": str(checkout.git_dir), "GIT_WORK_TREE": str(project.root)}
        add = ("add", "--all", "--force", "--", *_PATHS)
        here.bytes(*add, work_tree=True, environment=environment)
        return here.text("write-tree", environment=environment)


def series_id(project: Project, checkout: Checkout) -> str:
    """git's id of patches/ as it is."""
    # git would take "^{tree}" behind a path for a part of the path.
    name = f"{snapshot(project, checkout)}:patches"
    found = checkout.git.run("rev-parse", "--verify", "--quiet", name)
    # A tree of git has no empty folder, so the tree of no patches is made.
    return os.fsdecode(found.stdout).strip() or checkout.git.text("mktree", stdin=b"")


@contextlib.contextmanager
def at_work(project: Project, checkout: Checkout, rebasing: bool = False) -> Iterator[None]:
    """Locks the project and the checkout, and finishes or undoes what a killed run left.

    Args:
      rebasing: whether the caller is the rebase that may be in progress; any other command is
        refused beside a rebase.
    """
    with exclusive(project.root, str(project.root)), checkout.exclusive():
        recover(project, checkout.reporter)
        if not rebasing:
            check_no_rebase(project)
        yield


def carry_out(
    project: Project,
    checkout: Checkout,
    command: str,
    *,
    changed: Mapping[str, File] = {},
    removed: Sequence[str] = (),
    move: Move | None = None,
    staged: bool = False,
    synced: bool = True,
    states: States | None = None,
    head: Head | None = None,
) -> list[str]:
    """Changes files of the project, and the checkout, all or nothing.  The caller is `at_work`.

    Args:
      command: what the user sees in the list of states.
      changed, removed: files of the project, by path.
      staged, synced: as in `State`.
      states, head: as they are, if the caller knows them.
    Returns:
      The files of the checkout that were written or removed.
    """
    states = states or States(project, checkout)
    states.record(head=head)
    facts = {"command": command, "synced": synced, "staged": staged}
    project.replacement.prepare(
        changed, removed, {"checkout": str(checkout.directory), "move": move, **facts}
    )
    with interrupts.deferred():
        try:
            paths = moving.move(checkout, move) if move else []
        except BaseException:
            project.replacement.discard()
            raise
        project.replacement.complete()
        if changed or removed:
            states.refresh()
        states.record(**facts)
        # A kill before this line leaves the plan, which the next run carries out again.
        project.replacement.discard()
    return paths


def recover(project: Project, reporter: Reporter) -> None:
    """Completes or undoes what a killed run began; the caller holds the project's lock."""
    note = project.replacement.note
    with contextlib.suppress(errors.CheckoutMissingError):
        if note:
            _recover(project, Checkout(note["checkout"], reporter), note)
    project.replacement.discard()


def _recover(project: Project, checkout: Checkout, note: dict) -> None:
    move = Move(*note["move"]) if note["move"] else None
    if move and not moving.is_done(checkout, move):
        moving.restore(checkout, move.commit)
        end = f" while it changed {checkout.directory}; its changes have been undone"
    else:
        if note["staged"]:
            moving.move(checkout, move)  # git may not have written its index
        project.replacement.complete()
        facts = {key: note[key] for key in ("command", "synced", "staged")}
        States(project, checkout).record(**facts)
        end = f" amid `k2mps {note['command']}`, which is complete now"
    checkout.reporter.warn(f"an earlier run was killed{end}")


def tidy(project: Project, reporter: Reporter = Reporter()) -> None:
    """As `recover`, for callers that do not hold the project's lock."""
    with exclusive(project.root, str(project.root)):
        recover(project, reporter)


def check_no_rebase(project: Project) -> None:
    """Refuses to change patches/ during a rebase, whose end would overwrite the change."""
    stopped = rebase_under_way(project)
    if stopped:
        raise errors.ConflictError(
            stopped,
            why="a rebase writes patches/ when it ends",
            next_command="k2mps rebase --continue, or --abort",
        )


def rebase_under_way(project: Project) -> str:
    """A sentence about the rebase that waits for the user; empty if none does."""
    return f"a rebase is in progress in {project.rebase}" if project.rebase.exists() else ""
