"""`k2mps torch`, which compares a release of torch for macOS with what k2 relies on."""

import click

from k2mps.cli.session import Session, command, json_option
from k2mps.core import errors

COMMANDS = click.Group()


@command(COMMANDS, "torch", json_option)
@click.option(
    "--known",
    "base",
    metavar="VERSION",
    help="compare with the facts of this release; default: its own, or those of the last before",
)
@click.argument("version", required=False)
def torch_command(session: Session, as_json: bool, base: str | None, version: str | None) -> None:
    """Read what k2 relies on from torch's wheel for macOS, by default of the newest release.

    Lists each fact: as known, different, or such that k2 breaks; and the files of this project
    that rely on the fact. Needs no Mac.
    """
    from k2mps.torch import download, facts

    session.console.shows_progress = not as_json
    session.environment.install_group("wheels")
    known = facts.load()
    release = download.fetch(session.environment, version)
    base = known.before(base or release.version)
    found = list(facts.compare(facts.read(release, known), known, base))
    if as_json:
        listed = [{**one._asdict(), "verdict": one.verdict} for one in found]
        session.console.result({"version": release.version, "known": base, "facts": listed})
    else:
        session.console.info(f"torch {release.version} for macOS, beside what is known of {base}")
        rows = [
            (one.verdict, one.fact, _changes(one), "; ".join(one.affects), one.why)
            if one.verdict != "as known"
            else (one.verdict, one.fact, "", "", "")
            for one in found
        ]
        head = ("", "fact", "what differs", "relied on by", "how")
        session.console.table(head, rows)
    changed = [one for one in found if one.verdict != "as known"]
    if changed:
        raise errors.CheckFailedError(
            f"torch {release.version} differs in {len(changed)} fact(s) from torch {base}",
            why="; ".join(f"{one.fact}: {one.verdict}" for one in changed),
            next_command="check the files that rely on these facts, then write the facts in"
            " tools/k2mps/torch/known.toml",
        )


def _changes(finding) -> str:
    """The differences of a fact, in words."""
    parts = {"stops k2": finding.breaks, "new": finding.gained, "gone": finding.lost}
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in parts.items() if names)
