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
from k2mps.stack.checkout import Checkout, Commit
from k2mps.stack.moving import Move

# Each worktree has its own.
STATE_REF = "refs/worktree/k2mps/state"
_NO_COMMIT = "0" * 40
_PATHS = ("patches", "upstream.toml")
END_OF_REBASE = "k2mps rebase --continue, or --abort"


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

    @property
    def when(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(self.seconds))


class States:
    """The states of a checkout.

    Attributes:
      all: the states, the last one first.
      head: where the checkout stands.
      tree: patches/ and upstream.toml as they are.
    """

    def __init__(self, project: Project, checkout: Checkout):
        self.project = project
        self.checkout = checkout
        self.all = list(_read(checkout))
        self.head = checkout.head()
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
        return self.checkout.changed_paths(last.tree, self.tree)

    def unexported(self, pin: str, tip: str) -> list[Commit]:
        """Commits up to `tip` that only the user has: neither upstream's, nor in a state in which
        patches/ had them.

        Where the pin is no ancestor of `tip`, only the last commit counts.
        """
        checkout, synced = self.checkout, {state.tip for state in self.all if state.synced}
        if tip in synced or checkout.is_ancestor(tip, pin):
            return []
        last = () if checkout.is_ancestor(pin, tip) else ("-1",)
        above = checkout.commits(*last, tip, "--not", "--remotes", *synced)
        # Another version of the tool may have applied the series.
        return [commit for commit in above if synced or not commit.ours]

    def record(self, command: str = "", synced: bool = False) -> None:
        """Adds a state, unless the last one says the same."""
        head, last = self.head, self.all[0] if self.all else None
        here = (self.tree, head.commit, head.branch, head.tip)
        was = last and (last.tree, last.tip, last.head, last.branch)
        if here == was and (not command or (command, synced) == (last.command, last.synced)):
            return
        first = last.id if last else self._commit("")
        facts = {"head": head.branch, "branch": head.tip, "synced": synced}
        made = self._commit(f"{command}\n\n{json.dumps(facts)}\n", first, head.commit)
        self.checkout.git.bytes("update-ref", STATE_REF, made, last.id if last else _NO_COMMIT)
        self.all.insert(0, State(made, self.tree, head.commit, int(time.time()), command, **facts))

    def _commit(self, message: str, *parents: str) -> str:
        """As `Checkout.store`, without GitPython: `k2mps apply` does without."""
        options = [word for one in parents for word in ("-p", one)]
        return self.checkout.git.text(
            "commit-tree", self.tree, *options, stdin=os.fsencode(message)
        )

    def carry_out(
        self,
        command: str,
        *,
        changed: Mapping[str, File] = {},
        removed: Sequence[str] = (),
        move: Move | None = None,
        synced: bool = True,
    ) -> list[str]:
        """Changes files of the project, and the checkout, all or nothing.  The caller is `at_work`.

        Args:
          command: what the user sees in the list of states.
          changed, removed: files of the project, by path.
          synced: as in `State`.
        Returns:
          The files of the checkout that were written or removed.
        """
        plan = self.project.replacement
        self.record()
        note = {"checkout": str(self.checkout.directory), "command": command, "synced": synced}
        plan.prepare(changed, removed, {**note, "move": move})
        with interrupts.deferred():
            try:
                paths = moving.move(self.checkout, move) if move else []
            except BaseException:
                plan.discard()
                raise
            plan.complete()
            self.head = self.checkout.head()
            if changed or removed:
                self.tree = snapshot(self.project, self.checkout)
            self.record(command, synced)
            # A kill before this line leaves the plan, which the next run carries out again.
            plan.discard()
        return paths


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
def at_work(project: Project, checkout: Checkout, rebasing: bool = False) -> Iterator[States]:
    """Locks the project and the checkout, and finishes or undoes what a killed run left.

    Args:
      rebasing: whether the caller is the rebase that may be in progress; any other command is
        refused beside a rebase.
    """
    with exclusive(project.root, str(project.root)), checkout.exclusive():
        recover(project, checkout.reporter)
        if not rebasing:
            check_no_rebase(project)
        yield States(project, checkout)


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
        if move and move.how == "edits":
            moving.move(checkout, move)  # git may not have written its index
        project.replacement.complete()
        States(project, checkout).record(note["command"], note["synced"])
        end = f" during `k2mps {note['command']}`, which is complete now"
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
            stopped, why="a rebase writes patches/ when it ends", next_command=END_OF_REBASE
        )


def rebase_under_way(project: Project) -> str:
    """A sentence about the rebase that waits for the user; empty if none does."""
    return f"a rebase is in progress in {project.rebase}" if project.rebase.exists() else ""
