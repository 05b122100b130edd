"""Shell completion: click's, with the names of patches and suites."""

import click
from click.shell_completion import CompletionItem, get_completion_class

SHELLS = ("bash", "fish", "zsh")


def script(command: click.Command, shell: str) -> str:
    return get_completion_class(shell)(command, {}, "k2mps", "_K2MPS_COMPLETE").source()


def patches(context, parameter, incomplete: str) -> list[CompletionItem]:
    """The patches whose names begin so."""
    from k2mps.core import errors, project

    try:
        names = (project.find().patches / "series").read_text(encoding="utf-8").split()
    except (errors.K2mpsError, OSError):
        return []  # A completion must not print errors.
    found = [name.removesuffix(".patch") for name in names if name.startswith(incomplete)]
    return list(map(CompletionItem, found))


def suites(context, parameter, incomplete: str) -> list[CompletionItem]:
    """The suites whose names begin so."""
    from k2mps.run import suites

    found = [suite for suite in suites.choose(()) if suite.name.startswith(incomplete)]
    return [CompletionItem(suite.name, help=suite.covers) for suite in found]
