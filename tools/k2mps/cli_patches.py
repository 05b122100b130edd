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


COMMANDS = (lint_command, report_command)
