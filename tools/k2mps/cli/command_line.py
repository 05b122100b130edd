"""The commands of k2mps, except those of `patches` and `wheels`.

A command imports most modules only when it runs, because an import at the top would slow down all
commands.
"""

from pathlib import Path

import click

from k2mps import __version__
from k2mps.cli import patches, wheels
from k2mps.cli.session import Session, build_options, command, device_option, k2_option
from k2mps.core import errors


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    invoke_without_command=True,
)
@click.option("-v", "--verbose", is_flag=True, help="echo every command")
@click.version_option(__version__, message="k2mps %(version)s")
@click.pass_context
def main(context: click.Context, verbose: bool) -> None:
    """k2 with an Apple MPS backend: patch it, build it, test it. Without a command, print the state
    of the checkout and the next step.
    """
    context.obj.console.verbose = verbose
    if context.invoked_subcommand is None:
        _show_status(context.obj)
        context.obj.console.info("k2mps --help lists the commands")


def _status_of(session: Session):
    """Returns the `Status` of the checkout."""
    from k2mps.stack import status

    checkout = session.existing() if session.directory.is_dir() else None
    return status.of_checkout(session.project, session.upstream, checkout)


def _show_status(session: Session) -> None:
    """Prints the state of the checkout, the patches and the build, and the next command."""
    pin = session.upstream.pin
    shown = _status_of(session)
    built = session.project.registered
    show = session.console.info
    show(f"k2: {pin.version}, {pin.commit[:12]}")
    show(f"checkout: {shown.state.value} ({session.directory})")
    for line in (*shown.details, *shown.user_commits):
        show(f"  {line}")
    if shown.untracked_files:
        show(
            f"  not tracked by git: {errors.some(shown.untracked_files)}; k2mps"
            " new and k2mps fold add the files that you name"
        )
    if shown.patch_changes:
        show(f"patches: changed since they were applied: {errors.some(shown.patch_changes)}")
    show(f"build: {built.name if built else 'none'}")
    show(f"next: {_next(shown, built)}")


def _next(shown, built: Path | None) -> str:
    """Returns the command that the user should run next."""
    from k2mps.stack import status

    # `k2mps build` also applies the series.  But if something is in the way, `k2mps apply` says at
    # once what to do; `k2mps build` would build the edits without the changed patches.
    is_clean = shown.state in (status.State.ABSENT, status.State.PRISTINE)
    if shown.next_command == status.APPLY and is_clean and not shown.patch_changes:
        return "k2mps build"
    if shown.next_command:
        return shown.next_command
    is_built = built and shown.head.tree[:12] in built.name
    return "k2mps test" if is_built else "k2mps build"


@command(main, "apply", k2_option)
def apply_command(session: Session) -> None:
    """Apply the patch series to the checkout.

    If there is no checkout, clone the pinned k2. If the series does not apply, the checkout does
    not change.
    """
    from k2mps.stack import apply

    checkout = session.obtain()
    tip, written = apply.apply(session.project, checkout)
    if written is None:
        session.console.info(f"{checkout.directory}: already applied")
        return
    session.console.info(
        f"{checkout.directory}: applied the series, changed {len(written)} files; branch k2-mps at"
        f" {tip[:12]}"
    )


@command(main, "status", k2_option)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def status_command(session: Session, as_json: bool) -> None:
    """Print the state of the checkout, the patches and the build."""
    if not as_json:
        _show_status(session)
        return
    shown = _status_of(session)
    state = "changed" if shown.patch_changes else "as applied"
    facts = {"checkout": str(session.directory), **vars(shown), "patches": state}
    facts["next_command"] = session.with_options(shown.next_command)
    session.console.result(facts)


@command(main, "build", build_options, device_option)
@click.option(
    "--demo/--no-demo", default=True, help="whether to compare mps with the CPU after the build"
)
@click.option(
    "--else-train",
    is_flag=True,
    help="if k2 cannot be downloaded, train a transducer with one kernel instead; `make build`"
    " gives this option",
)
@click.option(
    "--only-packages", is_flag=True, help="install the packages of the build, and build nothing"
)
@click.option(
    "--keep-going", is_flag=True, help="after a failure, compile all other files, too; show each"
)
@click.argument("cmake_arguments", nargs=-1, type=click.UNPROCESSED)
def build_command(
    session: Session,
    device: str,
    demo: bool,
    else_train: bool,
    only_packages: bool,
    keep_going: bool,
    cmake_arguments: tuple[str, ...],
) -> None:
    """Build k2's Python module. Arguments after `--` go to cmake."""
    from k2mps.build import builder
    from k2mps.run import program

    if only_packages:
        builder.prepare(session.environment, session.request(device))
        return
    try:
        built = session.build(
            session.request(device, keep_going=keep_going, cmake_arguments=cmake_arguments)
        )
    except errors.UnreachableError as error:
        if not else_train:
            raise
        _train_without_k2(session, error)
        return
    builder.register(session.environment, built)
    done = f"{built.steps} steps" if built.steps else "nothing to do"
    session.console.info(f"built {built.directory.name}: {done}")
    if demo and device == "mps":
        program.CHECK.run(session.environment, ["--size", "small", "--seconds", "0"])
    session.console.info("next: make test, or train something: examples/README.md")


def _train_without_k2(session: Session, error: errors.UnreachableError) -> None:
    """Makes the environment, and runs a program that trains with one kernel and needs no k2."""
    from k2mps.build import builder
    from k2mps.run import program

    session.console.warn(str(error).replace("\n", "\n  "))
    missing = (
        "k2 itself is missing, so it was not built; the warning above says why; next: make build,"
        " when the network is back; or make build K2=DIRECTORY, a clone that has the pinned commit."
        " The training with one kernel does not need k2."
    )
    session.console.info(missing)
    builder.prepare(session.environment, session.request())
    program.KERNELS.run(session.environment, ["--train"])
    session.console.info(missing)


@command(main, "doctor", device_option)
def doctor_command(session: Session, device: str) -> None:
    """List what a build needs, and how to install what is missing."""
    from k2mps.build import doctor

    checks = doctor.examine(doctor.Device(device))
    rows = []
    for check in checks:
        fix = "" if check.ok else check.fix
        rows.append((check.verdict, check.name, check.found or "nothing", check.wanted, fix))
    session.console.table(("", "what", "found", "wanted", "how to install it"), rows)
    lacking = doctor.lacking(checks)
    if lacking:
        raise errors.RequirementMissingError(
            f"a build for {device} needs " + ", ".join(check.name for check in lacking),
            next_command="; ".join(check.fix for check in lacking),
        )


class _ForPytest(click.Command):
    """A command that keeps the words after `--` in its context, as `for_pytest`.

    click removes the `--`, so click alone cannot tell these words from the others.
    """

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        context.meta["for_pytest"] = tuple(args[at + 1 :])
        return super().parse_args(context, args[:at])


@command(main, "test", build_options, cls=_ForPytest)
@click.argument("names", metavar="[SUITE]... [-- PYTEST_ARGUMENTS]", nargs=-1)
def test_command(session: Session, names: tuple[str, ...]) -> None:
    """Build k2 and run test suites, by default all of them.

    docs/tool.md lists the suites. SUITE/FILE runs one file of a suite. Arguments after `--` go to
    pytest.
    """
    from k2mps.run import suites

    for_pytest = click.get_current_context().meta["for_pytest"]
    results = suites.run_all(
        session.environment, session.obtain, session.request(), names, for_pytest
    )
    suites.report(results, session.console)


for _command in (*patches.COMMANDS.commands.values(), wheels.wheel_command):
    main.add_command(_command)
