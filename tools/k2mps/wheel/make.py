"""Builds k2 for a wheel, packs the wheel, and checks it."""

import os
import tempfile
from pathlib import Path

from k2mps.build import builder
from k2mps.build.environment import Environment
from k2mps.core import errors
from k2mps.stack import status
from k2mps.stack.checkout import Checkout
from k2mps.stack.status import State
from k2mps.wheel import verify
from k2mps.wheel.contents import contents, describe, pack

# A program that checks an installed wheel.  First the program changes torch's version: `import k2`
# must refuse the other version before it loads the wheel's libraries.
_CHECK = """
import torch
right, torch.__version__ = torch.__version__, "0.0"
try:
    import k2
    raise SystemExit("it does not refuse another torch")
except ImportError as error:
    for word in ("0.0", f"pip install torch=={{right.split('+')[0]}}"):
        assert word in str(error), error
torch.__version__ = right
import k2
import k2_mac
from k2_mac import provenance
assert k2_mac.__file__.startswith({folder!r}), k2_mac.__file__
info = provenance.build_info()
assert info["version"] == k2.__dev_version__ == {version!r}, info
assert info["patched_tree"] == {tree!r}, info
"""


def make(environment: Environment, checkout: Checkout, request: builder.Request) -> Path:
    """Makes a wheel, and checks it.

    Args:
      request: the options of the build.  `for_wheel` must be set.  The device must be mps for a
        Mac, and the CPU for other systems.
    Returns:
      The path of the wheel: in build/wheels, or in build/wheels/quick for a quick build.
    Raises:
      CheckFailedError: the wheel has problems, or cannot be imported.
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
    if not request.crossed:
        _try_import(environment, draft, built.origin["patched_tree"])
    wheel = directory / draft.name
    os.replace(draft, wheel)
    return wheel


def _try_import(environment: Environment, wheel: Path, tree: str) -> None:
    """Installs a wheel in an empty folder, and imports it; the wheel must be for this machine.

    With its option -S, Python ignores the .pth files of .venv, which may lead to another k2.
    """
    root = environment.project.build_root
    version = wheel.name.split("-")[1]
    with (
        tempfile.TemporaryDirectory(dir=root, prefix="wheel-test-") as folder,
        environment.reporter.task(f"importing {wheel.name}"),
    ):
        options = ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check"]
        variables = {
            "LD_BIND_NOW": "1",  # With this, a missing symbol makes the import fail.
            "PYTHONPATH": os.pathsep.join([folder, str(environment.site_packages)]),
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        }
        for arguments in (
            ["-m", "pip", "install", "--target", folder, *options, wheel],
            ["-S", "-c", _CHECK.format(version=version, tree=tree, folder=folder)],
        ):
            environment.run(arguments, cwd=Path(folder), environment=variables).check(
                errors.CheckFailedError,
                f"{wheel.name} cannot be installed and imported",
                f"look at {wheel}",
                shown=1,
            )
