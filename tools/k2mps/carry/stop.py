"""The files in build/rebase while a rebase waits for the user to resolve a conflict."""

import re
import shlex
from collections.abc import Sequence

from k2mps.core import errors, git
from k2mps.core.git import quoted
from k2mps.core.objects import File
from k2mps.core.project import Project
from k2mps.series import conflict_markers
from k2mps.stack.checkout import Checkout
from k2mps.stack.commits import Picked

_PICK = git.settings(
    {
        "commit.gpgSign": "false",
        "merge.conflictStyle": "diff3",
        "merge.directoryRenames": "false",
        "rerere.enabled": "false",
    }
)


class Stop:
    """The working tree of a rebase's clone.

    Args:
      clone: the clone; its folder becomes build/rebase only when the rebase stops.
    """

    def __init__(self, project: Project, clone: Checkout):
        self._where = project.rebase
        self._clone = clone
        self._git = clone.git

    def show(self, head: str, picked: Picked) -> list[str]:
        """Checks out a commit, and applies a patch, so that the files show the patch's conflicts.

        Args:
          head: the commit.
          picked: the patch; if it has no conflicts, it is not applied.
        Returns:
          git's message about each conflict.
        """
        self._git.bytes("checkout", "--quiet", "--detach", head)
        if not picked.conflicts:
            return []
        result = self._git.run(*_PICK, "cherry-pick", picked.change)
        output = result.stdout.decode("utf-8", "replace")
        conflicts = re.findall(r"^CONFLICT \(.*$", output, re.MULTILINE)
        if result.status and not conflicts:
            raise self._git.failure(("cherry-pick",), result)
        return conflicts

    def clear(self, head: str) -> None:
        """Resets the files to the commit `head`, and deletes files that git does not track."""
        self._git.bytes("reset", "--quiet", "--hard", head)
        self._git.bytes("clean", "--quiet", "-d", "--force")

    def differing(self) -> list[tuple[str, str]]:
        """Returns (path, blob id) of each file that differs from HEAD or is not tracked.

        The id is empty if the file is deleted.
        """
        edited, others = self._clone.changed_files("all")
        blobs = []
        for path in sorted({*edited, *others}):
            file = self._clone.directory / path
            blobs.append((path, File(file.read_bytes()).entry.id if file.is_file() else ""))
        return blobs

    def touched(self, head: str, left: Sequence[Sequence[str]]) -> bool:
        """Whether the user has done anything since the rebase wrote the files.

        Args:
          head: the commit that the rebase checked out.
          left: the result of `differing` after the rebase wrote the files.
        """
        now = [list(one) for one in self.differing()]
        return self._clone.head().commit != head or now != [list(one) for one in left]

    def branches(self, ours: Sequence[str]) -> list[str]:
        """Returns each branch of the user, and the stash, if it has commits that are nowhere else.

        Args:
          ours: the rebase's own commits.
        """
        names = self._git.text("for-each-ref", "--format=%(refname)", "refs/heads", "refs/stash")
        known = ("--not", "--remotes", "--glob=refs/upstream", *ours, "--")
        return [one for one in names.split() if self._git.text("rev-list", "-1", one, *known)]

    def ignored(self) -> list[str]:
        """Returns the files and folders that git ignores.  Only the user can have made them."""
        how = "ls-files --others --ignored --exclude-standard --directory -z".split()
        return git.split_z(self._git.bytes(*how))

    def discard(self, head: str, left: Sequence[Sequence[str]]) -> None:
        """Removes the patch from the files; raises `ConflictError` if the user has changed files.

        Args:
          head, left: as for `touched`.
        """
        if self.touched(head, left) and self.differing():
            raise errors.ConflictError(
                f"{self._where} has work of yours since the rebase stopped",
                next_command=f"git -C {quoted(self._where)} reset --hard {head[:12]}, to drop"
                " it; then run the same command again",
            )
        self.clear(head)

    def resolution(self, head: str) -> str:
        """Returns the tree of the user's files, which is the patch's result on top of `head`.

        Raises:
          ConflictError: a conflict is not resolved, git does not track a file, another git command
            is not finished, or HEAD does not descend from `head`.
        """
        where = self._where
        if not self._clone.is_ancestor(head, self._clone.head().commit):
            raise errors.ConflictError(
                f"HEAD of {where} is not on {head[:12]}, where the rebase stopped",
                why="another commit was checked out there",
                next_command=f"git -C {quoted(where)} checkout --detach {head[:12]}; resolve"
                " the patch there, then k2mps rebase --continue",
            )
        operation = self._clone.operation_in_progress()
        if operation not in ("", "cherry-pick"):
            raise errors.ConflictError(
                f"{where} has a {operation} in progress",
                next_command=f"git -C {quoted(where)} {operation} --continue, or --abort",
            )
        untracked = self._clone.untracked_files()
        # The patch would lack the untracked files.
        if untracked:
            names = " ".join(shlex.quote(path) for path in untracked)
            raise errors.ConflictError(
                f"{', '.join(untracked[:5])} in {where} is not part of the patch",
                why="git does not track it, so k2mps rebase --continue would not include it",
                next_command=f"git -C {quoted(where)} add {names}, or delete it;"
                " then k2mps rebase --continue",
            )
        left = [path for path, stages in self._unmerged().items() if self._is_left(path, stages)]
        if not left:
            self._git.bytes("add", "--update", "--", ".")
            tree = self._git.text("write-tree")
            left = self._with_markers(head, tree)
        if left:
            raise errors.ConflictError(
                f"conflicts are left in {', '.join(left)}",
                next_command=f"edit them in {where}, git add or git rm them there, then k2mps"
                " rebase --continue",
            )
        return tree

    def settle(self, commit: str) -> None:
        """Moves HEAD, or the branch that is checked out, to the commit of the resolution.

        The files do not change, because they are already those of this commit.
        """
        self._git.bytes("update-ref", "HEAD", commit)
        # If CHERRY_PICK_HEAD stayed, the next checkout would warn.
        (self._clone.git_dir / "CHERRY_PICK_HEAD").unlink(missing_ok=True)

    def _unmerged(self) -> dict[str, set[str]]:
        """Returns the files that conflict, with the stages that each file has in git's index.

        Stage "1" is the base, "2" is our version, "3" is their version.
        """
        stages: dict[str, set[str]] = {}
        for entry in git.split_z(self._git.bytes("ls-files", "--unmerged", "-z")):
            fields, path = entry.split("\t", 1)
            stages.setdefault(path, set()).add(fields[-1])
        return stages

    def _is_left(self, path: str, stages: set[str]) -> bool:
        file = self._clone.directory / path
        if len(stages) < 3 and stages != {"2", "3"}:
            # One side deleted the file: only the user knows whether the file stays.
            return True
        return file.is_file() and conflict_markers.MARKER.search(file.read_bytes()) is not None

    def _with_markers(self, head: str, tree: str) -> Sequence[str]:
        """Returns the files of `tree` with conflict markers, unless `head` has the same markers."""
        files = self._clone.objects.files(tree, self._clone.changed_paths(head, tree))
        before = self._clone.objects.files(head, files)
        return [
            path
            for path, file in files.items()
            if conflict_markers.MARKER.search(file.content)
            and conflict_markers.MARKER.findall(file.content)
            != conflict_markers.MARKER.findall(before[path].content if path in before else b"")
        ]
