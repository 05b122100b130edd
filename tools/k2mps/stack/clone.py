"""Finds the checkout that the user names, or clones upstream.

If the user names a directory, the tool works in this directory.  Otherwise it makes a clone,
build/k2.  The clone has every commit and blob, so that later work needs no network.  Each file has
exactly the bytes of its blob.  If a clone fails, no incomplete directory stays.
"""

import os
from pathlib import Path

from k2mps.core import errors, git, replacement
from k2mps.core.pins import Pin
from k2mps.core.progress import Reporter
from k2mps.core.project import Project, exclusive
from k2mps.stack.checkout import OWN_MARK, Checkout

# With these settings, the tool and the user's own git write files with exactly the blobs' bytes.
# An empty template gives the clone no hooks.  Without a filter, the clone gets every blob.
_CLONE = (
    "clone",
    "--no-checkout",
    "--no-filter",
    "--template=",
    "--origin=origin",
    "--config=core.autocrlf=false",
    "--config=core.eol=lf",
    "--config=core.symlinks=true",
    f"--config=core.attributesFile={os.devnull}",
)


def locate(project: Project, choice: str | None) -> Path:
    """Returns the directory `choice`, or build/k2 if `choice` is empty; it need not exist."""
    return Path(os.path.expanduser(choice)).absolute() if choice else project.default_checkout


def existing(
    project: Project, pin: Pin, choice: str | None, reporter: Reporter = Reporter()
) -> Checkout:
    """Returns the checkout in the directory `choice`, or build/k2 if `choice` is empty.

    Raises:
      K2mpsError: the directory is not the top of a git checkout.
    """
    directory = locate(project, choice)
    if not directory.is_dir():
        command, why = "k2mps apply", ""
        if choice:
            command = f"git clone {git.quoted(git.redacted(pin.url))} {git.quoted(directory)}"
            why = "--k2 or K2 names this directory, and k2mps clones only into build/k2"
        blocked = "move away what is there, then " if os.path.lexists(directory) else ""
        raise errors.K2mpsError(
            f"there is no k2 checkout at {directory}",
            why=why,
            next_command=f"{blocked}{command}; then the same command again",
        )
    return Checkout(directory, reporter)


def obtain(
    project: Project, pin: Pin, choice: str | None, reporter: Reporter = Reporter()
) -> Checkout:
    """Returns the checkout in the directory `choice`, or build/k2 if `choice` is empty.

    The tool makes the clone build/k2 if it does not exist, and fetches the pinned commit if
    build/k2 lacks it.  The tool only reads a directory that the user chose.

    Raises:
      K2mpsError: `choice` is not the top of a git checkout, or lacks the pinned commit.
      UnreachableError: upstream cannot be reached.
    """
    directory = locate(project, choice)
    if not choice and not os.path.lexists(directory):
        project.build_root.mkdir(exist_ok=True)
        with exclusive(project.build_root, str(project.build_root)):
            if not os.path.lexists(directory):
                _clone(pin, directory, reporter)
    checkout = existing(project, pin, choice, reporter)
    if choice:
        # If the commit is missing, pinned() raises an error: only the user fetches into this
        # checkout.
        checkout.pinned(pin)
    _take_pin(checkout, pin)
    return checkout


def _clone(pin: Pin, directory: Path, reporter: Reporter) -> None:
    """Clones into a new folder, and renames it at the end: `directory` is never incomplete."""
    from k2mps.core import repository  # The import takes time, and most runs clone nothing.

    shown = git.redacted(pin.url)
    with replacement.new_folder(directory, reporter) as partial:
        repository.network(
            directory.parent,
            f"cloning {shown}",
            f"{shown} could not be cloned",
            *_CLONE,
            "--",
            pin.url,
            str(partial),
            reporter=reporter,
        )
        (partial / ".git" / OWN_MARK).touch()
        clone = Checkout(partial, reporter)
        _take_pin(clone, pin)
        clone.git.bytes("checkout", "--quiet", "--detach", pin.commit)


def copy(checkout: Checkout, directory: Path) -> Checkout:
    """Clones the checkout into `directory`, without files, by hard links if possible."""
    parent = git.Git(directory.parent, literal=True, reporter=checkout.reporter)
    parent.bytes(*_CLONE, "--quiet", "--", str(checkout.common_dir), str(directory))
    (directory / ".git" / OWN_MARK).touch()
    return Checkout(directory, checkout.reporter)


def fetch(checkout: Checkout, title: str, failure: str, pin: Pin, *refs: str) -> None:
    """Fetches refs of upstream into the checkout.

    Args:
      title, failure: texts for the user, see `repository.network`.
      refs: refspecs or ids of commits.
    Raises:
      UnreachableError: see `repository.network`.
    """
    from k2mps.core import repository

    arguments = ("fetch", "--no-tags", "--no-write-fetch-head", "--", pin.url, *refs)
    repository.network(checkout.directory, title, failure, *arguments, reporter=checkout.reporter)


def _take_pin(checkout: Checkout, pin: Pin) -> None:
    """Fetches the pinned commit if the checkout lacks it; checks the tree that the pin names."""
    tree = checkout.commit_of(pin.commit, "tree")
    if not tree:
        failure = f"commit {pin.commit} could not be fetched from {git.redacted(pin.url)}"
        fetch(checkout, f"fetching {pin.commit[:12]}", failure, pin, pin.commit)
        tree = checkout.commit_of(pin.commit, "tree")
    if tree != pin.tree:
        raise errors.K2mpsError(
            f"upstream.toml gives the tree {pin.tree} for the pinned commit, but it is {tree}",
            next_command="correct [upstream] tree in upstream.toml",
        )
