"""The command line: reads options, calls the library, prints, exits."""

from __future__ import annotations

import dataclasses
import errno
import json
import sys
from typing import Optional

import click

from k2mps import errors
from k2mps.console import Console

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class _Context:
    """What every command starts from."""

    def __init__(self, verbose: bool):
        from k2mps import project

        self.console = Console(verbose)
        self.project = project.find()
        self.upstream = self.project.upstream()

    def locate(self, k2: Optional[str]):
        """Where the checkout is, whether or not it exists."""
        from k2mps import checkout

        return checkout.locate(self.project, k2)

    def existing(self, k2: Optional[str]):
        """The checkout, which must exist."""
        from k2mps import checkout

        found = checkout.Checkout(self.locate(k2), self.console)
        found.tidy()
        return found

    def obtain(self, k2: Optional[str]):
        """The checkout, cloned if need be, with the pin in it."""
        from k2mps import checkout

        return checkout.obtain(
            self.project, self.upstream.pin, k2, self.console
        )


def _k2_option(command):
    return click.option(
        "--k2",
        envvar="K2",
        metavar="DIR|URL",
        help="your own k2 checkout, or a git URL to clone; default build/k2",
    )(command)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-v", "--verbose", is_flag=True, help="echo every command")
@click.version_option(package_name="k2mps", message="k2mps %(version)s")
@click.pass_context
def main(context: click.Context, verbose: bool) -> None:
    """k2 with an Apple MPS backend: patch it, build it, test it."""
    context.obj = verbose


def _command(function):
    """Registers a command whose first argument is a `_Context`."""

    @click.pass_context
    def call(context: click.Context, **options):
        return context.invoke(function, _Context(context.obj), **options)

    call.__doc__ = function.__doc__
    call.__click_params__ = getattr(function, "__click_params__", [])
    name = function.__name__.rstrip("_").replace("_", "-")
    return main.command(name)(call)


@_command
@_k2_option
def checkout(context: _Context, k2: Optional[str]) -> None:
    """Clone the pinned k2, or verify the checkout that --k2 names."""
    found = context.obtain(k2)
    found.tidy()
    context.console.info(
        f"{found.directory} has k2 {context.upstream.pin.version},"
        f" {context.upstream.pin.commit}"
    )


@_command
@_k2_option
def apply(context: _Context, k2: Optional[str]) -> None:
    """Apply the patch series to the checkout, all or nothing."""
    from k2mps import apply as applying

    found = context.obtain(k2)
    result = applying.apply(context.project, context.upstream, found)
    if not result.written:
        context.console.info(f"{found.directory}: already applied")
        return
    context.console.info(
        f"{found.directory}: applied"
        f" {len(context.upstream.lock.patches)} patches, changed"
        f" {len(result.written)} files; branch k2-mps at {result.tip[:12]}"
    )


@_command
@_k2_option
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def status(context: _Context, k2: Optional[str], as_json: bool) -> None:
    """Tell what state the checkout and the patches are in."""
    from k2mps import status as telling

    directory = context.locate(k2)
    found = context.existing(k2) if directory.is_dir() else None
    result = telling.of_checkout(context.project, context.upstream, found)
    if as_json:
        facts = {"checkout": str(directory), **result.as_dict()}
        context.console.info(json.dumps(facts, indent=2))
        return
    context.console.info(f"checkout: {result.state.value} ({directory})")
    for line in result.details:
        context.console.info(f"  {line}")
    for line in result.user_commits:
        context.console.info(f"  {line}")
    changed = "changed" if result.patch_changes else "as locked"
    context.console.info(f"patches: {changed}")
    for line in result.patch_changes:
        context.console.info(f"  {line}")
    if result.next_command:
        context.console.info(f"next: {result.next_command}")


@_command
@_k2_option
@click.option(
    "--prune", is_flag=True,
    help="delete patches and new files that the branch has no longer",
)
def export(context: _Context, k2: Optional[str], prune: bool) -> None:
    """Make patches/ from the commits on branch k2-mps, and lock it."""
    from k2mps import export as exporting

    result = exporting.export(
        context.project, context.upstream, context.existing(k2), prune=prune
    )
    for path in result.written:
        context.console.info(f"wrote {path}")
    for path in result.removed:
        context.console.info(f"removed {path}")
    if not result.written and not result.removed:
        context.console.info("patches/ has it all already")
    context.console.info(
        f"{len(result.patches)} patches, tree {result.tree[:12]}"
    )


@_command
@_k2_option
def lock(context: _Context, k2: Optional[str]) -> None:
    """Lock patches/ as it is: its hashes and the tree that it gives."""
    from k2mps import export as exporting

    found = context.obtain(k2)
    fresh = exporting.lock(context.project, context.upstream, found)
    same = fresh == context.upstream.lock
    context.console.info(
        f"{len(fresh.patches)} patches, tree {fresh.tree[:12]}"
        + (", as before" if same else "; upstream.toml written")
    )


_DEVICES = ("mps", "cpu")


def _build_options(command):
    for option in (
        click.option("--torch", metavar="VERSION",
                     help="a torch version that upstream.toml supports"),
        click.option("-j", "--jobs", type=click.IntRange(1),
                     help="compilers at once; default what fits"),
    ):
        command = option(command)
    return _k2_option(command)


@_command
@_build_options
@click.option("--device", type=click.Choice(_DEVICES), default="mps",
              help="what to build for; on Linux mps is emulated")
@click.option("--demo/--no-demo", default=True,
              help="whether to end with a demonstration")
@click.argument("cmake_arguments", nargs=-1, type=click.UNPROCESSED)
def build(
    context: _Context,
    k2: Optional[str],
    torch: Optional[str],
    jobs: Optional[int],
    device: str,
    demo: bool,
    cmake_arguments: tuple[str, ...],
) -> None:
    """Build k2's Python module; after `--`, arguments for cmake."""
    from k2mps import build as building
    from k2mps.doctor import Device

    request = building.Request(Device(device), torch, jobs, cmake_arguments)
    builder = building.Builder(
        context.project, context.upstream, context.obtain(k2), context.console
    )
    built = builder.build(request)
    building.register(context.project, built)
    done = f"{built.steps} steps" if built.steps else "nothing to do"
    context.console.info(f"built {built.directory.name}: {done}")
    if demo:
        building.demonstrate(context.project, built.device, context.console)


@_command
def demo(context: _Context) -> None:
    """Run the demonstration on the build that `k2mps build` made last."""
    from k2mps import build as building
    from k2mps.doctor import Device

    building.demonstrate(context.project, Device.MPS, context.console)


@_command
@click.option("--device", type=click.Choice(_DEVICES), default="mps")
@click.option("--torch", metavar="VERSION")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def doctor(
    context: _Context, device: str, torch: Optional[str], as_json: bool
) -> None:
    """Tell what a build needs, what is found, and how to get the rest."""
    from k2mps import doctor as examining

    checks = examining.examine(
        context.project, context.upstream, examining.Device(device), torch,
        context.console,
    )
    if as_json:
        facts = [dataclasses.asdict(check) for check in checks]
        context.console.info(json.dumps(facts, indent=2))
    else:
        context.console.table(
            ("", "what", "found", "wanted", "how to get it"),
            [
                (
                    "ok" if check.ok else
                    "MISSING" if check.needed else "absent",
                    check.name,
                    check.found or "nothing",
                    check.wanted,
                    "" if check.ok else check.fix,
                )
                for check in checks
            ],
        )
    lacking = [check for check in checks if check.needed and not check.ok]
    if lacking:
        raise errors.RequirementMissingError(
            f"a build for {device} needs "
            + ", ".join(check.name for check in lacking),
            next_command="; ".join(check.fix for check in lacking),
        )


@_command
@_build_options
@click.option("--pytest", "pytest_arguments", metavar="ARGS", default="",
              help="further arguments for pytest, as one text")
@click.argument("suite", nargs=-1)
def test(
    context: _Context,
    k2: Optional[str],
    torch: Optional[str],
    jobs: Optional[int],
    pytest_arguments: str,
    suite: tuple[str, ...],
) -> None:
    """Build what the suites need and run them; default all suites."""
    import shlex

    from k2mps import testing

    results = testing.run_all(
        context.project, context.upstream, k2, suite,
        torch=torch, jobs=jobs, arguments=shlex.split(pytest_arguments),
        reporter=context.console,
    )
    testing.report(results, context.console)


@_command
@click.option("--all", "everything", is_flag=True,
              help="the clones of k2 as well, unless they hold work")
def clean(context: _Context, everything: bool) -> None:
    """Delete the build trees."""
    from k2mps import clean as cleaning

    for path in cleaning.clean(
        context.project, context.upstream.pin, everything
    ):
        context.console.info(f"deleted {path}")


def _as_error(error: OSError) -> errors.K2mpsError:
    """An operating system's error as one of ours."""
    what = f"{error.strerror or error}"
    if error.filename:
        what += f": {error.filename}"
    if error.errno in _NO_SPACE:
        return errors.DiskFullError(
            what, next_command="free some space, then run the same command"
            " again",
        )
    return errors.FileAccessError(what)


def run() -> None:
    """Entry point of the console script."""
    from k2mps import git, interrupts

    interrupts.install()
    git.scrub_environment()
    try:
        sys.exit(_run())
    except errors.K2mpsError as error:
        failure = error
    except OSError as error:
        failure = _as_error(error)
    first, *rest = str(failure).split("\n")
    lines = [f"error: {first}", *(f"  {line}" for line in rest)]
    print("\n".join(lines), file=sys.stderr, flush=True)
    sys.exit(failure.exit_code)


def _run() -> int:
    try:
        return main(standalone_mode=False) or 0
    except click.exceptions.Abort:
        raise errors.InterruptedRunError(2) from None
    except click.ClickException as error:
        error.show()
        return error.exit_code
