"""`k2mps apply` clones the pin, or uses the checkout that K2 or --k2 names."""

import os
import pty
import shlex
import shutil
import subprocess
import sys

import pytest
from k2mps.core import errors, repository

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.series_files import git_commands
from k2_mps_tests.tooling.support import git, snapshot


def test_a_clone_has_every_blob(sandbox):
    sandbox.obtain()
    k2 = sandbox.checkout
    assert git(k2, "rev-parse", "HEAD") == sandbox.pin
    assert git(k2, "remote", "get-url", "origin") == (sandbox.upstream.as_uri())
    assert "promisor" not in (k2 / ".git/config").read_text()
    assert git(k2, "rev-list", "--objects", "--all", "--missing=print", "--quiet") == ""
    assert git(k2, "rev-list", "--count", "HEAD") == "2"


def test_a_second_apply_clones_nothing(sandbox):
    sandbox.ok("apply")
    before = snapshot(sandbox.checkout)
    assert not any(one.startswith("clone") for one in git_commands(sandbox, "apply"))
    assert snapshot(sandbox.checkout) == before


def test_a_list_of_refs_may_be_larger_than_a_pipe(sandbox):
    """git could not end if the tool waited for git's messages before it reads the list."""
    lines = [f"{sandbox.pin} refs/tags/{number:05}\n" for number in range(2000)]
    (sandbox.upstream / ".git/packed-refs").write_text("".join(lines))
    program = (
        "import sys; from pathlib import Path; from k2mps.core import repository;"
        " print(len(repository.remote_refs(Path('.'), sys.argv[1])))"
    )
    asked = sandbox.program(sys.executable, "-c", program, sandbox.upstream.as_uri(), timeout=60)
    assert asked.stdout == "2001\n", asked.stderr


def test_the_name_of_a_ref_need_not_be_utf8(sandbox):
    with (sandbox.upstream / ".git/packed-refs").open("ab") as file:
        file.write(sandbox.pin.encode() + b" refs/tags/caf\xe9\n")
    refs = repository.remote_refs(sandbox.root, sandbox.upstream.as_uri())
    assert refs == {"refs/heads/master": sandbox.pin, "refs/tags/caf\ufffd": sandbox.pin}


def test_an_annotated_tag_stands_for_its_commit(sandbox):
    git(sandbox.upstream, "tag", "--annotate", "-m", "release", "v1")
    refs = repository.remote_refs(sandbox.root, sandbox.upstream.as_uri())
    assert refs["refs/tags/v1"] == sandbox.pin and len(refs) == 2


@pytest.mark.parametrize("wanted", ["refs/heads/none", "1" * 40])
def test_what_upstream_lacks_is_no_failure_of_the_network(sandbox, wanted):
    sandbox.obtain()
    words = ("fetch", "--", sandbox.upstream.as_uri(), wanted)
    with pytest.raises(errors.K2mpsError, match="could not be fetched") as caught:
        repository.network(sandbox.checkout, "fetching", "it could not be fetched", *words)
    assert not isinstance(caught.value, errors.UnreachableError)


def test_a_signal_that_ends_a_clone_is_named(sandbox, tmp_path):
    script = 'case " $* " in *" clone "*) kill -SEGV $$;; esac'
    message = sandbox.fails(1, "apply", env=support.shim(tmp_path / "bin", script))
    assert "git clone was ended by signal 11, Segmentation fault" in message


def test_nothing_is_cloned_into_a_folder_of_the_user(sandbox, tmp_path):
    message = sandbox.fails(1, "apply", "--k2", str(tmp_path / "missing"))
    assert "k2mps clones only into build/k2" in message
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize(
    "old, new, code, message",
    [
        ("URL", "file:///nonexistent", 20, "error: file:///nonexistent could not be cloned\n"),
        ("URL", "https://k2.invalid/k2.git", 20, "k2.git could not be cloned"),
        ("PIN", "1" * 40, 1, "1" * 40),
        ("TREE", "1" * 40, 1, "TREE"),
    ],
)
def test_a_failed_clone_leaves_nothing(sandbox, old, new, code, message):
    words = {
        "URL": sandbox.upstream.as_uri(),
        "PIN": sandbox.pin,
        "TREE": git(sandbox.upstream, "rev-parse", "HEAD^{tree}"),
    }
    config = sandbox.root / "upstream.toml"
    config.write_text(config.read_text().replace(words[old], new))
    found = sandbox.fails(code, "apply")
    assert words.get(message, message) in found and "next: " in found
    assert list((sandbox.root / "build").iterdir()) == []


def test_what_a_killed_run_leaves_is_named_and_stays(sandbox):
    folder = sandbox.root / "build/k2.partial-0123456789abcdef"
    drafts = [sandbox.root / f"{path}.k2mps-draft-{'0' * 16}" for path in ("", "patches/")]
    # Nobody is told to delete folders of the user.
    support.write(sandbox.root / "build/k2.partial-old", {"mine": "x"})
    support.write(folder, {"x": "x"})
    for draft in drafts:
        draft.write_text("x")
    result = sandbox.run("apply")
    assert result.returncode == 0, result.stderr
    for paths in ([folder], drafts[:1], drafts[1:]):
        assert f"delete them: rm -rf {paths[0]}\n" in result.stderr
        assert paths[0].exists()


def test_a_pin_off_the_branches_is_fetched_by_its_id(sandbox):
    sandbox.obtain()
    git(sandbox.upstream, "checkout", "--quiet", "--detach")
    pin = support.commit(sandbox.upstream, "loose", {"loose.txt": "x\n"})
    git(sandbox.upstream, "checkout", "--quiet", "master")
    git(sandbox.upstream, "reflog", "expire", "--expire=now", "--all")
    sandbox.write_config(pin)
    sandbox.obtain()  # The clone exists, so the tool fetches the pin into it.
    assert git(sandbox.checkout, "cat-file", "-t", pin) == "commit"
    sandbox.checkout.rename(sandbox.root / "old")
    sandbox.obtain()
    assert git(sandbox.checkout, "rev-parse", "HEAD") == pin


def test_an_option_or_a_variable_names_the_checkout(sandbox):
    own = sandbox.clone("own")
    assert f"{own}: applied" in sandbox.ok("apply", "--k2", "../own")
    assert f"{own}: already applied" in sandbox.ok("apply", env={"K2": str(own)})
    assert not sandbox.checkout.exists()


def test_the_name_of_the_checkout_can_begin_with_the_home_folder(sandbox):
    # No shell expands `--k2=~/own`.
    own = sandbox.clone("own")
    home = {"HOME": str(own.parent)}
    assert f"{own}: applied" in sandbox.ok("apply", "--k2=~/own", env=home)
    assert not sandbox.checkout.exists()


def test_an_empty_variable_names_no_checkout(sandbox):
    sandbox.ok("apply", env={"K2": ""})
    assert sandbox.checkout.exists()


@pytest.mark.parametrize(
    "script", ["mkdir build; touch build/k2", "mkdir build; ln -s no build/k2"]
)
def test_what_is_in_the_way_of_the_clone_is_named(sandbox, script):
    support.shell(sandbox.root, script)
    assert "next: move away what is there, then " in sandbox.fails(1, "apply")


# A git whose clones find the disk full.
FULL = f"""\
#!/bin/sh
case " $* " in *" clone "*)
  echo "fatal: write error: No space left on device" >&2
  exit 128
esac
exec {shutil.which("git")} "$@"
"""


def test_a_full_disk_is_not_taken_for_a_network_that_fails(sandbox, tmp_path):
    support.write(tmp_path, {"bin/git": FULL})
    (tmp_path / "bin/git").chmod(0o755)
    path = os.pathsep.join([f"{tmp_path}/bin", os.environ["PATH"]])
    message = sandbox.fails(1, "apply", env={"PATH": path})
    assert "no space left while running git clone" in message
    assert "next: free some space" in message


def test_the_progress_of_a_clone_counts_objects(sandbox):
    progress = support.Progress()
    words = ("clone", "--", sandbox.upstream.as_uri(), "copy")
    assert repository.network(sandbox.root, "cloning", "no", *words, reporter=progress) == ""
    counts = {name: (done, total) for done, total, name in progress.steps}
    done, total = counts["Receiving objects"]
    assert done == total > 0


def test_the_messages_of_a_clone_are_told_from_its_progress():
    lines = ["remote: Counting objects: 30, done.\n", "\n", "Receiving objects:  50% (1/2)\n"]
    steps = []
    shown = repository._shown(
        [*lines, "warning: slow\n", "  \n", "fatal: gone\n"], lambda *step: steps.append(step)
    )
    assert shown == "warning: slow\nfatal: gone"
    assert steps == [(30, 0, "Counting objects"), (1, 2, "Receiving objects")]


def test_a_terminal_shows_progress_and_tables(sandbox):
    """Runs the tool on a pseudo-terminal."""
    leader, follower = pty.openpty()
    os.symlink(sys.prefix, sandbox.root / ".venv")
    # `doctor` prints a table, and fails if this machine lacks something that a build needs.
    apply, doctor = map(shlex.join, (sandbox.command("apply"), sandbox.command("doctor")))
    process = subprocess.Popen(
        ["sh", "-c", f"{apply} && ({doctor}; true)"],
        cwd=sandbox.root,
        env={**sandbox.environment, "TERM": "xterm"},
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    shown = b""
    try:
        while chunk := os.read(leader, 4096):
            shown += chunk
    except OSError:  # On Linux, os.read fails when the other side of a terminal is closed.
        pass
    os.close(leader)
    assert process.wait() == 0
    assert b"cloning" in shown
    assert b"\x1b[" in shown  # A live display moves the cursor.
    assert b"applied the series" in shown
    assert "───" in shown.decode() and b"\t" not in shown  # The table has lines.
