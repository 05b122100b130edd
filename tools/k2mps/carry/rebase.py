"""Carries the series to another upstream commit.

`start` makes a temporary clone of the checkout.  In the clone, `_Rebase.run` puts one patch after
the other onto the new pin, and writes only git objects.  At the end, `_Rebase._finish` writes
patches/ and the pin.

If a patch conflicts, the rebase stops.  The clone is renamed to build/rebase, and its files show
the conflict.  After the user has edited the files, `advance` takes them as the patch's result, and
carries the patches that remain.  The headers of the patch files do not change.

If a patch changes nothing on the new pin, the rebase stops as well.  Only the user can drop such a
patch, by its name.

`merge` is a rebase onto the same pin.  It is needed if git has merged the patches of two people
without a conflict, but these patches do not apply one after the other.
"""

import json
import os
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from k2mps.carry import branches
from k2mps.carry.stop import Stop
from k2mps.core import errors, replacement
from k2mps.core.git import quoted
from k2mps.core.pins import Pin
from k2mps.core.project import Project
from k2mps.series import patch_folder
from k2mps.series.patch_text import Patch
from k2mps.stack import applied, commits, export, extraction
from k2mps.stack.checkout import BRANCH, Checkout
from k2mps.stack.commits import Picked
from k2mps.stack.work import Work, at_work, check_no_rebase, rebase_file

_VERSION = re.compile(rb'^set\(K2_VERSION "?([0-9.]+)"?\)', re.MULTILINE)


class Position(NamedTuple):
    """The progress of a rebase, which is saved in a file of the clone's git directory."""

    asked: str  # the user's name for the new pin; empty if the pin stays
    onto: str  # the commit of the new pin
    was: str  # the last commit of the series on the old pin; empty if the pin stays
    start: str  # a commit with patches/ and upstream.toml as they were at the start
    done: Sequence[Sequence[str]] = ()  # (name, commit) of each patch that is carried
    dropped: Sequence[str] = ()  # the names of the dropped patches
    at: str = ""  # the patch at which the rebase waits; empty if it does not wait for the user
    head: str = ""  # the commit that was checked out before patch `at` was applied
    left: Sequence[Sequence[str]] = ()  # (path, blob) of each file that patch `at` changed
    # Whether the files are ready for the user: the conflicts of patch `at` are in the files, and
    # `left` is complete.
    shown: bool = False


class Rebased(NamedTuple):
    """The result of a rebase."""

    pin: Pin  # the new pin
    plan: extraction.Plan  # the written files
    dropped: Sequence[str]  # the patches that were dropped


def start(project: Project, checkout: Checkout, onto: str, drop: Collection[str] = ()) -> Rebased:
    """Begins a rebase onto another upstream commit.

    Args:
      onto: an upstream commit's id, or a branch or tag of upstream.
      drop: the patches that are dropped if they change nothing on the new pin.
    Raises:
      ConflictError: the rebase waits for the user, who must call `advance` or `abort`.
      K2mpsError: the rebase failed; nothing has changed.
    """
    with at_work(project, checkout, rebasing=True) as work:
        if rebase_file(project).exists():
            rebase = _open(project, checkout)
            if rebase.position.at or rebase.position.asked != onto:
                check_no_rebase(project)
            rebase.check_left_alone()
            return rebase.run(drop)  # An earlier run was killed while it wrote patches/.
        _check_free(project)
        users = work.users()
        if users:
            raise errors.K2mpsError(
                f"branch {BRANCH} of {checkout.directory} has commits that are not in patches/",
                why=f"a rebase would leave them on the old pin: {'; '.join(map(str, users))}",
                next_command="k2mps export, then run the same command again",
            )
        tip = work.tip()
        with branches.clone(project, checkout) as clone:
            target = branches.commit_of(clone, work.pin, onto)
            return _begin(work, clone, Position(onto, target, tip, ""), drop)


def merge(project: Project, checkout: Checkout) -> Rebased:
    """Rebases the series onto the same pin; the module's docstring says when that is needed."""
    with at_work(project, checkout) as work:
        _check_free(project)
        with branches.clone(project, checkout) as clone:
            return _begin(work, clone, Position("", work.pin.commit, "", ""), ())


def _begin(work: Work, clone: Checkout, position: Position, drop: Collection[str]) -> Rebased:
    position = position._replace(start=applied.commit(clone, work.files, position.onto))
    return _Rebase(work.project, work.checkout, clone, position).run(drop)


def advance(project: Project, checkout: Checkout, drop: Collection[str] = ()) -> Rebased:
    """Continues a rebase.

    Raises:
      ConflictError: the rebase stops again, or the user's resolution is not complete.
    """
    with at_work(project, checkout, rebasing=True):
        rebase = _open(project, checkout)
        rebase.take_resolution(drop)
        return rebase.run(drop)


def abort(project: Project, checkout: Checkout) -> None:
    """Ends a rebase and deletes build/rebase; patches/ and the checkout do not change.

    Raises:
      ConflictError: build/rebase has work of the user.
    """
    with at_work(project, checkout, rebasing=True):
        rebase = _open(project, checkout)
        rebase.check_left_alone()
        rebase.remove()


def _open(project: Project, checkout: Checkout) -> "_Rebase":
    """Reads the rebase that waits in build/rebase; raises an error if there is none."""
    try:
        position = Position(**json.loads(rebase_file(project).read_text(encoding="utf-8")))
        clone = Checkout(project.rebase, checkout.reporter)
    except (FileNotFoundError, NotADirectoryError):
        raise errors.K2mpsError(
            "no rebase is in progress", next_command="k2mps rebase --onto REV"
        ) from None
    except (TypeError, ValueError, errors.CheckoutMissingError) as error:
        raise errors.ConflictError(
            f"the rebase in {project.rebase} cannot be read",
            why=f"it is broken, or another version of k2mps began it: {error.args[0]}",
            next_command="delete the folder, if you do not need it: rm -rf"
            f" {quoted(project.rebase)}",
        ) from None
    if position.at and clone.operation_in_progress() == "cherry-pick":
        # git has written the conflict into the files, but the run was killed before it set `shown`.
        position = position._replace(shown=True)
    return _Rebase(project, checkout, clone, position)


def _check_free(project: Project) -> None:
    """Raises an error if a rebase waits, or if build/rebase exists but is no rebase."""
    check_no_rebase(project)
    if os.path.lexists(project.rebase):
        raise errors.K2mpsError(
            f"{project.rebase} exists, but is not a rebase of k2mps",
            why="a rebase needs this folder if it stops",
            next_command="move it away, or delete it; then run the same command again",
        )


class _Rebase:
    """A rebase in a clone of the checkout."""

    def __init__(self, project: Project, checkout: Checkout, clone: Checkout, position: Position):
        self.position = position
        self._project, self._checkout, self._clone = project, checkout, clone
        files = clone.objects.files(position.start)
        with applied.unpacked({path: file.content for path, file in files.items()}) as before:
            self._series = patch_folder.load(before.patches)
            self._old = clone.pinned(before.upstream().pin)
        self._base = applied.entries(files)
        self._date = commits.commit_date(clone, position.onto)
        self.stop = Stop(project, clone)

    def check_left_alone(self) -> None:
        """Raises `ConflictError` if the user has done anything in build/rebase."""
        position, where = self.position, quoted(self._project.rebase)
        if position.at:
            advice = f"delete the folder yourself, if you do not need it: rm -rf {where}"
        else:
            here = f"git -C {where}"
            advice = f"copy it elsewhere; then {here} checkout --force --detach {position.head};"
            advice += f" {here} clean -d --force; k2mps rebase --continue"
        if position.shown and self.stop.touched(position.head, position.left):
            raise errors.ConflictError(
                f"{self._project.rebase} has work of yours since the rebase stopped",
                next_command=advice,
            )
        self._check_nothing_lost()

    def _check_nothing_lost(self) -> None:
        """Raises `ConflictError` if the end of the rebase would delete work of the user.

        Such work in build/rebase is a branch, a stash, or files that git ignores.
        """
        carried = [commit for _, commit in self.position.done]
        names = self.stop.branches([*carried, self.position.head or self.position.onto])
        here, there = quoted(self._project.rebase), quoted(self._checkout.directory)
        if names:
            raise errors.ConflictError(
                f"{errors.some(names)} in {self._project.rebase} has commits of yours",
                why="the folder is deleted when the rebase ends",
                next_command=f"git -C {there} fetch {here} {names[0]}:refs/heads/of-the-rebase,"
                f" which keeps them; git -C {here} update-ref -d {names[0]}; then the same command"
                " again",
            )
        ignored = self.stop.ignored()
        if ignored:
            raise errors.ConflictError(
                f"{self._project.rebase} has work of yours that git ignores:"
                f" {errors.some(ignored)}",
                why="the folder is deleted when the rebase ends",
                next_command=f"copy it elsewhere, if you need it; then git -C {here} clean -d"
                " --force -X; then the same command again",
            )

    @property
    def _tip(self) -> str:
        return self.position.done[-1][1] if self.position.done else self.position.onto

    def run(self, drop: Collection[str]) -> Rebased:
        """Carries the remaining patches, then writes patches/ and the pin."""
        drop = {self._series.named(one).name for one in drop}
        patches, position = self._series.patches, self.position
        old = self._clone.commits(f"{self._old.commit}..{position.was}") if position.was else ()
        settled = {name for name, _ in position.done} | {*position.dropped}
        for number, patch in enumerate(patches):
            if patch.name in settled:
                continue
            tree = self._clone.tree_of(self._tip)
            reason = ""
            try:
                if old:
                    picked = commits.pick(self._clone.objects, old[number], tree)
                else:
                    picked = commits.apply_patch(
                        self._project, self._clone, patch, self._series, tree
                    )
            except commits.DoesNotApplyError as error:
                picked, reason = Picked(tree, (), ""), error.what.partition(": ")[2]
            if reason or picked.conflicts:
                self._wait(patch, picked, reason)
            elif picked.tree != tree:
                self._carry(patch, picked.tree)
            elif patch.name in drop:
                self.position = self.position._replace(dropped=[*self.position.dropped, patch.name])
            else:
                self._wait(patch, picked, f"{position.onto[:12]} has its changes already")
        return self._finish()

    def _carry(self, patch: Patch, tree: str) -> str:
        """Commits the tree that a patch makes on the new pin, and records the patch as done."""
        commit = commits.commit_of_patch(self._clone.objects, patch, tree, self._tip, self._date)
        self.position = self.position._replace(done=[*self.position.done, (patch.name, commit)])
        return commit

    def _save(self) -> None:
        path = self._clone.directory / ".git" / rebase_file(self._project).name
        replacement.rewrite(path, json.dumps(self.position._asdict()))

    def _settle(self) -> None:
        """Saves the progress, and renames the clone to build/rebase.

        If the tool is killed later, build/rebase and the progress are still there.
        """
        self._save()
        if self._clone.directory != self._project.rebase.resolve():
            self._clone.directory.rename(self._project.rebase)
            self._clone = Checkout(self._project.rebase, self._checkout.reporter)
            self.stop = Stop(self._project, self._clone)

    def _wait(self, patch: Patch, picked: Picked, reason: str) -> None:
        """Applies a patch to the files of build/rebase; raises an error that tells the user what to
        do."""
        self.position = self.position._replace(at=patch.name, head=self._tip, shown=False)
        self._save()
        kinds = self.stop.show(self.position.head, picked)
        self.position = self.position._replace(left=self.stop.differing(), shown=True)
        self._settle()
        if picked.conflicts:
            what = f"{self._place(patch)} conflicts with {self.position.onto[:12]}"
            raise errors.ConflictError(
                f"{what} in {', '.join(picked.conflicts)}",
                why="\n".join(filter(None, [*kinds, self._culprits(picked.conflicts)])),
                next_command=f"edit the files in {self._project.rebase}, then k2mps rebase"
                " --continue; or k2mps rebase --abort",
            )
        raise self._nothing(patch, reason)

    def _nothing(self, patch: Patch, reason: str) -> errors.ConflictError:
        return errors.ConflictError(
            f"{self._place(patch)} changes nothing in {self._project.rebase}",
            why=reason,
            next_command=f"k2mps rebase --continue --drop {patch.name}, which drops it; or make its"
            " changes there by hand, then k2mps rebase --continue; or k2mps rebase --abort",
        )

    def _place(self, patch: Patch) -> str:
        patches = self._series.patches
        return f"patch {patches.index(patch) + 1} of {len(patches)}, patches/{patch.name},"

    def _culprits(self, paths: Sequence[str]) -> str:
        """Returns lines about the 8 newest upstream commits that touched the files `paths`."""
        how = "log --full-history --no-merges --reverse --max-count=8 --abbrev=12".split()
        how.append("--format=touched by %h %cs %an: %s")
        way = f"{self._old.commit}...{self.position.onto}"
        return self._clone.objects.text(*how, way, "--", *paths)

    def take_resolution(self, drop: Collection[str]) -> None:
        """Takes the user's files as the result of the patch at which the rebase waits.

        Args:
          drop: the patches to drop.  If the patch at which the rebase waits is one of these, the
            files of build/rebase are reset.
        Raises:
          ConflictError: the resolution is not complete, or patches/ has changed since the start.
        """
        position = self.position
        if not position.at:
            self.check_left_alone()
            return
        self._check_unchanged()
        patch = self._series.named(position.at)
        if not position.shown:  # A run was killed before it asked the user.
            self.stop.clear(position.head)
        elif patch.name in {self._series.named(one).name for one in drop}:
            self.stop.discard(position.head, position.left)
            position = position._replace(dropped=[*position.dropped, patch.name])
        else:
            tree = self.stop.resolution(position.head)
            if tree == self._clone.tree_of(position.head):
                raise self._nothing(patch, "your resolution changes nothing")
            self._check_format(patch, tree)
            commit = self._carry(patch, tree)
            self.stop.settle(commit)
            position = self.position._replace(head=commit)
        self.position = position._replace(at="", left=(), shown=True)
        self._save()

    def _check_unchanged(self) -> None:
        """Raises `ConflictError` if patches/ has changed since the rebase began."""
        now = applied.entries(applied.files(self._project))
        changed = applied.differing(self._base, now)
        if changed:
            raise errors.ConflictError(
                f"{errors.some(changed, 5)} changed since the rebase began",
                why="k2mps rebase --continue would overwrite these changes",
                next_command="git stash push --include-untracked patches upstream.toml, then k2mps"
                " rebase --continue, then git stash pop",
            )

    def _check_format(self, patch: Patch, tree: str) -> None:
        """Raises `ConflictError` if no patch file can express the user's resolution.

        In that case, the rebase still waits at the patch, so the user can edit the files again.
        """
        tip = commits.commit_of_patch(self._clone.objects, patch, tree, self._tip, self._date)
        pin = self._old._replace(commit=self.position.onto)
        line = self._clone.commits(f"{pin.commit}..{tip}")
        try:
            extraction.plan(self._project, self._clone, line, pin)
        except errors.K2mpsError as error:
            raise errors.ConflictError(
                f"the resolution of patches/{patch.name} cannot be kept: {error.what}",
                why=error.why,
                next_command=f"undo that in {self._project.rebase}, then k2mps rebase --continue;"
                " to change another patch, use k2mps fold after the rebase",
            ) from None

    def _finish(self) -> Rebased:
        position, project = self.position, self._project
        line = self._clone.commits(f"{position.onto}..{self._tip}")
        names = {*extraction.names_of(line, {}), *position.dropped}
        lost = [one.name for one in self._series.patches if one.name not in names]
        if lost:
            raise errors.K2mpsError(
                f"the rebase has lost {errors.some(lost)}",
                next_command="k2mps rebase --abort, and begin again",
            )
        pin = self._old._replace(url=project.upstream().pin.url)
        if position.onto != self._old.commit:
            pin = _pin(self._clone, pin, position.onto)
        plan = extraction.plan(project, self._clone, line, pin)
        export.check_files(project, plan, self._base, "the rebase")
        self._check_nothing_lost()
        self._settle()
        branches.give_objects(self._clone, self._checkout, position.onto)
        export.write(project, plan, self._base, "the rebase")
        self.remove()
        return Rebased(pin, plan, position.dropped)

    def remove(self) -> None:
        """Deletes build/rebase.

        If the tool is killed meanwhile, the folder is still complete, or does not exist.
        """
        import shutil

        shutil.rmtree(self._project.partial, ignore_errors=True)
        self._project.rebase.rename(self._project.partial)
        shutil.rmtree(self._project.partial, ignore_errors=True)


def _pin(clone: Checkout, old: Pin, commit: str) -> Pin:
    """Returns the pin for a commit; reads k2's version from the commit's CMakeLists.txt."""
    result = clone.objects.run("cat-file", "blob", f"{commit}:CMakeLists.txt")
    match = _VERSION.search(result.stdout)
    version = match[1].decode() if match else old.version
    return Pin(old.url, commit, clone.tree_of(commit), version)
