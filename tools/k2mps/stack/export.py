"""Making patches/ from the commits on branch k2-mps, and locking patches/.

`export` is the inverse of `apply`: exporting the applied series gives the same
bytes, and applying an exported series gives the same tree.
"""

from k2mps.core import errors, pins
from k2mps.core.pins import Upstream
from k2mps.core.project import Project
from k2mps.series import patch_folder
from k2mps.stack import extraction, operations, status
from k2mps.stack.checkout import BASE_REF, BRANCH, BRANCH_REF, Checkout, Move
from k2mps.stack.commits import commit_series, say_series


def export(
    project: Project, checkout: Checkout, *, prune: bool = False, overwrite: bool = False
) -> tuple[extraction.Plan, str]:
    """Writes patches/ and the lock from branch k2-mps.

    Args:
      prune: delete patches and new files that the branch has no longer.
      overwrite: write over edits of patches/ that are not locked.
    Returns:
      What was written, and the tree that the series gives.
    """
    with operations.at_work(project, checkout):
        pinned = project.upstream()
        tip = _tip(pinned, checkout)
        found, changes = status.read(project, pinned)
        if found and not changes:
            _check_base(project, pinned, checkout, found)
        commits = checkout.commits(f"{pinned.pin.commit}..{tip}")
        if not commits:
            raise errors.K2mpsError(
                f"branch {BRANCH} has no commits on top of the pin",
                why="exporting that would delete every patch",
                next_command="k2mps apply",
            )
        made = extraction.plan(project, checkout, commits)
        if changes and (made.written or made.removed) and not overwrite:
            raise errors.K2mpsError(
                "export would overwrite edits of patches/ that are not locked",
                why="; ".join(changes),
                next_command="k2mps lock, to keep the edits; git checkout patches,"
                " or k2mps export --overwrite, to give them up",
            )
        if made.removed and not prune:
            raise errors.K2mpsError(
                f"the branch does not have {', '.join(made.removed)}",
                why="the commits may have been dropped by mistake",
                next_command="k2mps export --prune, to delete them",
            )
        refs = {BASE_REF: tip}  # here patches/ and the branch agree
        if made.changed or made.removed:
            operations.carry_out(
                project,
                checkout,
                "export",
                changed=made.changed,
                removed=made.removed,
                move=Move(refs),
            )
        elif checkout.base() != tip:
            checkout.set_refs(refs, "export")
    return made, checkout.tree_of(tip)


def lock(project: Project, checkout: Checkout) -> tuple[int, str, bool]:
    """Writes the hashes of patches/ to upstream.toml, which resolves a merge conflict in the lock.

    The checkout has the pin, and does not change.

    Returns:
      The number of patches, the tree that they give, and whether upstream.toml was written.
    """
    with operations.at_work(project, checkout):
        pin = pins.load(project.config_file, locked=False).pin
        found = patch_folder.load(project.patches)
        tip = commit_series(checkout, pin, found).tip
        config = extraction.config_with(project, found.lock)
        written = config.content != project.config_file.read_bytes()
        if written:
            files = {"upstream.toml": config}
            operations.carry_out(project, checkout, "lock", changed=files)
    return len(found.patches), checkout.tree_of(tip), written


def _tip(pinned: Upstream, checkout: Checkout) -> str:
    """The last commit to export; refuses a checkout with further work."""
    tip = checkout.commit_of(BRANCH_REF)
    if not tip:
        raise errors.K2mpsError(
            f"{checkout.directory} has no branch {BRANCH}",
            why="patches are made from the commits on that branch",
            next_command="k2mps apply, then commit your change there",
        )
    if checkout.head().branch != BRANCH_REF:
        raise errors.K2mpsError(
            f"{checkout.directory} is not on branch {BRANCH}",
            why="commits made elsewhere would be left out",
            next_command=f"git -C {checkout.directory} checkout {BRANCH}",
        )
    checkout.check_at_rest()
    if not checkout.is_ancestor(pinned.pin.commit, tip):
        raise errors.K2mpsError(
            f"branch {BRANCH} of {checkout.directory} does not start from the"
            f" pinned commit {pinned.pin.commit[:12]}",
            next_command="k2mps status",
        )
    return tip


def _check_base(
    project: Project, pinned: Upstream, checkout: Checkout, found: patch_folder.Series
) -> None:
    """Refuses where patches/ has changed since it was applied here.

    The branch lacks that change, and exporting the branch would revert it.  An
    unlocked patches/ cannot tell.
    """
    base = checkout.base()
    if not base:
        return
    tip = commit_series(checkout, pinned.pin, found).tip
    if checkout.tree_of(base) != checkout.tree_of(tip) or not say_series(
        project, checkout, pinned.pin, base, tip
    ):
        where = checkout.directory
        raise errors.K2mpsError(
            "patches/ is not the series that the branch was made from",
            why="patches/ has changed since it was applied here, by git pull or by"
            " hand, and export would undo that change",
            next_command=f"git -C {where} branch mine {BRANCH}; git -C {where}"
            f" reset --keep {base[:12]}; k2mps apply; git -C {where}"
            f" cherry-pick {base[:12]}..mine; k2mps export",
        )
