"""The commands that check or change patches/, carry it to another k2, or send it to k2."""

import click

from k2mps.cli.session import Session, command, k2_option
from k2mps.core import errors
from k2mps.core.git import quoted

COMMANDS = click.Group()


_patch_argument = click.argument("patch")
_paths_argument = click.argument("paths", metavar="[FILE]...", nargs=-1)


def _show_written(session: Session, result) -> None:
    """Prints the files that a command has written or removed."""
    for path in result.changed:
        session.console.info(f"wrote {path}")
    for path in result.removed:
        session.console.info(f"removed {path}")


def _show_untracked(session: Session, checkout) -> None:
    """Warns of the files that are not part of the patch, because git does not track these files."""
    untracked = checkout.untracked_files()
    if untracked:
        session.console.warn(
            f"not in the patch, because git does not track them: {errors.some(untracked, 5)}; k2mps"
            " fold PATCH FILE adds the named files"
        )


@command(COMMANDS, "lint")
def lint_command(session: Session) -> None:
    """Check the form of patches/, offline."""
    from k2mps.series import lint

    findings = lint.lint(session.project)
    for finding in findings:
        session.console.info(str(finding))
    if findings:
        files = len({finding.path for finding in findings})
        raise errors.CheckFailedError(
            f"{len(findings)} findings in {files} files",
            next_command="correct them, then k2mps lint again",
        )
    session.console.info("patches/ is sound")


@command(COMMANDS, "rebase", k2_option)
@click.option("--onto", metavar="REV", required=True, help="the upstream commit to rebase onto")
def rebase_command(session: Session, onto: str) -> None:
    """Bring the patches and the pin to another upstream commit.

    Prints and runs git fetch, git rebase in the checkout, and k2mps export --onto REV. If a patch
    conflicts, git stops: resolve the conflict as git says, and then run k2mps export --onto REV.
    """
    from k2mps.carry import rebase

    commit = rebase.rebase(session.project, session.obtain(), onto)
    session.console.info(f"+ k2mps export --onto {commit[:12]}")
    _export(session, prune=False, onto=commit)


@command(COMMANDS, "new", k2_option)
@click.option("--why", "body", default="", show_default=False, help="the body of the message")
@click.argument("subject")
@_paths_argument
def new_command(session: Session, subject: str, body: str, paths: tuple[str, ...]) -> None:
    """Make a patch of the edits in the checkout.

    A new file becomes part of the patch if git tracks it or FILE names it.
    """
    from k2mps.series import series_file
    from k2mps.stack import authoring

    checkout = session.existing()
    plan = authoring.new(session.project, checkout, subject, body, paths)
    _show_written(session, plan)
    group = series_file.last_group(plan.series.groups)
    if not series_file.is_for_k2(group):
        session.console.info(
            f"the patch is in the group {group}; if it is for k2, move its line in patches/series"
            f" to the end of its group, and make its Upstream-Status {series_file.TO_SEND}; then"
            " k2mps apply"
        )
    _show_untracked(session, checkout)


@command(COMMANDS, "fold", k2_option)
@_patch_argument
@_paths_argument
def fold_command(session: Session, patch: str, paths: tuple[str, ...]) -> None:
    """Add the edits in the checkout to PATCH.

    PATCH is a name, or the path of a file of patches/. A new file becomes part of the patch if git
    tracks it or FILE names it.
    """
    from k2mps.stack import authoring

    checkout = session.existing()
    _show_written(session, authoring.fold(session.project, checkout, patch, paths))
    _show_untracked(session, checkout)


@command(COMMANDS, "export", k2_option)
@click.option(
    "--prune", is_flag=True, help="delete patches and their new files if the branch lacks them"
)
@click.option(
    "--onto",
    metavar="REV",
    default="",
    show_default=False,
    help="the upstream commit onto which git has rebased",
)
def export_command(session: Session, prune: bool, onto: str) -> None:
    """Write the commits of branch k2-mps to patches/.

    With --onto, also write the pin, after git has rebased the branch onto REV.
    """
    if onto:
        from k2mps.stack import upstream

        checkout = session.existing()
        onto = upstream.commit_of(checkout, checkout.pinned(session.upstream.pin), onto)
    _export(session, prune, onto)


def _export(session: Session, prune: bool, onto: str) -> None:
    """Writes patches/, and shows what was written.

    Args:
      onto: the id of the new pin's commit; empty if the pin stays.
    """
    from k2mps.stack import export

    old_pin = session.upstream.pin
    checkout = session.existing()
    result, pin = export.export(session.project, checkout, prune=prune, onto=onto)
    show = session.console.info
    _show_written(session, result)
    if not result.changed and not result.removed:
        show("patches/ is up to date already")
    count = len(result.series.patches)
    show(f"{count} patches on k2 {pin.version}, {pin.commit[:12]}")
    if pin != old_pin:
        show(
            "next: python -m k2_mps_tests.docs; k2mps test; and repeat the runs that"
            " docs/pull-requests.md lists: their results were measured on an older k2"
        )


@command(COMMANDS, "upstream", k2_option)
@click.option(
    "--group",
    metavar="NAME",
    help="the group of patches to send; the branch starts with the groups before it, except for a"
    " group of fixes; default: all",
)
@click.option(
    "--in-series", is_flag=True, help="start with the groups before it, for a group of fixes, too"
)
@click.option("--branch", metavar="NAME", help="write the commits to this branch")
@click.option("--squash", is_flag=True, help="make one commit of each group, as k2's merges do")
@click.option(
    "--check",
    is_flag=True,
    help="build each commit with K2_WITH_MPS off and on, run k2's own tests in both builds, and"
    " k2's style checks; takes minutes for each commit; another run skips the commits that have"
    " passed",
)
@click.option(
    "--quick", is_flag=True, help="with --check: run k2's own tests on the last commit only"
)
def upstream_command(
    session: Session,
    group: str | None,
    in_series: bool,
    branch: str | None,
    squash: bool,
    check: bool,
    quick: bool,
) -> None:
    """Make a pull request to k2, of the whole series or of one group.

    The command prints the cover letter, whose text is in docs/pull-requests.md.
    """
    from k2mps.carry import pull_request
    from k2mps.run import program

    if quick and not check:
        raise click.UsageError("--quick is an option of --check")
    checkout = session.obtain()
    request = pull_request.make(session.project, checkout, group or "", squash, in_series)
    if branch:
        checkout.git.bytes("branch", "--no-track", "--", branch, request.tip)
    if check:
        arguments = [checkout.directory, request.base, request.tip]
        if quick:
            arguments.append("--quick")
        program.COMMITS.run(session.environment, arguments)
    session.console.output(request.cover.rstrip("\n"))
    if branch:
        session.console.info(f"next: {checkout.git_command} push YOUR_FORK {quoted(branch)}")
