"""The user's environment variables change no result.

Each case sets environment variables, and runs apply, status and export.  The commit ids, the bytes
of the files and the exported patches must be the same as without these variables.
test_carrying.py tests git configurations.
"""

import os

import pytest

from k2_mps_tests.tooling.series_files import patches
from k2_mps_tests.tooling.support import git, snapshot

ENVIRONMENTS = {
    "locale": {"LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de:fr", "TZ": "Asia/Tokyo"},
    "ascii locale": {"LC_ALL": "C", "LANG": "C", "GIT_DEFAULT_HASH": "sha1"},
    "redirected": {
        "GIT_DIR": "/nonexistent/dir",
        "GIT_WORK_TREE": "/nonexistent/tree",
        "GIT_INDEX_FILE": "/nonexistent/index",
        "GIT_OBJECT_DIRECTORY": "/nonexistent/objects",
        "GIT_COMMON_DIR": "/nonexistent/common",
        "GIT_NAMESPACE": "odd",
        "GIT_PREFIX": "odd/",
        "GIT_CEILING_DIRECTORIES": "/",
    },
    "output": {
        "GIT_AUTHOR_NAME": "Odd",
        "GIT_AUTHOR_DATE": "@1 +0000",
        "GIT_COMMITTER_EMAIL": "odd@example.org",
        "GIT_COMMITTER_DATE": "@1 +0000",
        "EMAIL": "odd@example.org",
        "GIT_EXTERNAL_DIFF": "false",
        "GIT_DIFF_OPTS": "-u9",
        "GIT_EDITOR": "false",
        "GIT_PAGER": "false",
        "GIT_PAGER_IN_USE": "1",
        "TERM": "xterm",
        "PAGER": "false",
        "GIT_ICASE_PATHSPECS": "1",
        "GIT_INDEX_VERSION": "4",
        "GIT_OPTIONAL_LOCKS": "1",
        "GIT_TRACE": "1",
        "TMPDIR": ".",
    },
    "configuration": {
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "core.autocrlf",
        "GIT_CONFIG_VALUE_0": "true",
        "GIT_CONFIG_KEY_1": "diff.noprefix",
        "GIT_CONFIG_VALUE_1": "true",
        "GIT_CONFIG_PARAMETERS": "'diff.context=7' 'core.eol=crlf'",
    },
}


@pytest.fixture
def reference(sandbox, tmp_path):
    """The results without these environment variables."""
    sandbox.ok("apply")
    result = _result(sandbox)
    sandbox.checkout.rename(tmp_path / "reference")
    return result


def _result(sandbox):
    found = snapshot(sandbox.checkout, times=False)
    tip = git(sandbox.checkout, "rev-parse", "k2-mps")
    return {"tip": tip, "files": found["files"], "status": found["status"]}


def _circle(sandbox, reference, env=None):
    before = patches(sandbox)
    sandbox.ok("apply", env=env)
    assert _result(sandbox) == reference
    assert '"state": "applied"' in sandbox.ok("status", "--json", env=env)
    assert "already applied" in sandbox.ok("apply", env=env)
    sandbox.ok("export", env=env)
    assert patches(sandbox) == before
    # Without the old patches, an export writes the same patches.
    for path in (sandbox.root / "patches").glob("*.patch"):
        path.unlink()
    sandbox.ok("export", env=env)
    assert patches(sandbox) == before


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environment_variables_change_nothing(sandbox, reference, name):
    _circle(sandbox, reference, env=ENVIRONMENTS[name])


def test_the_umask_changes_no_commit(sandbox, reference):
    old = os.umask(0o077)
    try:
        sandbox.ok("apply")
    finally:
        os.umask(old)
    assert git(sandbox.checkout, "rev-parse", "k2-mps") == reference["tip"]
