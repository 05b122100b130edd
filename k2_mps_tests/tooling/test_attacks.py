"""Malicious input to the tool, and messages whose advice must not lose the user's work."""

import os
import re
import shlex
import time

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.sandbox import ARRAY, CONTEXT, MPS
from k2_mps_tests.tooling.support import git, snapshot

HEADER = "From: k2-mps <k2-mps@k2-mps.invalid>\nSubject: {}\nUpstream-Status: {}\n"


def add_patch(sandbox, text: str | bytes, name: str = "evil.patch") -> None:
    folder = sandbox.root / "patches"
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    (folder / "series").write_text(f"{(folder / 'series').read_text()}{name}\n")


@pytest.mark.parametrize(
    "value", ["--upload-pack=touch {pwned};", "-x", "ext::sh -c touch% {pwned}"]
)
@pytest.mark.parametrize("command", [("apply",), ("rebase", "--onto", "v1")])
def test_a_url_of_upstream_runs_no_program(sandbox, tmp_path, value, command):
    sandbox.write_config(sandbox.pin, value.format(pwned=tmp_path / "p"))
    result = sandbox.run(*command)
    assert result.returncode in (1, 20) and "Traceback" not in result.stderr
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    "words", [("rebase", "--onto=--upload-pack=x"), ("export", "--onto=-x"), ("apply", "--k2=-x")]
)
def test_a_name_with_a_dash_is_not_taken_for_an_option(sandbox, k2, words):
    sandbox.fails(1, *words)


def test_no_control_characters_are_printed(sandbox, k2):
    evil = "fix: \x1b]0;PWNED\x07 \u202e reversed"
    add_patch(sandbox, HEADER.format(evil, "Pending") + "\n---\n")
    config = sandbox.root / "upstream.toml"
    config.write_text(config.read_text() + '"\\u001b]0;PWNED\\u0007" = 1\n')
    support.write(k2, {"\x1b[31mred": "x\n"})
    for command in ("status", "lint", "apply", "export"):
        result = sandbox.run(command)
        said = result.stdout + result.stderr
        assert "Traceback" not in said
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", said), said
    git(k2, "commit", "--quiet", "--allow-empty", "-m", "\x1b[31mred \u202e")
    assert "\x1b" not in sandbox.run("status").stdout


def test_lint_is_linear_in_the_hunks(sandbox, k2):
    """Compares the time for a patch of 40,000 hunks with the time for a patch of 5,000 hunks."""
    id_ = git(k2, "rev-parse", f"HEAD:{CONTEXT}")
    head = HEADER.format("x: many", "Pending") + f"\n---\ndiff --git a/{CONTEXT} b/{CONTEXT}\n"
    head += f"index {id_}..{'2':0>40} 100644\n--- a/{CONTEXT}\n+++ b/{CONTEXT}\n"

    def seconds(count: int) -> float:
        hunks = "".join(f"@@ -{3 * i} +{3 * i} @@\n-x\n+y\n" for i in range(1, count))
        (sandbox.root / "patches/evil.patch").write_text(head + hunks)
        result = sandbox.run("lint")
        assert "Traceback" not in result.stderr
        assert "patches/evil.patch:" in result.stdout and result.returncode == 34
        begin = time.monotonic()
        sandbox.run("lint")
        return time.monotonic() - begin

    add_patch(sandbox, head)
    small, large = seconds(5_000), seconds(40_000)
    # If the time grew as the square of the number of hunks, `large` would be 64 times `small`.
    assert large < 24 * small


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            HEADER.format("x", "Pending")
            + f"\n---\ndiff --git a/{CONTEXT} b/{CONTEXT}\nindex {'1' * 40}..{'2' * 40} 100644\n"
            f"--- a/{CONTEXT}\n+++ b/{CONTEXT}\n@@ -{'1' * 5000},0 +1 @@\n+x\n",
            id="a hunk at a line with 5000 digits",
        ),
        pytest.param(
            HEADER.format("a\0b", "Pending") + "New-files:\n\tk2/csrc/e.h\n\n---\n",
            id="a null byte in the subject",
        ),
        pytest.param(
            HEADER.format("x", "Pending")
            + "New-files:\n\tk2/csrc/e.h\n\nPatch-Filename: y\n\n---\n",
            id="a trailer of the tool in the body",
        ),
        pytest.param(b"\xff\xfe", id="not UTF-8"),
    ],
)
def test_a_malformed_patch_is_one_error(sandbox, k2, text):
    before = snapshot(k2)
    add_patch(sandbox, text)
    support.write(sandbox.root / "patches/files/k2/csrc", {"e.h": "x\n"})
    for command, code in (("lint", 34), ("apply", 1), ("export", 1), ("fold", 1)):
        words = [command, ARRAY] if command == "fold" else [command]
        if command == "export":
            support.commit(k2, "mine", {"mine": "x\n"})
        result = sandbox.run(*words)
        assert result.returncode == code, result.stderr
        assert "Traceback" not in result.stderr
        # This command would discard the user's other edits of patches/.
        assert "git checkout patches" not in result.stderr
    git(k2, "reset", "--quiet", "--hard", "HEAD~1")
    assert snapshot(k2)["status"] == before["status"]


@pytest.mark.parametrize("path", ["patches/files/linked", "patches/files/linked/deep"])
def test_no_file_is_written_through_a_symbolic_link(sandbox, k2, tmp_path, path):
    victim = tmp_path / "victim"
    victim.mkdir()
    link = sandbox.root / path
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(victim)
    new = {f"{path.removeprefix('patches/files/')}/x.h": "x\n"}
    support.commit(k2, "mine", new)
    sandbox.fails(1, "export")
    assert list(victim.iterdir()) == []


def test_a_draft_is_a_new_file(sandbox, k2, tmp_path):
    """Someone has put links at all names that a draft could have; all random names are zeros."""
    victim = tmp_path / "victim"
    victim.write_text("victim\n")
    draft = f".k2mps-draft-{'0' * 16}"
    (sandbox.root / "patches" / draft).symlink_to(victim)
    support.write(tmp_path, {"sitecustomize.py": "import os\nos.urandom = bytes\n"})
    support.edit(k2 / CONTEXT, "line 20\n", "twenty\n")
    path = os.pathsep.join((str(tmp_path), sandbox.environment["PYTHONPATH"]))
    env = {**sandbox.environment, "PYTHONPATH": path}
    result = sandbox.program(*sandbox.command("fold", MPS), env=env)
    assert (
        result.returncode == 1 and f"File exists: {sandbox.root}/patches/{draft}" in result.stderr
    )
    assert victim.read_text() == "victim\n"
    sandbox.ok("fold", MPS)


def test_squashed_commits_leave_no_trailers(sandbox, k2):
    todo = {"GIT_SEQUENCE_EDITOR": "sed -i.bak '2s/^pick/squash/'", "GIT_EDITOR": "true"}
    git(k2, "rebase", "--quiet", "--interactive", "HEAD~2", env=todo)
    sandbox.ok("export", "--prune")
    text = (sandbox.root / f"patches/{ARRAY}").read_text()
    assert "Patch-Filename" not in text and text.count("Upstream-Status") == 1


@pytest.mark.parametrize("below", ["HEAD", "HEAD~1"])
def test_advice_loses_no_commit_of_a_detached_head(sandbox, k2, below):
    git(k2, "branch", "mine", "HEAD~1")  # a name that the advice must not need
    git(k2, "checkout", "--quiet", "--detach", below)
    mine = support.commit(k2, "an hour's work", {"hour": "x\n"})
    support.shell(k2, re.search("next: (git .*), which keeps", sandbox.fails(1, "export"))[1])
    assert "next: k2mps apply\n" in sandbox.fails(1, "export")
    sandbox.ok("apply")
    assert git(k2, "branch", "--contains", mine).strip() == f"mine-{mine[:12]}"


def test_advice_for_a_merge_can_be_run(sandbox, k2):
    git(k2, "checkout", "--quiet", "-b", "side", "HEAD~1")
    support.commit(k2, "side", {"side": "x\n"})
    git(k2, "checkout", "--quiet", "k2-mps")
    git(k2, "merge", "--quiet", "--no-edit", "side")
    message = sandbox.fails(1, "export")
    assert "is a merge" in message
    words = shlex.split(re.search(r"next: git (.*?), which", message)[1])
    git(sandbox.root, *words)
    sandbox.ok("export")


# Commands whose error advises to merge commits, and what the user did before.
MERGES = {
    "apply": "echo > x; git add x; git commit -qm x; echo >> ../../patches/files/cmake/mps.cmake",
    "export": "git checkout -qb side HEAD~; echo > x; git add x; git commit -qm x;"
    " git checkout -q k2-mps; git merge -q --no-edit side",
    "export ": "echo > x; git add x; git commit -qm x --fixup=HEAD~",
    "export  ": "git rm -q cmake/mps.cmake; git commit -qm more",
    "export --prune": "echo '<<<<<<< x' >> k2/csrc/array.cu; git commit -qam x",
    "export   ": "git reset -q --hard HEAD~",
}


@pytest.mark.parametrize("command", MERGES)
def test_no_advice_to_merge_with_an_attribute_that_would_drop_edits(sandbox, k2, command):
    support.write(k2, {".git/info/attributes": "* merge=ours\n"})
    support.shell(k2, MERGES[command])
    error = sandbox.fails(1, *command.split())
    assert "the git attribute merge=ours applies to " in error and "rebase" not in error


def test_advice_is_quoted(sandbox, tmp_path):
    own = sandbox.clone("my own k2")
    sandbox.ok("apply", "--k2", str(own))
    support.commit(own, "mine", {"mine": "x\n"})
    git(own, "checkout", "--quiet", "--detach", "HEAD~1")
    advice = re.search("next: (.*)", sandbox.fails(1, "export", "--k2", str(own)))
    support.shell(sandbox.root, advice[1])
    assert git(own, "symbolic-ref", "HEAD") == "refs/heads/k2-mps"


def test_messages_show_no_password(sandbox):
    url = "https://user:s3cret@example.invalid/k2.git"
    config = sandbox.root / "upstream.toml"
    text = config.read_text().replace(sandbox.upstream.as_uri(), url).replace(sandbox.pin, "1" * 40)
    config.write_text(text)
    own = sandbox.clone("own")
    for words in (("apply", "--k2", str(own)), ("apply",)):
        result = sandbox.run("--verbose", *words)
        said = result.stdout + result.stderr
        assert result.returncode in (1, 20) and "example.invalid" in said and "s3cret" not in said


def test_ascii_output_has_escapes_for_other_characters(sandbox, k2):
    support.commit(k2, "größer", {"a": "x\n"})
    assert "gr\\xf6\\xdfer" in sandbox.ok("status", env={"PYTHONIOENCODING": "ascii"})
