"""What `k2mps` says without a command: how things stand, and what is next."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from k2mps.build import builder
from k2mps.core.pins import Upstream
from k2mps.core.project import Project
from k2mps.stack import status
from k2mps.stack.checkout import Checkout


@dataclasses.dataclass(frozen=True)
class Overview:
    """How things stand.

    Attributes:
      facts: pairs of a word and what is to be said about it.
      next_command: what brings the user on.
    """

    facts: tuple[tuple[str, str], ...]
    next_command: str


def look(
    project: Project, upstream: Upstream, directory: Path, checkout: Checkout | None
) -> Overview:
    """Looks at the project, without changing anything.

    Args:
      project, upstream: the clone of k2-mps and its upstream.toml.
      directory: where the checkout is or would be.
      checkout: what is there; None where nothing is.
    """
    found = status.of_checkout(project, upstream, checkout)
    built = builder.registered(project)
    pin = upstream.pin
    facts = (
        ("k2", f"{pin.version}, {pin.commit[:12]}, {len(upstream.lock.patches)} patches"),
        ("patches", "changed" if found.patch_changes else "as locked"),
        ("checkout", f"{found.state.value} ({directory})"),
        ("build", built.name if built else "none"),
    )
    return Overview(facts, _next(project, found, built))


def _next(project: Project, found: status.Status, built: Path | None) -> str:
    if found.rebase:
        return found.next_command
    # What status advises before a first build, that does by itself.
    simple = found.state in (
        status.State.ABSENT,
        status.State.PRISTINE,
        status.State.APPLIED,
        status.State.OTHER_SERIES,
    )
    if found.next_command and (found.patch_changes or not simple):
        return found.next_command
    tree = "" if found.head is None else found.head.tree[:12]
    if built is None or not tree or tree not in built.name:
        return "k2mps build"
    return "k2mps test"


def lines(overview: Overview) -> list[str]:
    """The overview as text."""
    return [
        *(f"{name}: {text}" for name, text in overview.facts),
        f"next: {overview.next_command}",
        "k2mps --help lists the commands",
    ]
