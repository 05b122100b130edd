"""The commands that look after patches/ and carry it to newer k2."""

from __future__ import annotations

import dataclasses
import json
from typing import Optional

import click

from k2mps import errors
from k2mps.session import Session, k2_option

_format_option = click.option(
    "--format",
    "form",
    type=click.Choice(("text", "json", "markdown")),
    default="text",
    help="how the result is printed",
)


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

    session.tidy()
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


@click.command("report")
@k2_option
@_format_option
@click.option("--offline", is_flag=True, help="do not ask upstream")
@click.pass_obj
def report_command(
    session: Session, k2: Optional[str], form: str, offline: bool
) -> None:
    """Tell how much the patches touch, and how far upstream has moved."""
    from k2mps import report, report_text

    session.console.shows_progress = form == "text"
    exists = session.locate(k2).is_dir()
    result = report.report(
        session.project, session.upstream,
        session.existing(k2) if exists else None, offline,
    )
    if form == "json":
        session.console.info(json.dumps(dataclasses.asdict(result), indent=2))
        return
    session.console.document(report_text.sections(result), form == "markdown")


@click.command("undo")
@k2_option
@click.option("--list", "only_list", is_flag=True, help="list operations")
@click.argument("operation", required=False)
@click.pass_obj
def undo_command(
    session: Session, k2: Optional[str], only_list: bool,
    operation: Optional[str],
) -> None:
    """Undo the last command that changed a branch or patches/.

    OPERATION, an id that --list shows, undoes that one and all after it.
    Undoing is an operation too: a second `k2mps undo` brings all back.
    """
    from k2mps import operations, undo

    session.tidy()
    checkout = session.existing(k2)
    if only_list:
        session.console.table(
            ("operation", "when", "command"),
            [
                (entry.id[:12], entry.time, entry.command)
                for entry in operations.log(checkout)
            ],
        )
        return
    entry = undo.undo(session.project, checkout, operation)
    session.console.info(
        f"as before `k2mps {entry.command}` of {entry.time}"
    )


COMMANDS = (lint_command, report_command, undo_command)
