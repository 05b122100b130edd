"""`k2mps checkout` clones the pin, or verifies the checkout that K2 or --k2 names."""

import os
import pty
import shlex
import subprocess
import sys

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import git, snapshot


def test_a_clone_has_every_blob(sandbox):
    assert sandbox.pin in sandbox.ok("checkout")
    k2 = sandbox.checkout
    assert git(k2, "rev-parse", "HEAD") == sandbox.pin
    assert git(k2, "remote", "get-url", "origin") == (sandbox.upstream.as_uri())
    assert "promisor" not in (k2 / ".git/config").read_text()
    assert git(k2, "rev-list", "--objects", "--all", "--missing=print", "--quiet") == ""
    assert git(k2, "rev-list", "--count", "HEAD") == "2"


def test_a_second_checkout_only_verifies(sandbox):
    sandbox.ok("checkout")
    before = snapshot(sandbox.checkout)
    assert not any(one.startswith("clone") for one in support.git_commands(sandbox, "checkout"))
    assert snapshot(sandbox.checkout) == before


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
    found = sandbox.fails(code, "checkout")
    assert words.get(message, message) in found and "next: " in found
    assert list((sandbox.root / "build").iterdir()) == []


def test_a_pin_off_the_branches_is_fetched_by_its_id(sandbox):
    sandbox.ok("checkout")
    git(sandbox.upstream, "checkout", "--quiet", "--detach")
    pin = support.commit(sandbox.upstream, "loose", {"loose.txt": "x\n"})
    git(sandbox.upstream, "checkout", "--quiet", "master")
    git(sandbox.upstream, "reflog", "expire", "--expire=now", "--all")
    sandbox.write_config(pin)
    sandbox.ok("checkout")  # The clone exists, so the tool fetches the pin into it.
    assert git(sandbox.checkout, "cat-file", "-t", pin) == "commit"
    sandbox.checkout.rename(sandbox.root / "old")
    sandbox.ok("checkout")
    assert git(sandbox.checkout, "rev-parse", "HEAD") == pin


def test_k2_names_the_checkout(sandbox, tmp_path):
    own = sandbox.clone("own")
    before = snapshot(own)
    assert str(own) in sandbox.ok("checkout", "--k2", str(own))
    assert str(own) in sandbox.ok("checkout", env={"K2": str(own)})
    assert "own has k2" in sandbox.ok("checkout", "--k2", "../own")
    assert snapshot(own) == before
    assert "no k2 checkout" in sandbox.fails(1, "checkout", "--k2", str(tmp_path / "none"))
    assert not sandbox.checkout.exists()
    sandbox.ok("checkout", env={"K2": ""})
    assert sandbox.checkout.exists()


@pytest.mark.parametrize(
    "script", ["mkdir build; touch build/k2", "mkdir build; ln -s no build/k2"]
)
def test_what_is_in_the_way_of_the_clone_is_named(sandbox, script):
    support.shell(sandbox.root, script)
    for command in ("checkout", "apply"):
        assert "next: move it away, then " in sandbox.fails(1, command)


def test_a_terminal_shows_progress_and_tables(sandbox):
    """Runs the tool on a pseudo-terminal."""
    leader, follower = pty.openpty()
    os.symlink(sys.prefix, sandbox.root / ".venv")
    # `doctor` prints a table, and fails if this machine lacks something that a build needs.
    checkout, doctor = map(shlex.join, (sandbox.command("checkout"), sandbox.command("doctor")))
    process = subprocess.Popen(
        ["sh", "-c", f"{checkout} && ({doctor}; true)"],
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
    assert sandbox.pin.encode() in shown
    assert "───" in shown.decode() and b"\t" not in shown  # The table has lines.
