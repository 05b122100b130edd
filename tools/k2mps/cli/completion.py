"""Shell completion: click's, with the names of patches and suites."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

SHELLS = ("bash", "fish", "zsh")
_VARIABLE = "_K2MPS_COMPLETE"


def script(command: click.Command, shell: str) -> str:
    """What a shell has to read once to complete this command."""
    return get_completion_class(shell)(command, {}, "k2mps", _VARIABLE).source()


def patches(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The patches whose names begin so."""
    from k2mps.core import errors, project

    try:
        series = project.find().patches / "series"
        names = series.read_text(encoding="utf-8").split()
    except (errors.K2mpsError, OSError):
        return []  # what completes must not print errors
    return [
        CompletionItem(name.removesuffix(".patch")) for name in names if name.startswith(incomplete)
    ]


def suites(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The suites whose names begin so."""
    from k2mps.run import suites

    return [
        CompletionItem(suite.name, help=suite.covers)
        for suite in suites.choose(())
        if suite.name.startswith(incomplete)
    ]
