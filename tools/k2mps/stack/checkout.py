"""A k2 checkout: what stands in it, and moving it.

`Checkout` knows a working tree and its repository.  It reads facts (HEAD,
edits, the commits on top of the pin) and changes one thing only: `move_to`
takes the working tree from one commit to another as a transaction.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

from k2mps.core import errors, git, interrupts, objects, transaction
from k2mps.core.progress import Reporter
from k2mps.core.project import exclusive

BRANCH = "k2-mps"
BRANCH_REF = f"refs/heads/{BRANCH}"

# The last commit of the series as it was applied or exported: what the
# commits on the branch are made from.
BASE_REF = "refs/k2mps/base"

# The last entry of the operation log; each worktree has its own.
LOG_REF = "refs/worktree/k2mps/operations"

_NO_COMMIT = "0" * 40

# A file in the git directory of a clone that the tool has made.
OWN_MARK = "k2mps-own"

# Files in a git directory that tell of an operation the user is amid, in
# words, and the command that ends it.
_IN_PROGRESS = {
    "rebase-merge": ("a rebase", "rebase"),
    "rebase-apply/applying": ("a git am", "am"),
    "rebase-apply": ("a rebase", "rebase"),
    "MERGE_HEAD": ("a merge", "merge"),
    "CHERRY_PICK_HEAD": ("a cherry-pick", "cherry-pick"),
    "REVERT_HEAD": ("a revert", "revert"),
}


class Author(NamedTuple):
    """Who wrote a commit, and when."""

    who: str  # "NAME <EMAIL>"
    date: str  # as in mail, "Tue, 14 Nov 2023 23:13:20 +0100"

    def variables(self) -> dict[str, str]:
        """The environment in which git makes a commit by this author."""
        name, _, email = self.who[:-1].rpartition(" <")
        return {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_AUTHOR_DATE": self.date}


class Commit(NamedTuple):
    id: str
    parents: tuple[str, ...]
    committer: str
    author: Author
    message: str

    @property
    def ours(self) -> bool:
        """Whether the tool made the commit: a user who amends it is its committer."""
        return self.committer == f"{git.IDENTITY_NAME} {git.IDENTITY_EMAIL}"

    def __str__(self) -> str:
        return f"{self.id[:12]} {self.subject}"

    @property
    def subject(self) -> str:
        return self.message.split("\n", 1)[0]


class Change(NamedTuple):
    """What differs in one file between two commits."""

    kind: str  # A, M, D or T
    path: str
    # old_mode, new_mode: zeros where the file does not exist
    old_mode: str
    new_mode: str
    # old_id, new_id: blob ids; None where the file does not exist
    old_id: str | None
    new_id: str | None


@dataclasses.dataclass(frozen=True)
class Head:
    """Where a checkout stands."""

    # commit, tree: ids of the commit that is checked out and of its tree
    commit: str
    tree: str
    branch: str | None  # full name of the branch, or None where HEAD is detached

    @property
    def name(self) -> str:
        """The full name of the branch, or the commit where HEAD is detached."""
        return self.branch or self.commit


class Move(NamedTuple):
    """The destination of a checkout."""

    refs: Mapping[str, str | None]  # refs to set, the branch of `head` among them; None deletes one
    # The commit of its files and index, and HEAD: the full name of a branch, or `commit` for a
    # detached HEAD.  Both are empty where only refs are set.
    commit: str = ""
    head: str = ""


class Checkout:
    """A working tree of k2 and the repository it belongs to.

    Attributes:
      directory: its top directory, resolved.
      git_dir: its git directory; a linked worktree has one of its own.
      own: whether the tool cloned it.
      git: runs git in it.
    Raises:
      CheckoutMissingError: there is no working tree whose top is `directory`.
    """

    def __init__(self, directory: Path, reporter: Reporter = Reporter()):
        self.directory = Path(directory)
        self.reporter = reporter
        self.git = git.Git(self.directory, reporter=reporter)
        if not self.directory.is_dir():
            raise errors.CheckoutMissingError(
                f"there is no k2 checkout at {self.directory}", next_command="k2mps checkout"
            )
        result = self.git.run("rev-parse", "--show-toplevel", "--absolute-git-dir")
        lines = os.fsdecode(result.stdout).splitlines()
        if result.status != 0 or len(lines) != 2:
            raise errors.CheckoutMissingError(
                f"{self.directory} is not a git checkout",
                why=result.stderr,
                next_command="give the directory of a clone of k2 as K2",
            )
        top, git_dir = lines
        if not os.path.samefile(top, self.directory):
            raise errors.CheckoutMissingError(
                f"{self.directory} is not the top of a git checkout",
                why=f"it lies in the one at {top}",
                next_command="give the top directory of a clone of k2 as K2",
            )
        self.directory = self.directory.resolve()
        self.git_dir = Path(git_dir)
        self._index = _Index(self.git_dir)
        self.own = self.git.literal = (self.git_dir / OWN_MARK).exists()

    def has(self, commit: str) -> bool:
        return self.git.succeeds("cat-file", "-e", f"{commit}^{{commit}}")

    def commit_of(self, name: str, kind: str = "commit") -> str | None:
        """The id of the commit that a revision names, or of its tree; None
        where the repository lacks it."""
        result = self.git.run("rev-parse", "--verify", "--quiet", f"{name}^{{{kind}}}")
        return os.fsdecode(result.stdout).strip() or None

    def tree_of(self, commit: str) -> str:
        return self.git.text("rev-parse", f"{commit}^{{tree}}")

    def head(self) -> Head:
        """Where the checkout stands."""
        result = self.git.run(
            "rev-parse", "HEAD^{commit}", "HEAD^{tree}", "--symbolic-full-name", "HEAD"
        )
        lines = os.fsdecode(result.stdout).splitlines()
        if result.status != 0 or len(lines) != 3:
            raise errors.K2mpsError(
                f"{self.directory} has no commit checked out",
                why=result.stderr,
                next_command="git -C DIRECTORY checkout COMMIT",
            )
        commit, tree, branch = lines
        return Head(commit, tree, None if branch == "HEAD" else branch)

    def edited_files(self) -> list[str]:
        """Tracked files that differ from HEAD, staged or not."""
        return self.changed_files(untracked=False)[0]

    def changed_files(self, untracked: bool = True) -> tuple[list[str], list[str]]:
        """As `edited_files`; and, if asked for, the files and whole directories that git neither
        tracks nor ignores."""
        output = self.git.bytes(
            *"status --porcelain=v1 -z --no-renames".split(),
            f"--untracked-files={'normal' if untracked else 'no'}",
            "--ignore-submodules=none",
            work_tree=True,
        )
        entries = git.split_z(output)
        return (
            [entry[3:] for entry in entries if not entry.startswith("??")],
            [entry[3:] for entry in entries if entry.startswith("??")],
        )

    def untracked_files(self) -> list[str]:
        """Files that git neither tracks nor ignores."""
        output = self.git.bytes("ls-files", "-z", "--others", "--exclude-standard", work_tree=True)
        return git.split_z(output)

    def operation_in_progress(self) -> tuple[str, str]:
        """The git operation that waits for the user, in words, and the commands
        that end it; empty texts where there is none."""
        for name, (words, command) in _IN_PROGRESS.items():
            if (self.git_dir / name).exists():
                return words, f"git -C {self.directory} {command} --continue, or --abort"
        return "", ""

    def check_at_rest(self, edits_too: bool = True) -> None:
        """Refuses a checkout with an unfinished git operation, or with edits."""
        operation, _ = self.operation_in_progress()
        edited = self.edited_files() if edits_too and not operation else []
        if operation or edited:
            what = f"{operation} in progress"
            if edited:
                what = f"uncommitted edits in {errors.some(edited)}"
            raise errors.K2mpsError(
                f"{self.directory} has {what}",
                next_command=f"git -C {self.directory} status; finish, commit or stash"
                " that, then run the same command again",
            )

    def commits(self, *revisions: str) -> list[Commit]:
        """Commits that `git log` lists for these arguments, oldest first,
        following first parents."""
        output = self.git.bytes(
            *"log -z --reverse --first-parent --no-notes --no-decorate".split(),
            "--format=%H%x00%P%x00%cn %ce%x00%an <%ae>%x00%aD%x00%B",
            *revisions,
            "--",
        )
        fields = git.split_z(output)
        return [
            Commit(id_, tuple(parents.split()), committer, Author(who, date), message)
            for id_, parents, committer, who, date, message in zip(*[iter(fields)] * 6)
        ]

    def unexported(self, pin: str, tip: str) -> list[Commit]:
        """Commits up to `tip` that only the user has: neither the tool's own, nor
        in patches/, nor upstream's.

        Where the pin is no ancestor of `tip`, only the last commit counts.
        """
        start = self.base()
        if tip == start or self.is_ancestor(tip, pin):
            return []
        if not start or not self.is_ancestor(start, tip):
            start = pin
        if self.is_ancestor(start, tip):
            above = self.commits(tip, "--not", start, "--remotes")
        else:
            above = self.commits("--max-count=1", tip)
        return [commit for commit in above if not commit.ours]

    def is_ancestor(self, commit: str, tip: str) -> bool:
        """Whether `commit` is `tip` or one of its ancestors; False where the
        repository does not have it."""
        return commit == tip or self.git.succeeds("merge-base", "--is-ancestor", commit, tip)

    def base(self) -> str | None:
        """The series' last commit when it was last applied or exported."""
        return self.commit_of(BASE_REF)

    def set_refs(
        self,
        refs: Mapping[str, str | None],
        reason: str,
        before: Mapping[str, str | None] | None = None,
    ) -> None:
        """Sets refs, all or none; None deletes one.

        Args:
          before: the values that the refs must have now; default: any.
        """
        before = before or self.refs(refs)
        lines = [
            f"update {name} {commit or _NO_COMMIT} {before[name] or _NO_COMMIT}\n"
            for name, commit in refs.items()
        ]
        self.git.bytes(
            "update-ref", "-m", f"k2mps: {reason}", "--stdin", stdin="".join(lines).encode()
        )

    def refs(self, names: Iterable[str]) -> dict[str, str | None]:
        """The commits of refs, by full name; None for a ref that does not exist."""
        found = dict.fromkeys(names)
        output = self.git.text("for-each-ref", "--format=%(objectname) %(refname)", *found)
        for line in output.splitlines():
            commit, name = line.split(" ", 1)
            if name in found:
                found[name] = commit
        return found

    def other_worktree_on_branch(self) -> str | None:
        """The directory of another worktree that is on k2-mps, or None."""
        if not (self.git_dir / "commondir").exists() and not (self.git_dir / "worktrees").exists():
            return None  # there is no other one
        output = self.git.text("worktree", "list", "--porcelain")
        for block in output.split("\n\n"):
            lines = block.splitlines()
            if f"branch {BRANCH_REF}" not in lines:
                continue
            directory = lines[0][len("worktree ") :]
            # A submodule's own is listed by its git directory.
            own = (self.directory, self.git_dir)
            if not (os.path.exists(directory) and any(map(Path(directory).samefile, own))):
                return directory
        return None

    def changes(self, old: str, new: str) -> list[Change]:
        """What differs between two commits or trees."""
        output = self.git.bytes("diff-tree", "-r", "-z", "--no-renames", "--raw", old, new)
        return _parse_changes(git.split_z(output))

    def changes_of(self, commits: Sequence[Commit]) -> dict[str, list[Change]]:
        """What each commit changes, by its id."""
        output = self.git.bytes(
            *"diff-tree --stdin --always -r -z --no-renames --raw".split(), stdin=stdin_of(commits)
        )
        found: dict[str, list[Change]] = {}
        changes: list[Change] = []
        fields = iter(git.split_z(output))
        for field in fields:
            if field.startswith(":"):
                changes += _parse_changes([field, next(fields)])
            else:
                changes = found[field] = []
        return found

    def diff(self, old: str, new: str) -> bytes:
        """What leads from one commit or tree to another, for a 3-way `git apply`."""
        options = "diff-tree -r -p --full-index --binary --no-renames -U3"
        return self.git.bytes(*options.split(), old, new)

    def renames(self, old: str, new: str) -> dict[str, str]:
        """Where files of one commit lie in another, if git can tell."""
        options = "diff-tree -r -z --find-renames --diff-filter=R --name-status"
        fields = git.split_z(self.git.bytes(*options.split(), old, new))
        return dict(zip(fields[1::3], fields[2::3]))

    def commit_tree(
        self, tree: str, parent: str, message: str, variables: Mapping[str, str]
    ) -> str:
        """Commits a tree; no ref names the commit yet.

        Args:
          variables: who made it, and when, in git's environment.
        """
        return self.git.text(
            "commit-tree", tree, "-p", parent, stdin=os.fsencode(message), environment=variables
        )

    def user(self) -> tuple[str, str]:
        """Name and address of the user, as git knows them; or empty."""
        name, email = (self.git.run("config", f"user.{key}") for key in ("name", "email"))
        return tuple(one.stdout.decode("utf-8", "replace").strip() for one in (name, email))

    def remove_worktree(self, directory: Path) -> None:
        """Removes a worktree of the tool's own, with all that is in it."""
        import shutil  # It takes time to import, and `k2mps status` does without.

        shutil.rmtree(directory, ignore_errors=True)
        self.git.bytes("worktree", "prune")

    def exclusive(self) -> contextlib.AbstractContextManager[int]:
        """A context in which no other run of the tool changes this checkout."""
        return exclusive(self.git_dir, str(self.directory))

    @contextlib.contextmanager
    def scratch_index(self) -> Iterator[git.Git]:
        """git with an empty index that lives as long as the context.

        The caller holds `exclusive`.
        """
        index = self.git_dir / "k2mps-index"
        leavings = (index, index.with_name(f"{index.name}.lock"))
        try:
            for path in leavings:
                path.unlink(missing_ok=True)  # of a run that was killed
            yield self.git.with_index(index)
        finally:
            with interrupts.deferred():
                for path in leavings:
                    path.unlink(missing_ok=True)

    @property
    def area(self) -> Path:
        """Where a move of this checkout is staged."""
        here = os.stat(self.directory).st_dev
        if os.stat(self.git_dir).st_dev == here:
            return self.git_dir / "k2mps"
        # The repository of a linked worktree can lie on another disk.
        return self.directory / ".k2mps"

    def tidy(self) -> None:
        """As `recover`, for callers that do not hold `exclusive`."""
        if self.area.exists():
            with self.exclusive():
                self.recover()

    def recover(self) -> None:
        """Undoes what a killed run left half done; needs `exclusive`."""
        leftover = transaction.leftover(self.area)
        if leftover is None:
            self._index.forget()
            return
        head, note = self.head(), leftover.note
        if (head.name, head.commit) == (note["to_head"], note["to"]):
            self._index.forget()  # the last step of the move has been done
            leftover.close()
            return
        leftover.check_unedited()
        with interrupts.deferred():
            self._restore_refs(leftover.note)
            self._index.restore()
            leftover.undo()
        self.reporter.warn(
            f"an earlier run was killed while it changed {self.directory};"
            " its changes have been undone"
        )

    def move_to(
        self, move: Move, reason: str, head: Head, refs: Mapping[str, str | None] | None = None
    ) -> list[str]:
        """Moves HEAD, index, files and refs to a destination.

        All or nothing: an error, Ctrl-C or a full disk leaves everything as it was.  Only files
        whose content differs are written.  The caller holds `exclusive`, has checked that nothing
        is edited, and has called `recover`.

        Args:
          head: where the checkout stands.
          refs: the present values of the refs of `move`, if the caller knows.
        Returns:
          The paths that were written or removed.
        Raises:
          BusyError: a git command holds the index.
        """
        changes = [(one.kind, one.path) for one in self.changes(head.commit, move.commit)]
        self._check_in_place(changes)
        files = transaction.FileTransaction(self.area, self.directory)
        try:
            self._stage(files, head, move.commit, changes)
            with interrupts.deferred() as check:
                self._index.take()
                edited = self.edited_files()
                if edited:
                    raise errors.K2mpsError(
                        f"{self.directory / edited[0]} was edited meanwhile",
                        next_command="commit or stash that, then run the same command again",
                    )
                self._swap(files, head, move, changes, reason, check, refs)
        finally:
            with interrupts.deferred():
                self._index.forget()
                files.close()
        return [path for _, path in changes]

    def _stage(self, files, head, commit, changes) -> None:
        """Writes the new files and the new index beside the old ones."""
        index = self.git.with_index(self._index.fresh())
        index.bytes("read-tree", "-i", "-m", head.commit, commit)
        wanted = [path for kind, path in changes if kind != "D"]
        files.staged.mkdir()
        index.bytes(
            "checkout-index",
            f"--prefix={files.staged}/",
            "-z",
            "--stdin",
            stdin=b"".join(os.fsencode(path) + b"\0" for path in wanted),
            work_tree=True,
        )

    def _swap(self, files, head, move, changes, reason, check, refs) -> None:
        """Changes the user's tree; undoes that unless it completes."""
        note = {
            "head": head.name,
            "refs": dict(refs or self.refs(move.refs)),
            "to": move.commit,
            "to_head": move.head,
        }
        self._index.keep()
        files.begin([path for _, path in changes], note)
        try:
            removed = [path for kind, path in changes if kind == "D"]
            files.swap((path for kind, path in changes if kind != "D"), removed, check)
            self.git.with_index(self._index.new).run(
                "update-index", "-q", "--refresh", work_tree=True
            )
            check()
            self._index.replace()
            self.set_refs(move.refs, reason, note["refs"])
            check()
            self._set_head(move.head, reason)
            files.complete()
        except BaseException:
            self._restore_refs(note)
            self._index.restore()
            files.roll_back()
            raise

    def _check_in_place(self, changes) -> None:
        """Refuses to replace a file that git could not restore."""
        removed = {self.directory / path for kind, path in changes if kind == "D"}
        added = [self.directory / path for kind, path in changes if kind == "A"]
        for place in filter(os.path.lexists, added):
            self._check_free(place, removed)
        self._check_parents(added, removed)
        tracked = [path for kind, path in changes if kind != "A"]
        for path in self._hidden(tracked):
            raise errors.K2mpsError(
                f"git is told not to look at {self.directory / path}",
                why="it is marked assume-unchanged or skip-worktree, or left"
                " out by a sparse checkout; an edit there would be lost",
                next_command="git sparse-checkout disable; git update-index"
                f" --no-assume-unchanged --no-skip-worktree {path}",
            )

    def _check_free(self, place: Path, removed: Set[Path]) -> None:
        """Refuses to add a file where one is, or a folder that stays."""
        # A folder goes with its last file.
        for one in transaction.strangers(place, removed)[:1]:
            raise errors.K2mpsError(
                f"{place} stands where the series adds a file",
                why=f"git does not track {one}, so replacing it would lose it",
                next_command=f"move {one} away, then run the same command again",
            )

    def _check_parents(self, added: Iterable[Path], removed: Set[Path]) -> None:
        """Refuses to add a file behind a file or a link that stays."""
        for place in {parent for path in added for parent in path.parents} - removed:
            if self.directory in place.parents and transaction.is_file(place):
                raise errors.K2mpsError(
                    f"{place} stands where the series needs a directory",
                    next_command=f"move {place} away, then run the same command again",
                )

    def _hidden(self, paths: Sequence[str]) -> list[str]:
        """Which of these files `git status` passes over."""
        if not paths:
            return []
        output = self.git.bytes("ls-files", "-v", "-z", "--", *paths)
        # A small letter is assume-unchanged, S is skip-worktree.
        return [entry[2:] for entry in git.split_z(output) if entry[0] != "H"]

    def entries(self, commit: str, paths: Iterable[str] = ()) -> dict[str, tuple[str, str]]:
        """Mode and id of each file of a commit; with `paths`, of these files where they exist."""
        output = self.git.bytes("ls-tree", "-r", "-z", commit, "--", *paths)
        found = {}
        for line in git.split_z(output):
            facts, path = line.split("\t", 1)
            mode, _, id_ = facts.split(" ")
            found[path] = (mode, id_)
        return found

    def files(self, commit: str, paths: Iterable[str] = ()) -> dict[str, objects.File]:
        """The files of a commit; with `paths`, these files where they exist."""
        entries = self.entries(commit, paths)
        blobs = objects.read(self.git, (id_ for _, id_ in entries.values()))
        return {
            path: objects.File(blobs[id_], mode == objects.EXECUTABLE_MODE)
            for path, (mode, id_) in entries.items()
        }

    def _set_head(self, head: str, reason: str) -> None:
        if head.startswith("refs/"):
            self.git.bytes("symbolic-ref", "-m", f"k2mps: {reason}", "HEAD", head)
        else:
            self.git.bytes("update-ref", "--no-deref", "-m", f"k2mps: {reason}", "HEAD", head)

    def _restore_refs(self, note: dict) -> None:
        if self.head().name != note["head"]:
            self._set_head(note["head"], "back")
        now = self.refs(note["refs"])
        changed = {name: old for name, old in note["refs"].items() if now[name] != old}
        if changed:
            self.set_refs(changed, "back", now)


class _Index:
    """The index of a checkout while it is replaced.

    The new index and the old one lie beside it, on its disk.  git's own lock file keeps git
    commands away meanwhile.
    """

    _MARK = b"k2mps\n"

    def __init__(self, git_dir: Path):
        self._path = git_dir / "index"
        self._lock = git_dir / "index.lock"
        self._old = git_dir / "k2mps-index-old"
        self.new = git_dir / "k2mps-index-new"

    def fresh(self) -> Path:
        """A copy of the index, to be made the new one."""
        import shutil

        shutil.copy2(self._path, self.new)
        return self.new

    def take(self) -> None:
        """Keeps git commands away."""
        try:
            lock = open(self._lock, "xb")
        except FileExistsError:
            raise errors.BusyError(
                f"{self._lock} exists",
                why="a git command is running in the checkout, or one was killed",
                next_command="if none is running, delete that file",
            ) from None
        try:
            with lock:
                lock.write(self._MARK)
        except OSError:
            self._lock.unlink()
            raise

    def keep(self) -> None:
        transaction.keep(self._path, self._old)

    def replace(self) -> None:
        os.replace(self.new, self._path)

    def restore(self) -> None:
        """Makes the index what it was at `keep`, and forgets the rest."""
        if self._old.exists():
            os.replace(self._old, self._path)
        self.forget()

    def forget(self) -> None:
        """Removes what lies beside the index, and our lock on it."""
        for path in (self._old, self.new, Path(f"{self.new}.lock")):
            path.unlink(missing_ok=True)
        try:
            if self._lock.read_bytes() == self._MARK:
                self._lock.unlink()
        except FileNotFoundError:
            pass


def stdin_of(commits: Sequence[Commit]) -> bytes:
    """Commits and their first parents, for `git diff-tree --stdin`."""
    return "".join(f"{commit.id} {commit.parents[0]}\n" for commit in commits).encode()


def _parse_changes(fields: Sequence[str]) -> list[Change]:
    found = []
    for facts, path in zip(fields[0::2], fields[1::2]):
        old_mode, new_mode, *ids, kind = facts[1:].split(" ")
        found.append(
            Change(kind, path, old_mode, new_mode, *(i if i.strip("0") else None for i in ids))
        )
    return found
