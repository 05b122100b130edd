"""Builds k2 for a wheel, packs the wheel, and checks it."""

import os
from pathlib import Path

from k2mps.build import builder
from k2mps.build.environment import Environment
from k2mps.build.request import Request
from k2mps.core import errors
from k2mps.stack import status
from k2mps.stack.checkout import Checkout
from k2mps.stack.status import State
from k2mps.wheel import verify
from k2mps.wheel.contents import contents, describe, pack


def make(environment: Environment, checkout: Checkout, request: Request) -> Path:
    """Makes a wheel, and checks it.

    Args:
      request: the options of the build.  `for_wheel` must be set.  The device must be mps for a
        Mac, and the CPU for other systems.
    Returns:
      The path of the wheel: in build/wheels, or in build/wheels/quick for a quick build.
    Raises:
      CheckFailedError: the wheel has problems.
    """
    project = environment.project
    now = status.of_checkout(project, environment.upstream, checkout)
    if now.state is State.EDITED:  # The wheel's origin cannot describe edits.
        raise errors.K2mpsError(
            "a wheel is made of patches/, but the checkout has edits",
            why="; ".join(now.details),
            next_command=now.next_command or "k2mps status",
        )
    built = builder.build(environment, checkout, request)
    description = describe(environment.upstream, checkout, built, request.device)
    directory = project.build_root / "wheels" / ("quick" if request.quick else "")
    unchecked = directory / "unchecked"
    unchecked.mkdir(parents=True, exist_ok=True)
    draft = unchecked / description.file_name
    pack(draft, description, contents(project, checkout, built, description))
    verify.check(draft, environment, checkout)
    wheel = directory / draft.name
    os.replace(draft, wheel)
    return wheel
