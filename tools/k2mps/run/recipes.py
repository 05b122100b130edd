"""A checkout of icefall: rewriting it for mps, and restoring it.

A patch in the checkout's git directory has the changes.  git applies it, and takes it back: all of
it or nothing, and with later edits in other lines.
"""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from k2mps.core import errors, interrupts
from k2mps.core.git import Git, quoted, split_z
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
        self._patch = self._git_directory / "k2mps-recipes.patch"

    def apply(self) -> tuple[list[str], Mapping[str, str]]:
        """Rewrites the recipes: all of them, or nothing changes.

        Returns:
          The files that were rewritten; and by file, what still needs CUDA, or why a file stays.
        """
        with exclusive(self._git_directory, str(self._root)):
            undo = f"k2mps recipes icefall {quoted(self._root)} --undo"
            if self._patch.exists() and self._apply("-R", "--check").status == 0:
                raise errors.K2mpsError(
                    f"{self._root} has been rewritten already", next_command=f"{undo} restores it"
                )
            edited = split_z(self._git.bytes("diff", "--name-only", "-z", "HEAD", work_tree=True))
            if edited:
                raise errors.K2mpsError(
                    f"{self._root} has edits that are not committed",
                    why=errors.some(edited),
                    next_command="commit or stash them, then run the same command again",
                )
            with tempfile.TemporaryDirectory(prefix="k2mps-") as folder:
                written, left = self._rewritten(Path(folder))
                if not written:
                    raise errors.K2mpsError(
                        f"{self._root} has nothing to rewrite",
                        why="none of the known call shapes of CUDA is in it",
                        next_command=f"git -C {quoted(self._root)} status shows the branch;"
                        " check out another",
                    )
                place = {"GIT_DIR": str(self._git_directory), "GIT_WORK_TREE": folder}
                options = ("--binary", "HEAD", "--", *written)
                changes = self._git.bytes("diff", *options, work_tree=True, environment=place)
            with interrupts.deferred():
                self._patch.write_bytes(changes)
                result = self._apply()
                if result.status != 0:
                    raise self._git.failure(["apply"], result)
        return written, left

    def undo(self) -> None:
        """Takes the changes of `apply` back: all of them, or nothing changes."""
        with exclusive(self._git_directory, str(self._root)), interrupts.deferred():
            if not self._patch.exists():
                raise errors.K2mpsError(
                    f"{self._root} has not been rewritten, or --undo has restored it",
                    next_command=f"k2mps recipes icefall {quoted(self._root)} rewrites it",
                )
            result = self._apply("-R")
            if result.status != 0:
                again = f"git -C {quoted(self._root)} apply -R {quoted(self._patch)}"
                raise errors.K2mpsError(
                    f"{self._root} has edits in lines that undo would restore",
                    why=result.stderr,
                    next_command=f"revert those edits, then run the same command again; or run"
                    f" {again} with --exclude=FILE for each file that shall stay",
                )
            self._patch.unlink()

    def _apply(self, *options: str):
        return self._git.run("apply", *options, str(self._patch), work_tree=True)

    def _rewritten(self, folder: Path) -> tuple[list[str], dict[str, str]]:
        """Writes the rewritten files to a folder; their paths, and what `apply` returns."""
        written, left = [], {}
        entries = split_z(self._git.bytes("ls-files", "-z", "--stage"))
        with self._reporter.task("rewriting") as task:
            for number, entry in enumerate(entries):
                mode, path = entry.split(" ", 1)[0], entry.split("\t", 1)[1]
                if not (mode.startswith("100") and path.endswith(".py")):
                    continue  # a link to another of them, or no Python
                task.update(number, len(entries), path)
                source, target = self._root / path, folder / path
                content = source.read_bytes()
                try:
                    text, needs = rewriting.rewrite(content.decode("utf-8"))
                except ValueError as error:
                    left[path] = f"stays as it is: {error}"
                    continue
                if needs:
                    left[path] = needs
                if text.encode("utf-8") != content:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(text.encode("utf-8"))
                    shutil.copymode(source, target)
                    written.append(path)
        return written, left
