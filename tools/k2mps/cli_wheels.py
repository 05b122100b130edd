"""The commands that make and verify wheels; cli.py registers them."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import click

from k2mps.session import Session, jobs_option, k2_option, torch_option


@click.command("wheel")
@k2_option
@torch_option
@jobs_option
@click.option(
    "--target",
    type=click.Choice(("native", "macos-arm64")),
    default="native",
    show_default=True,
    help="the system that the wheel is for",
)
@click.option(
    "--release",
    is_flag=True,
    help="refuse unless all of k2-mps is as committed",
)
@click.pass_obj
def wheel_command(
    session: Session,
    k2: Optional[str],
    torch: Optional[str],
    jobs: Optional[int],
    target: str,
    release: bool,
) -> None:
    """Make a wheel of the patched k2 and verify it.

    One for this machine is also imported, in a clean environment.
    """
    from k2mps import make_wheel
    from k2mps.toolchain import LABEL
    from k2mps.wheel import Target

    chosen = Target(target)
    path = make_wheel.make(
        session.project, session.upstream, session.obtain(k2), chosen,
        torch, jobs, release, session.console,
    )
    checked = "verified, imported in a clean environment"
    session.console.info(f"{path}: {LABEL if chosen.crossed else checked}")


@click.command("verify-wheel")
@k2_option
@click.argument(
    "wheel", metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.pass_obj
def verify_wheel_command(
    session: Session, k2: Optional[str], wheel: Path
) -> None:
    """Take a wheel apart and check it against the patched k2 and torch."""
    from k2mps import verify_wheel

    verify_wheel.check(
        wheel, session.project, session.upstream, session.obtain(k2),
        session.console,
    )
    session.console.info(f"{wheel.name}: verified")


COMMANDS = (wheel_command, verify_wheel_command)
