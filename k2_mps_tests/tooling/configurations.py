"""git configurations of users that must not change what the tool does."""

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import git

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
