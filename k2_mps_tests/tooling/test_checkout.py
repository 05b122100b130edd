"""`k2mps checkout`: clones the pin, or takes the checkout that K2 names."""

import os

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import git, snapshot


def test_a_clone_has_every_blob_and_no_filter(sandbox):
    assert sandbox.pin in sandbox.ok("checkout")
    k2 = sandbox.checkout
    assert git(k2, "rev-parse", "HEAD") == sandbox.pin
    assert git(k2, "remote", "get-url", "origin") == (sandbox.upstream.as_uri())
    assert "promisor" not in (k2 / ".git/config").read_text()
    assert git(k2, "rev-list", "--objects", "--all", "--missing=print", "--quiet") == ""
    assert git(k2, "rev-list", "--count", "HEAD") == "2"


def test_a_second_run_only_verifies(sandbox):
    sandbox.ok("checkout")
    before = snapshot(sandbox.checkout)
    commands = support.git_commands(sandbox, "checkout")
    assert "clone" not in support.names(commands)
    assert snapshot(sandbox.checkout) == before


def test_an_unreachable_upstream_is_one_clear_error(sandbox):
    sandbox.upstream.rename(sandbox.upstream.with_name("gone"))
    message = sandbox.fails(20, "checkout")
    assert message.startswith(f"error: {sandbox.upstream.as_uri()} could not be cloned\n")
    assert "next: " in message
    assert list((sandbox.root / "build").iterdir()) == []


def test_an_unresolvable_host_is_the_same(sandbox):
    sandbox.write_config(sandbox.pin, url="https://k2.invalid/k2.git")
    assert "could not be cloned" in sandbox.fails(20, "checkout")


def test_a_commit_that_upstream_lacks(sandbox):
    text = (sandbox.root / "upstream.toml").read_text()
    (sandbox.root / "upstream.toml").write_text(text.replace(sandbox.pin, "1" * 40))
    message = sandbox.fails(1, "checkout")
    assert "1" * 40 in message
    assert not sandbox.checkout.exists()


def test_a_wrong_tree_of_the_pin(sandbox):
    tree = git(sandbox.upstream, "rev-parse", "HEAD^{tree}")
    text = (sandbox.root / "upstream.toml").read_text()
    (sandbox.root / "upstream.toml").write_text(text.replace(tree, "1" * 40))
    assert tree in sandbox.fails(1, "checkout")
    assert not sandbox.checkout.exists()


def test_a_pin_off_the_branches_is_fetched_by_its_id(sandbox):
    git(sandbox.upstream, "checkout", "--quiet", "--detach")
    pin = support.commit(sandbox.upstream, "loose", {"loose.txt": "x\n"})
    git(sandbox.upstream, "checkout", "--quiet", "master")
    git(sandbox.upstream, "reflog", "expire", "--expire=now", "--all")
    sandbox.write_config(pin)
    sandbox.ok("checkout")
    assert git(sandbox.checkout, "rev-parse", "HEAD") == pin


def test_a_newer_pin_is_fetched_into_the_old_clone(sandbox):
    sandbox.ok("checkout")
    pin = support.commit(sandbox.upstream, "later", {"later.txt": "x\n"})
    sandbox.write_config(pin)
    sandbox.ok("checkout")
    assert git(sandbox.checkout, "cat-file", "-t", pin) == "commit"


def test_k2_names_a_directory(sandbox):
    own = sandbox.clone("own")
    before = snapshot(own)
    assert str(own) in sandbox.ok("checkout", "--k2", str(own))
    assert str(own) in sandbox.ok("checkout", env={"K2": str(own)})
    assert snapshot(own) == before
    assert not sandbox.checkout.exists()


def test_k2_names_a_relative_directory(sandbox):
    sandbox.clone("own")
    assert "own has k2" in sandbox.ok("checkout", "--k2", "../own")


def test_k2_names_a_url(sandbox):
    url = sandbox.upstream.as_uri()
    sandbox.ok("apply", "--k2", url)
    clones = list((sandbox.root / "build").iterdir())
    assert len(clones) == 1 and clones[0].name.startswith("k2-")
    assert "already applied" in sandbox.ok("apply", "--k2", url)
    assert not sandbox.checkout.exists()


def test_k2_that_is_empty_is_the_default(sandbox):
    sandbox.ok("checkout", env={"K2": ""})
    assert sandbox.checkout.exists()


def test_k2_that_does_not_exist(sandbox, tmp_path):
    message = sandbox.fails(1, "checkout", "--k2", str(tmp_path / "none"))
    assert "no k2 checkout" in message


def test_passwords_in_urls_are_not_shown(sandbox):
    url = "https://user:secret@k2.invalid/k2.git"
    result = sandbox.run("-v", "checkout", "--k2", url)
    assert result.returncode == 20
    assert "secret" not in result.stdout + result.stderr
    assert "k2.invalid" in result.stderr


def test_progress_on_a_terminal(sandbox):
    """The live display, on a real terminal."""
    import pty

    leader, follower = pty.openpty()
    process = sandbox.start("checkout", env={"TERM": "xterm"})
    process.communicate()
    assert process.returncode == 0
    import subprocess

    (sandbox.checkout).rename(sandbox.root / "build" / "first")
    process = subprocess.Popen(
        sandbox.command("checkout"),
        cwd=sandbox.root,
        env={**sandbox.environment, "TERM": "xterm"},
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            chunk = os.read(leader, 4096)
        except OSError:
            break
        if not chunk:
            break
        shown += chunk
    os.close(leader)
    assert process.wait() == 0
    assert b"cloning" in shown
    assert b"\x1b[" in shown  # A live display moves the cursor.
    assert sandbox.pin.encode() in shown


@pytest.mark.parametrize(
    "old, new",
    [
        ("[upstream]", "[upstream"),
        ("[upstream]", "[downstream]"),
        ("commit = ", "commits = "),
        ('supported = ["2.13.0"]', 'supported = ["2.12.0"]'),
        ('supported = ["2.13.0"]', 'supported = "2.13.0"'),
        ('supported = ["2.13.0"]', 'supported = ["2.13.0"]\ntested = ["2.12.0"]'),
    ],
)
def test_a_malformed_upstream_toml(sandbox, old, new):
    text = (sandbox.root / "upstream.toml").read_text()
    assert old in text
    (sandbox.root / "upstream.toml").write_text(text.replace(old, new, 1))
    assert "upstream.toml" in sandbox.fails(1, "status")


def test_a_short_commit_id_is_refused(sandbox):
    text = (sandbox.root / "upstream.toml").read_text()
    (sandbox.root / "upstream.toml").write_text(text.replace(sandbox.pin, sandbox.pin[:12]))
    assert "40 hexadecimal digits" in sandbox.fails(1, "checkout")
