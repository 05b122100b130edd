"""`k2mps undo`: branch k2-mps and patches/ as they were before a command.

Undo loses nothing: it adds an entry to the log, which keeps the commits and the
edits of patches/ that undo takes away.
"""

from k2mps.core import errors
from k2mps.core.project import Project
from k2mps.stack import operations
from k2mps.stack.checkout import BRANCH, BRANCH_REF, Checkout, Move
from k2mps.stack.operations import Operation


def undo(project: Project, checkout: Checkout, which: str | None = None) -> Operation:
    """Restores the state before an operation.

    Args:
      which: the beginning of its id; default the last one.
    """
    with operations.at_work(project, checkout):
        entries = operations.log(checkout)
        found = [one for one in entries if one.id.startswith(which)] if which else entries[:1]
        if len(found) != 1:
            raise errors.K2mpsError(
                f"{which} names {len(found) or 'no'} operations"
                if which
                else f"there is nothing to undo in {checkout.directory}",
                next_command="k2mps undo --list",
            )
        (entry,) = found
        _check(project, checkout, entry)
        _restore(project, checkout, entry, entries[0])
    return entry


def _check(project: Project, checkout: Checkout, entry: Operation) -> None:
    if entry.project != str(project.root):
        raise errors.K2mpsError(
            f"that operation was run in {entry.project}",
            why="two clones of k2-mps share the checkout",
            next_command=f"cd {entry.project}, then run the same command again",
        )
    checkout.check_at_rest()
    elsewhere = checkout.other_worktree_on_branch()
    if elsewhere and entry.refs[BRANCH_REF] != checkout.commit_of(BRANCH_REF):
        raise errors.K2mpsError(
            f"branch {BRANCH} is checked out in {elsewhere}",
            why="moving it would leave that worktree behind",
            next_command=f"git -C {elsewhere} checkout --detach, then run the same command again",
        )


def _restore(project: Project, checkout: Checkout, entry: Operation, last: Operation) -> None:
    wanted = checkout.files(entry.id)
    current = operations.project_files(project)
    changed = {path: file for path, file in wanted.items() if current.get(path) != file}
    head = checkout.head().name
    uncommit = entry.staged and entry == last and head == BRANCH_REF
    elsewhere = head not in (BRANCH_REF, last.head_after) and head.startswith("refs/")
    # A user on a branch of their own stays there.  Where the command committed
    # edits, the files stay and have these edits again.
    stay = elsewhere or uncommit
    operations.carry_out(
        project,
        checkout,
        f"undo of {entry.command}",
        changed=changed,
        removed=[path for path in current if path not in wanted],
        move=Move(entry.refs) if stay else Move(entry.refs, entry.head_commit, entry.head),
    )
    if uncommit:
        checkout.git.bytes("reset", "--quiet", work_tree=True)
