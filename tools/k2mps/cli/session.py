"""The project, upstream.toml and the checkout, which all commands use."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path

import click

from k2mps.cli.console import Console

_DEVICES = ("mps", "cpu")


class Session:
    """The project, upstream.toml and the checkout; each is read on first use."""

    def __init__(self, verbose: bool):
        self.console = Console(verbose)

    @functools.cached_property
    def project(self):
        from k2mps.core import project

        found = project.find()
        here = Path.cwd().resolve()
        if found.root not in (here, *here.parents):
            self.console.warn(
                f"no upstream.toml here or above: {found.root} is meant, the"
                " clone that k2mps is installed from"
            )
        return found

    @functools.cached_property
    def upstream(self):
        self.tidy()
        return self.project.upstream()

    def tidy(self) -> None:
        """Finishes or reverts a killed run's changes of the project's files."""
        if self.project.staging.exists():
            from k2mps.stack import operations

            operations.tidy(self.project)

    def locate(self, k2: str | None) -> Path:
        """Where the checkout is, whether or not it exists."""
        from k2mps.stack import clone

        return clone.locate(self.project, k2)

    def existing(self, k2: str | None):
        """The checkout, which must exist."""
        from k2mps.stack import checkout

        found = checkout.Checkout(self.locate(k2), self.console)
        found.tidy()
        return found

    def to_change(self, k2: str | None):
        """The checkout, which must exist, with the project mended."""
        self.tidy()
        return self.existing(k2)

    def obtain(self, k2: str | None):
        """The checkout, cloned if need be, with the pin in it."""
        from k2mps.stack import clone

        found = clone.obtain(self.project, self.upstream.pin, k2, self.console)
        found.tidy()
        return found

    def build(self, k2: str | None, request):
        """Builds a request by `builder.Builder`, with a clone of k2 if there is none."""
        from k2mps.build import builder

        return builder.Builder(self.project, self.upstream, self.obtain(k2), self.console).build(
            request
        )

    def prepare_wheels(self) -> None:
        """Installs the packages that read wheels."""
        from k2mps.build.environment import Environment

        environment = Environment(self.project, self.console)
        if environment.install(environment.requirements("wheels")):
            importlib.invalidate_caches()


k2_option = click.option(
    "--k2",
    envvar="K2",
    metavar="DIR|URL",
    help="your own k2 checkout, or a git URL to clone; default build/k2",
)
torch_option = click.option(
    "--torch", metavar="VERSION", help="a torch version that upstream.toml supports"
)
jobs_option = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1),
    help="compilers at once; default: as many as processors and memory allow",
)
device_option = click.option(
    "--device",
    type=click.Choice(_DEVICES),
    default="mps",
    help="the device to build for; on Linux mps is emulated",
)
json_option = click.option("--json", "as_json", is_flag=True, help="print JSON")
