"""Compares a release of torch for macOS with what k2 relies on.

The program reads torch's wheel, and needs no Mac.  For each fact on which k2 relies, it prints
whether the fact is as in the known release, differs, or breaks k2, and the files of this project
that rely on the fact.  If a fact differs, check these files, then write the new facts into
known.toml.

    python -m k2_mps_tests.macos_torch 2.15.0
"""

import argparse
import json

from k2mps.build.environment import Environment
from k2mps.core import errors, project
from packaging.version import InvalidVersion, Version

from k2_mps_tests import ending
from k2_mps_tests.macos_torch import download, facts

# The exit status if a fact differs.  Python's own status after an exception is 1.
FINDINGS = errors.CheckFailedError.exit_code
# The exit status if the program cannot read the release.
UNREAD = 3


def _release(text: str) -> str:
    """Checks that an argument is a version; returns it as it is."""
    try:
        Version(text)
    except InvalidVersion:
        raise argparse.ArgumentTypeError(f"{text} is not a version") from None
    return text


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m k2_mps_tests.macos_torch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"Exit status: 0 all facts are as known, {FINDINGS} a fact differs,"
        f" {UNREAD} torch cannot be read.",
    )
    parser.add_argument("version", nargs="?", type=_release, help="default: the newest release")
    parser.add_argument(
        "--known", type=_release, help="compare with the known facts of this release"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    table = facts.load()
    try:
        environment = Environment(project.find())
        environment.install_extra("wheels")
        release = download.fetch(environment, options.version)
        base = table.before(options.known or release.version)
    except errors.K2mpsError as error:
        print(error)
        return UNREAD
    found = list(facts.compare(facts.read(release, table), table, base))
    if options.json:
        listed = [{**finding._asdict(), "verdict": finding.verdict} for finding in found]
        print(json.dumps({"version": release.version, "known": base, "facts": listed}, indent=2))
    else:
        print(f"torch {release.version} for macOS, beside what is known of {base}")
        for finding in found:
            print(f"{finding.verdict}: {finding.fact}")
            lists = {"stops k2": finding.breaks, "new": finding.gained, "gone": finding.lost}
            if finding.verdict != "as known":
                lists |= {"relied on by": finding.affects, "how": [finding.why]}
            for what, texts in lists.items():
                if texts:
                    print(f"  {what}: {', '.join(texts)}")
    return FINDINGS if any(finding.verdict != "as known" for finding in found) else 0


if __name__ == "__main__":
    ending.run(main)
