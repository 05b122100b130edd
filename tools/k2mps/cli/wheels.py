"""The commands `k2mps wheel`, `k2mps wheel verify` and `k2mps wheel index`."""

import sys
from pathlib import Path

import click

from k2mps.cli.session import Session, build_options, command, k2_option

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_wheel_argument = click.argument("wheel", metavar="FILE", type=_FILE)


@click.group("wheel", invoke_without_command=True, subcommand_metavar="[COMMAND]")
@build_options
@click.option(
    "--target",
    type=click.Choice(("native", "macos-arm64")),
    default="native",
    help="the system that the wheel is for",
)
@click.option(
    "--quick", is_flag=True, help="optimize little, if the wheel is only a check of the build"
)
@click.option(
    "--metallib",
    is_flag=True,
    help="in a cross build, compile the kernels too; k2 uses them if K2_MPS_METALLIB is 1",
)
@click.option(
    "--sdk",
    type=_FOLDER,
    help="with --quick: check the sources by compiling and linking with Apple's SDK in this folder",
)
@click.pass_context
def wheel_command(
    context: click.Context, target: str, quick: bool, metallib: bool, sdk: Path | None
) -> None:
    """Make and check a wheel of the patched k2.

    The wheel is for the Python of .venv.
    """
    if context.invoked_subcommand:
        return
    session: Session = context.obj
    from k2mps.build import builder
    from k2mps.build.toolchain import LABEL
    from k2mps.wheel import make

    on_mac = sys.platform == "darwin"
    crossed = target == "macos-arm64" and not on_mac
    if sdk and not (crossed and quick):
        raise click.UsageError(
            "--sdk is a check of a cross build: give --target macos-arm64 --quick as well, on Linux"
        )
    if metallib and not crossed:
        raise click.UsageError(
            "--metallib is for a cross build: give --target macos-arm64 as well, on Linux"
        )
    device = "mps" if crossed or on_mac else "cpu"
    request = session.request(
        device, for_wheel=True, crossed=crossed, quick=quick, metallib=metallib, sdk=sdk
    )
    # This check comes first, because a clone of k2 takes time.
    builder.check_system(session.environment, request)
    if sdk:
        # No wheel is made: Apple does not allow anyone to pass on files that are linked with this
        # SDK.  The check of the wheel would fail, too: it accepts only the symbols of libc++ that
        # torch's libraries use, and Apple's headers use others.
        built = builder.build(session.environment, session.obtain(), request)
        session.console.info(f"{built.directory}: compiled and linked with {sdk.name}; no wheel")
        return
    path = make.make(session.environment, session.obtain(), request)
    session.console.info(f"{path}: {LABEL if crossed else 'verified'}")
    if not crossed:
        session.console.info(
            f"next: ci/try-wheel {path}, which installs the wheel and computes a loss"
        )


@command(wheel_command, "verify", k2_option)
@_wheel_argument
def verify_command(session: Session, wheel: Path) -> None:
    """Check a wheel against torch and the patched k2."""
    from k2mps.wheel import verify

    verify.check(wheel, session.environment, session.obtain())
    session.console.info(f"{wheel.name}: verified")


@command(wheel_command, "index")
@click.option(
    "--base-url",
    default="",
    show_default=False,
    metavar="URL",
    help="the wheels' URL; default: the page's folder",
)
@click.argument("directory", metavar="DIR", type=_FOLDER)
def index_command(session: Session, base_url: str, directory: Path) -> None:
    """Write DIR/mps.html, a page for pip's --find-links."""
    from k2mps.wheel import index

    session.console.info(str(index.write(directory, base_url)))
