"""A checkout of icefall: rewriting it for mps, and restoring it.

Copies in the checkout's git directory keep the original files: undoing needs no network.  A file
that was edited meanwhile is merged.
"""

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from k2mps.core import errors, interrupts
from k2mps.core.git import Git, split_z
from k2mps.core.objects import File
from k2mps.core.pins import sha256
from k2mps.core.progress import Reporter
from k2mps.core.project import exclusive
from k2mps.core.replacement import Replacement
from k2mps.run import rewriting

_STATE = "k2mps-recipes"
_RECORD = "record.json"
# Paths that every icefall has.
_SIGNS = ("icefall/utils.py", "egs")


@dataclasses.dataclass(frozen=True)
class Result:
    """The changes of a checkout."""

    changed: tuple[str, ...]  # the files that were written
    merged: tuple[str, ...] = ()  # the written files with merged edits of the user
    # What still needs CUDA, or why a file stays as it is, by path.
    left: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Recipes:
    """A checkout of icefall."""

    def __init__(self, directory: Path, reporter: Reporter = Reporter()):
        self._root = directory.resolve()
        self._reporter = reporter
        self._git = Git(self._root, reporter=reporter)
        missing = [sign for sign in _SIGNS if not (self._root / sign).exists()]
        if missing:
            raise errors.K2mpsError(
                f"{directory} is no checkout of icefall",
                why=f"it has no {missing[0]}",
                next_command="git clone https://github.com/k2-fsa/icefall, and name that",
            )
        found = self._git.run("rev-parse", "--show-toplevel", "--absolute-git-dir")
        lines = os.fsdecode(found.stdout).splitlines()
        if found.status != 0 or Path(lines[0]).resolve() != self._root:
            raise errors.K2mpsError(
                f"{directory} is not the root of a checkout of git",
                why=found.stderr or f"that is {lines[0]}",
                next_command="git clone https://github.com/k2-fsa/icefall, and name that",
            )
        self._git_directory = Path(lines[1])
        # The folder of what `undo` needs: the original files by their numbers, and the record.
        self._state = self._git_directory / _STATE
        self._plan = Replacement(self._git_directory / f"{_STATE}.new", self._root)

    @property
    def applied(self) -> bool:
        return (self._state / _RECORD).exists()

    def apply(self) -> Result:
        """Rewrites the recipes: all of them, or nothing changes."""
        with self._held():
            if self.applied:
                raise errors.K2mpsError(
                    f"{self._root} has been rewritten already",
                    next_command=f"k2mps recipes icefall {self._root} --undo restores it",
                )
            edited = split_z(self._git.bytes("diff", "--name-only", "-z", "HEAD", work_tree=True))
            if edited:
                raise errors.K2mpsError(
                    f"{self._root} has edits that are not committed",
                    why=errors.some(edited),
                    next_command="commit or stash them, then run the same command again",
                )
            written, left = self._rewritten()
            if not written:
                raise errors.K2mpsError(
                    f"{self._root} has nothing to rewrite",
                    why="none of the known call shapes of CUDA is in it",
                    next_command=f"git -C {self._root} status shows the branch; check out another",
                )
            shutil.rmtree(self._state, ignore_errors=True)  # of a run that was killed
            self._state.mkdir()
            for number, path in enumerate(written):
                shutil.copyfile(self._root / path, self._state / str(number))
            digests = {path: sha256(content) for path, content in written.items()}
            self._replace(written, digests)
        return Result(tuple(written), left=left)

    def undo(self) -> Result:
        """Restores the files that `apply` rewrote: all of them, or nothing changes."""
        with self._held():
            if not self.applied:
                raise errors.K2mpsError(
                    f"{self._root} has not been rewritten, or --undo has restored it",
                    next_command=f"k2mps recipes icefall {self._root} rewrites it",
                )
            record = json.loads((self._state / _RECORD).read_text(encoding="utf-8"))
            restored: dict[str, bytes] = {}
            merged, clashing = [], []
            for number, (path, digest) in enumerate(record.items()):
                file = self._root / path
                if not file.exists():
                    continue  # the user's to delete
                now, original = file.read_bytes(), (self._state / str(number)).read_bytes()
                if sha256(now) == digest:
                    restored[path] = original
                elif now != original:
                    rewritten = rewriting.rewrite(original.decode("utf-8"))[0].encode("utf-8")
                    content = self._git.merge(now, rewritten, original)
                    if content is None:
                        clashing.append(path)
                    else:
                        restored[path] = content
                        merged.append(path)
            if clashing:
                raise errors.K2mpsError(
                    f"{clashing[0]} has edits in lines that undo would restore",
                    why="; ".join(clashing),
                    next_command=f"git -C {self._root} diff shows the edits; revert those in"
                    " lines with `gpu`, then run the same command again",
                )
            self._replace(restored, None)
        return Result(tuple(restored), tuple(merged))

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Keeps other runs away; first completes a killed run."""
        with exclusive(self._git_directory, str(self._root)):
            if self._plan.note is not None:
                self._complete()
                self._reporter.warn("an earlier run was killed, which is complete now")
            yield

    def _rewritten(self) -> tuple[dict[str, bytes], dict[str, str]]:
        """The contents to write, and what still needs CUDA; both by path."""
        written, left = {}, {}
        entries = split_z(self._git.bytes("ls-files", "-z", "--stage"))
        with self._reporter.task("rewriting") as task:
            for number, entry in enumerate(entries):
                mode, path = entry.split(" ", 1)[0], entry.split("\t", 1)[1]
                if not (mode.startswith("100") and path.endswith(".py")):
                    continue  # a link to another of them, or no Python
                task.update(number, len(entries), path)
                content = (self._root / path).read_bytes()
                try:
                    text, needs = rewriting.rewrite(content.decode("utf-8"))
                except ValueError as error:
                    left[path] = f"stays as it is: {error}"
                    continue
                if needs:
                    left[path] = needs
                if text.encode("utf-8") != content:
                    written[path] = text.encode("utf-8")
        return written, left

    def _replace(self, contents: Mapping[str, bytes], record: Mapping[str, str] | None) -> None:
        """Writes files, all or none.

        Args:
          record: what `undo` needs besides the original files; None where there is nothing to undo.
        """
        files = {
            path: File(content, os.access(self._root / path, os.X_OK))
            for path, content in contents.items()
        }
        self._plan.prepare(files, (), {"record": record})
        with interrupts.deferred():
            self._complete()

    def _complete(self) -> None:
        """Carries the plan out."""
        self._plan.complete()
        record = self._plan.note["record"]
        if record is None:
            shutil.rmtree(self._state, ignore_errors=True)
        else:
            (self._state / _RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
        self._plan.discard()
