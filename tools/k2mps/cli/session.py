"""What the commands have in common: the project, upstream.toml, the checkout, shared options."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from k2mps.cli.console import Console
from k2mps.core.git import quoted

if TYPE_CHECKING:
    from k2mps.build.environment import Environment
    from k2mps.build.request import Built, Request
    from k2mps.core.pins import Upstream
    from k2mps.core.project import Project
    from k2mps.stack.checkout import Checkout


# The names of the commands that have the options --k2 (K2 for make), --torch and --jobs.
_IN_CHECKOUT = "apply|build|export|fold|new|rebase|status|test|upstream|wheel"
_IN_BUILD = "build|test|wheel"


class Session:
    """One run of the command line.

    The properties `project`, `upstream` and `environment` are computed on first use.

    Attributes:
      console: shows results and progress.
      k2: the value of --k2, or of the environment variable K2; None if neither is given.
      torch, jobs: the values of the options --torch and --jobs; None if not given.
    """

    def __init__(self):
        self.console = Console(self.with_options)
        self.k2: str | None = os.environ.get("K2") or None
        self.torch: str | None = None
        self.jobs: int | None = None

    def with_options(self, text: str) -> str:
        """Returns a message whose commands have this run's options.

        The modules write a command without --k2, --torch and --jobs, as in "next: k2mps apply".
        If the user gave these options, the user's next command needs them, too.
        """
        for commands, option, value in (
            (f"k2mps (?:{_IN_BUILD})", "--jobs ", self.jobs),
            (f"k2mps (?:{_IN_BUILD})", "--torch ", self.torch),
            (f"make (?:{_IN_BUILD})", "TORCH=", self.torch),
            (f"k2mps (?:{_IN_CHECKOUT})", "--k2 ", self.k2),
            (f"make (?:{_IN_CHECKOUT})", "K2=", self.k2),
        ):
            if value:
                given = f"{option}{quoted(value)}"
                text = re.sub(rf"\b{commands}\b", lambda match: f"{match[0]} {given}", text)
        return text

    @functools.cached_property
    def project(self) -> Project:
        from k2mps.core import project

        used = project.find()
        current = Path.cwd().resolve()
        if used.root not in (current, *current.parents):
            self.console.warn(
                f"no upstream.toml here or above: {used.root} is used, the clone that k2mps was"
                " installed from"
            )
        return used

    @functools.cached_property
    def upstream(self) -> Upstream:
        return self.project.upstream()

    @functools.cached_property
    def environment(self) -> Environment:
        """The project's environment, in which builds and tests run."""
        from k2mps.build.environment import Environment

        return Environment(self.project, self.console)

    @property
    def directory(self) -> Path:
        """The directory of the checkout, whether it exists or not."""
        from k2mps.stack import clone

        return clone.locate(self.project, self.k2)

    def existing(self) -> Checkout:
        """Returns the checkout; see `clone.existing`."""
        from k2mps.stack import clone

        return clone.existing(self.project, self.upstream.pin, self.k2, self.console)

    def obtain(self) -> Checkout:
        """Returns the checkout, with the pinned commit in its repository; see `clone.obtain`."""
        from k2mps.stack import clone

        return clone.obtain(self.project, self.upstream.pin, self.k2, self.console)

    def request(self, device: str = "mps", **options) -> Request:
        """Returns the request for a build, with this run's options --torch and --jobs."""
        from k2mps.build.doctor import Device
        from k2mps.build.request import Request

        return Request(Device(device), self.torch, self.jobs, **options)

    def build(self, request: Request) -> Built:
        """Builds k2; clones k2 first if there is no checkout."""
        from k2mps.build import builder

        # This check comes first, because a clone takes time.
        builder.check_system(self.environment, request)
        return builder.build(self.environment, self.obtain(), request)


def command(group: click.Group, name: str, *options, **settings):
    """Returns a decorator that makes a function a command, and passes the session to the function.

    Args:
      options: click's decorators for options that several commands have.
      settings: further arguments of click's `command`.
    """

    def decorate(function):
        """Returns the command that calls `function`."""
        function = click.pass_obj(function)
        for option in reversed(options):
            function = option(function)
        return group.command(name, **settings)(function)

    return decorate


def _session_option(*names: str, **settings):
    """Returns an option whose value becomes an attribute of the session."""

    def keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
        """Sets the session's attribute; click calls this function with the option's value."""
        setattr(context.ensure_object(Session), parameter.name, value)

    return click.option(*names, expose_value=False, callback=keep, **settings)


k2_option = _session_option(
    "--k2", envvar="K2", metavar="DIR", help="your own k2 checkout; default build/k2"
)
torch_option = _session_option(
    "--torch", metavar="VERSION", help="a torch version that upstream.toml supports"
)
jobs_option = _session_option(
    "-j",
    "--jobs",
    type=click.IntRange(1),
    help="how many compilers run at once; default: as many as processors and memory allow",
)
device_option = click.option(
    "--device",
    type=click.Choice(("mps", "cpu")),
    default="mps",
    help="the device to build for; on Linux mps is emulated",
)


def build_options(command):
    """Decorates a command with the options of a build."""
    return k2_option(torch_option(jobs_option(command)))
