"""Finding the checkout that the user means, and cloning upstream.

The tool uses a directory of the user's in place.  By default it makes a clone under build/.  That
clone has every commit and blob, so that later work needs no network; its files are the bytes of the
commits; and it exists completely or not at all.
"""

import os
import shlex
from pathlib import Path

from k2mps.core import errors, git, interrupts
from k2mps.core.pins import Pin
from k2mps.core.progress import Reporter
from k2mps.core.project import Project, exclusive
from k2mps.stack.checkout import OWN_MARK, Checkout

# The files are to be the bytes of the commit, for the tool and for the user's git.  No template, so
# no hooks; no filter, so every blob is there.
_OPTIONS = (
    "clone --no-checkout --no-filter --template= --origin=origin --config=core.autocrlf=false"
    f" --config=core.eol=lf --config=core.symlinks=true --config=core.attributesFile={os.devnull}"
).split()


def locate(project: Project, choice: str | None) -> Path:
    """The directory of the checkout that `choice` names, if any; it may not exist yet."""
    return Path(os.path.expanduser(choice)).absolute() if choice else project.default_checkout


def obtain(
    project: Project, pin: Pin, choice: str | None, reporter: Reporter = Reporter()
) -> Checkout:
    """The checkout that `choice` names, cloned if need be.

    A clone of the tool's fetches the pin if it lacks it; a directory of the user's is only read.
    """
    directory = locate(project, choice)
    if not choice and not os.path.lexists(directory):
        project.build_root.mkdir(exist_ok=True)
        with exclusive(project.build_root, str(project.build_root)):
            if not os.path.lexists(directory):
                _clone(pin, directory, reporter)
    checkout = Checkout(directory, reporter)
    if choice:
        checkout.pinned(pin)  # only the user fetches into a checkout that the user made
    _take_pin(checkout, pin)
    return checkout


def _clone(pin: Pin, directory: Path, reporter: Reporter) -> None:
    """Clones into a directory beside, then renames: all or nothing."""
    import shutil  # They take time to import, and most runs clone nothing.

    from k2mps.core import repository

    partial = directory.with_name(f"{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        shown = git.redacted(pin.url)
        repository.network(
            directory.parent,
            f"cloning {shown}",
            f"{shown} could not be cloned",
            *(*_OPTIONS, "--", pin.url, str(partial)),
            reporter=reporter,
        )
        (partial / ".git" / OWN_MARK).touch()
        clone = Checkout(partial, reporter)
        _take_pin(clone, pin)
        clone.git.bytes("checkout", "--quiet", "--detach", pin.commit)
        partial.rename(directory)
    finally:
        with interrupts.deferred():
            shutil.rmtree(partial, ignore_errors=True)


def copy(checkout: Checkout, directory: Path) -> Checkout:
    """A clone of the checkout without files, by hard links where the file system has them."""
    here = git.Git(directory.parent, literal=True, reporter=checkout.reporter)
    # git trusts the checkout, but asks again about the folder .git in it.
    trusted = ("-c", "safe.directory=*")
    pack = f"--upload-pack=git {shlex.join(trusted)} upload-pack"
    places = (str(checkout.common_dir), str(directory))
    here.bytes(*trusted, *_OPTIONS, "--quiet", pack, "--", *places)
    (directory / ".git" / OWN_MARK).touch()
    return Checkout(directory, checkout.reporter)


def fetch(
    checkout: Checkout, title: str, failure: str, pin: Pin, *refs: str, options: str = ""
) -> None:
    """Fetches from upstream; the titles and the errors are those of `repository.network`."""
    from k2mps.core import repository

    how = ("--no-tags", "--no-write-fetch-head", *options.split())
    arguments = ("fetch", *how, "--", pin.url, *refs)
    repository.network(checkout.directory, title, failure, *arguments, reporter=checkout.reporter)


def _take_pin(checkout: Checkout, pin: Pin) -> None:
    """Fetches the pinned commit by its id, if the checkout lacks it, and checks its tree."""
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
