"""The commands that change patches/ and carry it to a newer k2."""

import click

from k2mps.cli.session import Session, command, json_option, k2_option
from k2mps.core import errors

COMMANDS = click.Group()


_patch_argument = click.argument("patch")
_paths_argument = click.argument("paths", metavar="[FILE]...", nargs=-1)


def _show_written(session: Session, result) -> None:
    """Names the files that a command has changed."""
    for path in result.changed:
        session.console.info(f"wrote {path}")
    for path in result.removed:
        session.console.info(f"removed {path}")


def _change(session: Session, action: str, *arguments, **options):
    """Does what `CommittedSeries` calls so, and shows what it wrote; returns the checkout."""
    from k2mps.stack import authoring

    checkout = session.existing()
    with authoring.at_work(session.project, checkout) as series:
        plan = getattr(series, action)(*arguments, **options)
    _show_written(session, plan)
    return checkout


def _show_untracked(session: Session, checkout) -> None:
    """Names the files that did not become part of a patch."""
    untracked = checkout.untracked_files()
    if untracked:
        session.console.warn(
            f"not in it, as git does not track them: {errors.some(untracked, 5)}; k2mps fold"
            " PATCH FILE takes in what is named"
        )


@command(COMMANDS, "lint")
def lint_command(session: Session) -> None:
    """Check patches/, offline and without a checkout."""
    from k2mps.series import lint

    session.tidy()
    findings = lint.lint(session.project)
    for finding in findings:
        session.console.info(str(finding))
    if findings:
        places = len({finding.path for finding in findings})
        raise errors.CheckFailedError(
            f"{len(findings)} findings in {places} files",
            next_command="correct them, then k2mps lint again",
        )
    session.console.info("patches/ is sound")


@command(COMMANDS, "report", json_option)
def report_command(session: Session, as_json: bool) -> None:
    """Count the lines that the patches touch."""
    from k2mps.carry import report

    result = report.report(session.project, session.upstream)
    session.console.result(result, None if as_json else report.section(result))


@command(COMMANDS, "probe", k2_option)
@click.argument("end", default="HEAD")
@json_option
def probe_command(session: Session, end: str, as_json: bool) -> None:
    """Find the first upstream commit after the pin that breaks each patch.

    END is a later commit, tag or branch of upstream's.
    """
    from k2mps.carry import branches, probe

    session.console.shows_progress = not as_json
    checkout = session.obtain()
    end = branches.commit_of(checkout, session.upstream.pin, end)
    result = probe.probe(session.project, checkout, end, session.console)
    session.console.result(result, None if as_json else probe.section(result))


@command(COMMANDS, "undo", k2_option)
@click.option("--list", "only_list", is_flag=True, help="list operations")
@click.argument("operation", required=False)
def undo_command(session: Session, only_list: bool, operation: str | None) -> None:
    """Undo the last command that changed a branch or patches/.

    With OPERATION, an id that --list shows, undo that command and all later
    ones.  Undoing is an operation too: a second `k2mps undo` reverts it.
    """
    from k2mps.stack import undo

    checkout = session.existing()
    if only_list:
        found = undo.States(session.project, checkout).all
        rows = [(one.id[:12], one.when, one.command) for one in found if one.command]
        session.console.table(("operation", "when", "command"), rows)
        return
    state = undo.undo(session.project, checkout, operation)
    session.console.info(f"as before `k2mps {state.command}` of {state.when}")


@command(COMMANDS, "rebase", k2_option)
@click.option("--onto", metavar="REV", help="the upstream commit to rebase onto")
@click.option("--continue", "go_on", is_flag=True, help="go on after a conflict is resolved")
@click.option("--abort", is_flag=True, help="end the rebase and change nothing")
def rebase_command(session: Session, onto: str | None, go_on: bool, abort: bool) -> None:
    """Carry patches/ and the pin to another upstream commit.

    git drops patches that upstream has.

    Conflicts are resolved in build/rebase, never in your checkout.  git remembers how, and the next
    rebase reuses that.
    """
    from k2mps.carry import rebase

    if (onto is not None) + go_on + abort != 1:
        raise click.UsageError("one of --onto, --continue, --abort is needed")
    session.tidy()
    if abort:
        rebase.abort(session.project, session.existing())
        session.console.info(
            "the rebase has ended: all is as before, and its resolutions are forgotten"
        )
        return
    if go_on:
        result = rebase.advance(session.project, session.existing())
    else:
        result = rebase.start(session.project, session.obtain(), onto)
    show_rebased(session, result)


def show_rebased(session: Session, result) -> None:
    show = session.console.info
    _show_written(session, result.plan)
    for line in result.differences:
        show(line)
    count = len(result.plan.series.patches)
    show(f"{count} patches on k2 {result.pin.version}, {result.pin.commit[:12]}")
    show("next: k2mps apply; k2mps undo takes it back")


@command(COMMANDS, "new", k2_option)
@click.option("--why", "body", default="", help="the body of the message")
@click.argument("subject")
@_paths_argument
def new_command(session: Session, **words) -> None:
    """Make a patch of the edits in the checkout.

    Of new files, those that git tracks or that are named as FILE.
    """
    _show_untracked(session, _change(session, "new", **words))


@command(COMMANDS, "fold", k2_option)
@_patch_argument
@_paths_argument
def fold_command(session: Session, patch: str, paths: tuple[str, ...]) -> None:
    """Add the edits in the checkout to PATCH.

    Of new files, those that git tracks or that are named as FILE.
    """
    _show_untracked(session, _change(session, "fold", patch, paths))


@command(COMMANDS, "drop", k2_option)
@_patch_argument
def drop_command(session: Session, patch: str) -> None:
    """Remove PATCH from the series, and its changes from the checkout."""
    _change(session, "drop", patch)


@command(COMMANDS, "export", k2_option)
@click.option(
    "--prune", is_flag=True, help="delete patches and new files that the branch does not have"
)
@click.option(
    "--overwrite", is_flag=True, help="overwrite what changed in patches/ since it was applied"
)
def export_command(session: Session, prune: bool, overwrite: bool) -> None:
    """Write the commits of branch k2-mps to patches/."""
    from k2mps.stack import export

    result, tree = export.export(
        session.project, session.existing(), prune=prune, overwrite=overwrite
    )
    show = session.console.info
    _show_written(session, result)
    if not result.changed and not result.removed:
        show("patches/ has it all already")
    show(f"{len(result.series.patches)} patches, tree {tree[:12]}")


@command(COMMANDS, "upstream", k2_option)
@click.option(
    "--group", metavar="NAME", help="a group of patches/series, on top of the groups before it"
)
@click.option("--branch", metavar="NAME", help="write the commits to this branch")
@click.option(
    "--check",
    is_flag=True,
    help="build each commit, run k2's own tests with K2_WITH_MPS off, import"
    " k2 with it on; takes minutes a commit, and continues where it stopped",
)
@click.option(
    "--quick", is_flag=True, help="with --check: run k2's own tests on the last commit only"
)
def upstream_command(
    session: Session, group: str | None, branch: str | None, check: bool, quick: bool
) -> None:
    """Make a pull request to k2 of the series or a group.

    The cover letter is printed; docs/pull-requests.md has its text.
    """
    from k2mps.carry import pull_request
    from k2mps.run import program

    checkout = session.obtain()
    made = pull_request.make(session.project, checkout, group or "")
    if check:
        words = [checkout.directory, made.base, made.tip, *(["--quick"] if quick else [])]
        program.COMMITS.run(session.environment, words)
    if branch:
        checkout.git.bytes("branch", "--no-track", "--", branch, made.tip)
    session.console.info(made.cover.rstrip("\n"))
    if branch:
        session.console.info(f"next: git -C {checkout.directory} push YOUR_FORK {branch}")
