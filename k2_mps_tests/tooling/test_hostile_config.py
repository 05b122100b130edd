"""The user's git configuration and environment change no result.

Each case clones under a configuration and then runs checkout, apply, status and export.  The commit
ids, the files, byte for byte, and the exported patches must be those of an empty configuration.
"""

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import git, snapshot

CONFIGURATIONS = {
    "am": """
        [am]
            threeWay = true
        [rerere]
            enabled = true
            autoUpdate = true
    """,
    "line ends": """
        [core]
            autocrlf = true
            safecrlf = true
            eol = crlf
    """,
    "autocrlf input": """
        [core]
            autocrlf = input
    """,
    "diff": """
        [diff]
            renames = copies
            mnemonicPrefix = true
            algorithm = patience
            context = 10
            interHunkContext = 50
            suppressBlankEmpty = true
            wsErrorHighlight = all
            colorMoved = zebra
            submodule = log
            relative = true
            indentHeuristic = false
            external = false
            orderFile = /nonexistent/order
            statGraphWidth = 3
            wordRegex = .
    """,
    "noprefix": """
        [diff]
            noprefix = true
        [color]
            ui = always
            diff = always
            status = always
    """,
    "apply": """
        [apply]
            whitespace = error-all
            ignoreWhitespace = change
        [core]
            whitespace = trailing-space,cr-at-eol,tab-in-indent,tabwidth=3
    """,
    "apply fixes": """
        [apply]
            whitespace = fix
        [core]
            whitespace = blank-at-eol,space-before-tab,indent-with-non-tab
    """,
    "signing": """
        [commit]
            gpgSign = true
            template = /nonexistent/template
            cleanup = scissors
            verbose = true
        [tag]
            gpgSign = true
        [gpg]
            program = false
        [log]
            showSignature = true
        [user]
            signingKey = nobody
    """,
    "identity": """
        [user]
            useConfigOnly = true
        [author]
            name = Author From Configuration
            email = author@example.org
        [committer]
            name = Committer From Configuration
    """,
    "encoding": """
        [i18n]
            commitEncoding = ISO-8859-1
            logOutputEncoding = ISO-8859-1
        [core]
            quotePath = true
            precomposeUnicode = true
            commentChar = auto
            abbrev = 4
    """,
    "log": """
        [log]
            follow = true
            date = relative
            decorate = full
            mailmap = true
            abbrevCommit = true
            diffMerges = on
            showRoot = false
        [format]
            pretty = oneline
            signature = ours
            suffix = .txt
            notes = true
        [core]
            pager = false
    """,
    "index": """
        [core]
            fsmonitor = true
            untrackedCache = true
            splitIndex = true
            preloadIndex = false
            checkStat = minimal
            trustctime = false
            bigFileThreshold = 1
            logAllRefUpdates = false
            excludesFile = EXCLUDES
        [index]
            version = 4
            threads = 8
        [feature]
            manyFiles = true
        [status]
            showUntrackedFiles = all
            short = true
            branch = true
            relativePaths = true
            renames = copies
    """,
    "attributes": """
        [core]
            attributesFile = ATTRIBUTES
        [diff "odd"]
            textconv = false
            xfuncname = ".*"
            command = false
            binary = true
        [filter "odd"]
            clean = "sed s/line/LINE/"
            smudge = "sed s/LINE/line/"
            required = true
    """,
    "clone": """
        [clone]
            defaultRemoteName = elsewhere
        [init]
            templateDir = TEMPLATE
            defaultBranch = trunk
        [core]
            hooksPath = HOOKS
        [submodule]
            recurse = true
        [checkout]
            defaultRemote = elsewhere
            workers = 4
        [transfer]
            fsckObjects = true
        [fetch]
            prune = true
            writeCommitGraph = true
        [gc]
            auto = 1
        [remote]
            pushDefault = elsewhere
    """,
    "merge": """
        [merge]
            renames = false
            conflictStyle = diff3
            autoStash = true
        [rebase]
            autoSquash = true
            autoStash = true
        [pull]
            rebase = true
        [core]
            symlinks = false
            sharedRepository = group
    """,
}

ENVIRONMENTS = {
    "locale": {"LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de:fr", "TZ": "Asia/Tokyo"},
    "ascii locale": {"LC_ALL": "C", "LANG": "C"},
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
    "identity": {
        "GIT_AUTHOR_NAME": "Odd",
        "GIT_AUTHOR_DATE": "@1 +0000",
        "GIT_COMMITTER_EMAIL": "odd@example.org",
        "GIT_COMMITTER_DATE": "@1 +0000",
        "EMAIL": "odd@example.org",
    },
    "output": {
        "GIT_EXTERNAL_DIFF": "false",
        "GIT_DIFF_OPTS": "-u9",
        "GIT_PAGER": "false",
        "PAGER": "false",
        "GIT_ICASE_PATHSPECS": "1",
        "GIT_INDEX_VERSION": "4",
        "GIT_OPTIONAL_LOCKS": "1",
        "GIT_TRACE": "1",
    },
    "configuration": {
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "core.autocrlf",
        "GIT_CONFIG_VALUE_0": "true",
        "GIT_CONFIG_KEY_1": "diff.noprefix",
        "GIT_CONFIG_VALUE_1": "true",
        "GIT_CONFIG_PARAMETERS": "'diff.context=7' 'core.eol=crlf'",
    },
    "hash": {"GIT_DEFAULT_HASH": "sha1", "GIT_EDITOR": "false"},
}


@pytest.fixture
def reference(sandbox, tmp_path):
    """The results without any configuration."""
    sandbox.ok("apply")
    result = _result(sandbox)
    sandbox.checkout.rename(tmp_path / "reference")
    return result


def _result(sandbox):
    found = snapshot(sandbox.checkout, times=False)
    return {
        "tip": git(sandbox.checkout, "rev-parse", "k2-mps"),
        "files": found["files"],
        "status": found["status"],
    }


def _circle(sandbox, reference, env=None):
    before = support.patches(sandbox)
    sandbox.ok("apply", env=env)
    assert _result(sandbox) == reference
    assert '"state": "applied"' in sandbox.ok("status", "--json", env=env)
    assert "already applied" in sandbox.ok("apply", env=env)
    sandbox.ok("export", "--overwrite", env=env)
    assert support.patches(sandbox) == before
    # An export without old patches gives the same patches.
    for path in (sandbox.root / "patches").glob("*.patch"):
        path.unlink()
    sandbox.ok("export", "--overwrite", "--prune", env=env)
    assert support.patches(sandbox) == before
    assert support.patches(sandbox) == before


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configuration_changes_nothing(sandbox, reference, tmp_path, name):
    text = CONFIGURATIONS[name]
    for word in ("TEMPLATE", "HOOKS"):
        folder = tmp_path / word.lower()
        text = text.replace(word, str(folder))
        hooks = folder / "hooks" if word == "TEMPLATE" else folder
        hooks.mkdir(parents=True)
        for hook in ("post-checkout", "reference-transaction", "pre-commit"):
            (hooks / hook).write_text("#!/bin/sh\nexit 1\n")
            (hooks / hook).chmod(0o755)
    (tmp_path / "template/info").mkdir()
    (tmp_path / "template/info/attributes").write_text("* -diff eol=crlf\n")
    attributes = tmp_path / "attributes"
    attributes.write_text("* diff=odd filter=odd ident\n*.cu -diff -text\n")
    excludes = tmp_path / "excludes"
    excludes.write_text("*\n")
    text = text.replace("ATTRIBUTES", str(attributes))
    sandbox.config.write_text(text.replace("EXCLUDES", str(excludes)))
    _circle(sandbox, reference)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environment_changes_nothing(sandbox, reference, name):
    _circle(sandbox, reference, env=ENVIRONMENTS[name])


def test_ownership_mask_changes_nothing(sandbox, reference):
    import os

    old = os.umask(0o077)
    try:
        sandbox.ok("apply")
        tip = git(sandbox.checkout, "rev-parse", "k2-mps")
    finally:
        os.umask(old)
    assert tip == reference["tip"]


def test_user_url_rewriting_and_credentials_count(sandbox, tmp_path):
    """The tool honours insteadOf, with which users name a mirror."""
    url = "https://upstream.invalid/k2.git"
    config = sandbox.root / "upstream.toml"
    config.write_text(config.read_text().replace(sandbox.upstream.as_uri(), url))
    sandbox.config.write_text(f'[url "{sandbox.upstream.as_uri()}"]\n\tinsteadOf = {url}\n')
    sandbox.ok("apply")
    assert sandbox.state() == "applied"
