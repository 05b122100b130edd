"""The commands that look after patches/ and carry it to newer k2."""

from __future__ import annotations

import click

from k2mps import errors
from k2mps.session import Session


@click.command("lint")
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "json", "github")),
    default="text",
    help="how findings are printed; github makes annotations of them",
)
@click.pass_obj
def lint_command(session: Session, form: str) -> None:
    """Check patches/ and its lock, offline and without a checkout."""
    from k2mps import lint

    findings = lint.lint(session.project)
    for line in lint.render(findings, form):
        session.console.info(line)
    if findings:
        places = len({finding.path for finding in findings})
        raise errors.LintError(
            f"{len(findings)} findings in {places} files",
            next_command="correct them, then k2mps lock",
        )
    if form == "text":
        session.console.info("patches/ and its lock are sound")


COMMANDS = (lint_command,)
