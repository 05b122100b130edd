"""The user's git configuration and environment variables change no result.

Each case sets environment variables, and runs apply, status and export.  The commit ids, the bytes
of the files and the exported patches must be the same as without these variables.
test_carrying.py tests the git configurations of this file.
"""

import os

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import git, snapshot

# Settings of git and their values; a value in capitals is a file or folder that `configure` makes.
# The tool's git commands for working trees and clones read all these settings.  The tool's git
# commands for objects must read no configuration, because these values would make commands fail.
CONFIGURATIONS = {
    "line ends": """
        core.autocrlf true; core.safecrlf true; core.eol crlf; core.quotePath true
        core.precomposeUnicode true; core.symlinks false; core.sharedRepository group
        rerere.enabled true; rerere.autoUpdate true; core.abbrev 4
    """,
    "objects": """
        i18n.commitEncoding ISO-8859-1; i18n.logOutputEncoding ISO-8859-1
        diff.noprefix true; diff.renames copies; diff.external false; diff.context 10
        diff.orderFile /nonexistent/order; log.showRoot false; log.showSignature true
        apply.whitespace error-all; core.whitespace trailing-space,cr-at-eol,tabwidth=3
        merge.renames false; merge.conflictStyle diff3; gpg.program false
    """,
    "output": """
        color.ui always; color.status always; core.pager false; status.short true
        status.branch true; status.relativePaths true; status.renames copies
        status.showUntrackedFiles all
    """,
    "commit": """
        commit.gpgSign true; commit.template /nonexistent/template; commit.cleanup scissors
        commit.verbose true; user.signingKey nobody; user.useConfigOnly true
        author.name Author From Configuration; committer.name Committer From Configuration
    """,
    "index": """
        core.fsmonitor true; core.untrackedCache true; core.splitIndex true
        core.preloadIndex false; core.checkStat minimal; core.trustctime false
        core.bigFileThreshold 1; core.logAllRefUpdates false; core.excludesFile EXCLUDES
        index.version 4; index.threads 8; feature.manyFiles true
    """,
    "attributes": """
        core.attributesFile ATTRIBUTES; diff.odd.textconv false; diff.odd.command false
        diff.odd.binary true; filter.odd.clean sed s/line/LINE/
        filter.odd.smudge sed s/LINE/line/; filter.odd.required true
    """,
    "clone": """
        clone.defaultRemoteName elsewhere; init.templateDir TEMPLATE; init.defaultBranch trunk
        core.hooksPath HOOKS; submodule.recurse true; checkout.defaultRemote elsewhere
        checkout.workers 4; transfer.fsckObjects true; fetch.prune true
        fetch.writeCommitGraph true; gc.auto 1
    """,
}

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


def configure(file, name, folder) -> None:
    """Writes the configuration `name` to `file`, and the files that it names into `folder`."""
    events = ("post-checkout", "reference-transaction", "pre-commit")
    paths = [f"{where}/{one}" for where in ("HOOKS", "TEMPLATE/hooks") for one in events]
    hooks = dict.fromkeys(paths, "#!/bin/sh\nexit 1\n")
    support.write(folder, hooks)
    for hook in hooks:
        (folder / hook).chmod(0o755)
    attributes = "* diff=odd filter=odd ident\n*.cu -diff -text\n"
    others = {"EXCLUDES": "*\n", "ATTRIBUTES": attributes}
    support.write(folder, {**others, "TEMPLATE/info/attributes": "* -diff eol=crlf\n"})
    for setting in CONFIGURATIONS[name].replace("\n", ";").split(";"):
        key, _, value = setting.strip().partition(" ")
        if key:
            value = str(folder / value) if value.isupper() and value.isalpha() else value
            git(folder, "config", "--file", str(file), key, value)


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
    before = support.patches(sandbox)
    sandbox.ok("apply", env=env)
    assert _result(sandbox) == reference
    assert '"state": "applied"' in sandbox.ok("status", "--json", env=env)
    assert "already applied" in sandbox.ok("apply", env=env)
    sandbox.ok("export", env=env)
    assert support.patches(sandbox) == before
    # Without the old patches, an export writes the same patches.
    for path in (sandbox.root / "patches").glob("*.patch"):
        path.unlink()
    sandbox.ok("export", env=env)
    assert support.patches(sandbox) == before


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
