"""A checkout of icefall: rewriting it for mps, and restoring it.

git applies the changes as a patch, and takes the same patch back: all of it or nothing, and with
later edits in other lines.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from k2mps.core import errors, interrupts
from k2mps.core.git import Git, own_index, quoted, split_z
from k2mps.core.progress import Reporter
from k2mps.core.project import exclusive
from k2mps.run import rewriting

_CLONE = "git clone https://github.com/k2-fsa/icefall, and name that"


class Recipes:
    """A checkout of icefall.

    Raises:
      K2mpsError: the directory is not the root of one.
    """

    def __init__(self, directory: Path, reporter: Reporter = Reporter()):
        self._root = directory.resolve()
        self._reporter = reporter
        self._git = Git(self._root, reporter=reporter)
        found = self._git.run("rev-parse", "--absolute-git-dir", "--show-prefix")
        git_directory, *prefix = found.stdout.decode("utf-8", "replace").splitlines() or [""]
        why = found.stderr or (f"it is {prefix[0]} of one" if any(prefix) else "")
        if not why and not (self._root / "icefall/utils.py").exists():
            why = "it has no icefall/utils.py"
        if why:
            raise errors.K2mpsError(
                f"{directory} is not the root of a checkout of icefall",
                why=why,
                next_command=_CLONE,
            )
        self._git_directory = Path(git_directory)

    def apply(self) -> tuple[list[str], Mapping[str, str]]:
        """Rewrites the recipes: all of them, or nothing changes.

        Returns:
          The files that were rewritten; and by file, what still needs CUDA, or why a file stays.
        """
        with exclusive(self._git_directory, str(self._root)):
            edited = self._edited()
            if edited:
                raise errors.K2mpsError(
                    f"{self._root} has edits that are not committed",
                    why=errors.some(edited),
                    next_command="commit or stash them, then run the same command again;"
                    " --undo takes back what this command rewrote",
                )
            patch, written, left = self._rewritten()
            if not written:
                raise errors.K2mpsError(
                    f"{self._root} has nothing to rewrite",
                    why="none of the known call shapes of CUDA is in it",
                    next_command=f"git -C {quoted(self._root)} status shows the branch;"
                    " check out another",
                )
            with interrupts.deferred():
                self._git.bytes("apply", stdin=patch, work_tree=True)
        return written, left

    def undo(self) -> None:
        """Takes the changes of `apply` back: all of them, or nothing changes."""
        with exclusive(self._git_directory, str(self._root)):
            patch, written, _ = self._rewritten()
            if not {*written} & {*self._edited()}:
                raise errors.K2mpsError(
                    f"{self._root} has not been rewritten since its last commit",
                    next_command=f"k2mps recipes icefall {quoted(self._root)} rewrites it; git"
                    " revert takes a commit back",
                )
            with interrupts.deferred():
                result = self._git.run("apply", "-R", stdin=patch, work_tree=True)
            if result.status != 0:
                raise errors.K2mpsError(
                    f"{self._root} has edits in lines that undo would restore",
                    why=result.stderr,
                    next_command="revert those edits, then run the same command again; or"
                    f" git -C {quoted(self._root)} restore FILE restores a file without them",
                )

    def _edited(self) -> list[str]:
        return split_z(self._git.bytes("diff", "--name-only", "-z", "HEAD", work_tree=True))

    def _rewritten(self) -> tuple[bytes, list[str], dict[str, str]]:
        """The patch that rewrites the last commit, and what `apply` returns."""
        written, left = [], {}
        with (
            tempfile.TemporaryDirectory(prefix="k2mps-") as name,
            own_index() as place,
            self._reporter.task("rewriting") as task,
        ):
            place |= {"GIT_DIR": str(self._git_directory), "GIT_WORK_TREE": name}
            self._git.bytes("read-tree", "HEAD", environment=place)
            self._git.bytes("checkout-index", "--all", work_tree=True, environment=place)
            files = sorted(one for one in Path(name).rglob("*.py") if not one.is_symlink())
            for number, file in enumerate(files):
                path = file.relative_to(name).as_posix()
                task.update(number, len(files), path)
                content = file.read_bytes()
                try:
                    text, needs = rewriting.rewrite(content.decode("utf-8"))
                except ValueError as error:
                    left[path] = f"stays as it is: {error}"
                    continue
                if needs:
                    left[path] = needs
                if text.encode("utf-8") != content:
                    file.write_bytes(text.encode("utf-8"))
                    written.append(path)
            changes = self._git.bytes("diff", "--binary", work_tree=True, environment=place)
        return changes, written, left
