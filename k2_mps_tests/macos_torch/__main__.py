"""`k2mps torch`: compares a release of torch for macOS with what k2 relies on."""

import argparse
import json

from k2mps.build.environment import Environment
from k2mps.core import errors, project
from packaging.version import InvalidVersion, Version

from k2_mps_tests import ending
from k2_mps_tests.macos_torch import download, facts

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
    parser = argparse.ArgumentParser(prog="k2mps torch", description=__doc__)
    parser.add_argument("version", nargs="?", type=_release, help="default: the newest release")
    parser.add_argument(
        "--known", type=_release, help="compare with the known facts of this release"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    table = facts.load()
    try:
        release = download.fetch(Environment(project.find()), options.version)
        base = table.before(options.known or release.version)
    except errors.K2mpsError as error:
        # The program prints no advice, because `k2mps torch` names the next command.
        print(error.what, error.why, sep="\n")
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
    return any(finding.verdict != "as known" for finding in found)


if __name__ == "__main__":
    ending.run(main)
