"""The commands that change patches give the same result in every kind of checkout.

`carry` runs one sequence of commands.  After these commands, patches/ and upstream.toml must have
the same bytes for every kind of checkout and every git configuration of the user.
"""

import copy
import re
import shutil
import time

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.configurations import CONFIGURATIONS, configure
from k2_mps_tests.tooling.rebasing import rebase
from k2_mps_tests.tooling.sandbox import ARRAY, CONTEXT, LONG_FILE, MPS
from k2_mps_tests.tooling.series_files import drop, patches, write_cover_letters
from k2_mps_tests.tooling.support import git


@pytest.fixture
def onto(sandbox):
    """A newer upstream commit."""
    return support.commit(
        sandbox.upstream,
        "Others' work",
        {CONTEXT: "a line before\n" + LONG_FILE, "k2/csrc/new.cu": "new\n"},
    )


def carry(sandbox, onto, directory=None):
    """Runs a sequence of commands; returns what patches/ and upstream.toml have at the end.

    Args:
      directory: the user's checkout; default: the tool's own.
    """
    k2 = ["--k2", str(directory)] if directory else []
    sandbox.ok("apply", *k2)
    directory = directory or sandbox.checkout
    support.edit(directory / CONTEXT, "line 20", "twenty")
    sandbox.ok("fold", MPS, *k2)
    support.edit(directory / CONTEXT, "line 70", "seventy")
    sandbox.ok("new", "more: a thing", "--why", "Größe.", *k2)
    file = sandbox.root / "patches/more-a-thing.patch"
    date = "Date: Tue, 14 Nov 2023 23:13:20 +0100"
    file.write_text(re.sub("^Date: .*", date, file.read_text(), flags=re.MULTILINE))
    sandbox.ok("apply", *k2)
    drop(sandbox, ARRAY)
    sandbox.ok("apply", *k2)
    sandbox.ok("export", *k2)
    rebase(sandbox, directory, onto)
    sandbox.ok("export", "--onto", onto, *k2)
    moved = patches(sandbox)
    sandbox.ok("apply", *k2)
    sandbox.ok("export", *k2)
    assert patches(sandbox) == moved
    write_cover_letters(sandbox)
    sandbox.ok("upstream", "--branch", "for-k2", *k2)
    assert git(directory, "status", "--porcelain") == ""
    return moved


@pytest.fixture
def reference(sandbox, onto, tmp_path):
    """The result of `carry` in a copy of the sandbox, with the tool's own checkout."""
    name(sandbox)
    plain = copy.copy(sandbox)
    plain.root = tmp_path / "plain"
    plain.checkout = plain.root / "build/k2"
    shutil.copytree(sandbox.root, plain.root)
    return carry(plain, onto)


def name(sandbox, text=""):
    """Writes the user's git configuration: `text`, then the user's name and e-mail address."""
    sandbox.config.write_text(text + "\n[user]\n\tname = A\n\temail = a@example.org\n")


def cloned(*options: str, name: str = "own"):
    """Returns a function that makes a checkout by `git clone` with these options."""
    return lambda sandbox: sandbox.clone(name, *options)


def linked_worktree(sandbox):
    own = sandbox.clone("own")
    git(own, "worktree", "add", "--quiet", "--detach", "../linked")
    return own.parent / "linked"


def shallow(sandbox):
    git(sandbox.upstream, "branch", "--quiet", "at-pin", sandbox.pin)
    return sandbox.clone("shallow", "--depth=1", "--branch=at-pin")


def with_submodule(sandbox):
    """Makes k2 a submodule of the user's repository; returns the submodule's folder."""
    outer = sandbox.root.parent / "outer"
    outer.mkdir()
    git(outer, "init", "--quiet")
    git(outer, "submodule", "--quiet", "add", sandbox.upstream.as_uri(), "k2")
    return outer / "k2"


CHECKOUTS = {
    "linked worktree": linked_worktree,
    "shallow": shallow,
    "odd name": cloned(name="a größer -name, 'quoted'"),
    "crlf": cloned("--config=core.autocrlf=true", "--config=core.eol=crlf"),
    "submodule": with_submodule,
}


@pytest.mark.parametrize("kind", CHECKOUTS)
def test_every_kind_of_checkout_gives_the_same_patches(sandbox, reference, onto, kind):
    own = CHECKOUTS[kind](sandbox)
    git(own, "checkout", "--quiet", "--detach", sandbox.pin)
    assert (b"line 20\r\n" in (own / CONTEXT).read_bytes()) == (kind == "crlf")
    assert carry(sandbox, onto, own) == reference


def test_a_clone_that_lacks_files_or_blobs_is_refused(sandbox):
    git(sandbox.upstream, "config", "uploadpack.allowFilter", "true")
    sparse, partial = sandbox.clone("sparse", "--sparse"), sandbox.clone("p", "--filter=blob:none")
    for own, problem in ((sparse, "a sparse checkout"), (partial, "a partial clone")):
        assert f"is {problem} of k2" in sandbox.fails(1, "apply", "--k2", str(own))


# All configurations are tested together.  If two of them give a value to the same setting, git
# takes the last value.  So the test writes the configurations in both orders.
@pytest.mark.parametrize("step", [1, -1])
def test_the_users_git_configuration_changes_no_patch(sandbox, reference, onto, tmp_path, step):
    name(sandbox, "")
    for configuration in list(CONFIGURATIONS)[::step]:
        configure(sandbox.config, configuration, tmp_path / "named")
    assert carry(sandbox, onto) == reference


@pytest.mark.parametrize("command", ["apply", "export --onto", "new", "fold"])
def test_two_runs_at_once_are_refused(sandbox, onto, tmp_path, command):
    sandbox.obtain() if command == "apply" else sandbox.ok("apply")
    if command in ("new", "fold"):
        support.edit(sandbox.checkout / CONTEXT, "line 20", "twenty")
    if command == "export --onto":
        rebase(sandbox, sandbox.checkout, onto)
    words = {"export --onto": [onto], "new": ["x"], "fold": [MPS]}.get(command, [])
    inside = tmp_path / "inside"
    slow = support.shim(
        tmp_path / "bin", f'case "$*" in *update-ref*) touch "{inside}"; sleep 3;; esac'
    )
    words = [*command.split(), *words]
    first = sandbox.start(*words, env=slow)
    while not inside.exists() and first.poll() is None:
        time.sleep(0.01)
    message = sandbox.fails(17, *words)
    assert "another k2mps" in message
    out, _ = first.communicate()
    assert first.returncode == 0, out
    assert git(sandbox.checkout, "fsck", "--strict", "--no-dangling") == ""
    assert sandbox.state() in ("applied", "pristine", "applied by another version of the series")
