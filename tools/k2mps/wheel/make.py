"""Making wheels: building k2 for one, packing it, checking it."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

from k2mps.build import builder, interpreter, provenance, toolchain
from k2mps.build.doctor import Device
from k2mps.build.environment import Environment, torch_requirement
from k2mps.core import errors, process
from k2mps.core.pins import Upstream
from k2mps.core.progress import Reporter
from k2mps.core.project import Project
from k2mps.stack import status
from k2mps.stack.checkout import Checkout
from k2mps.stack.status import State
from k2mps.wheel import verify
from k2mps.wheel.contents import Target, contents, describe, pack

_CHECK = """
import torch
import k2
info = k2.mps.build_info()
assert info["version"] == k2.__dev_version__ == {version!r}, info
assert info["patched_tree"] == {tree!r}, info
"""


def make(
    project: Project,
    upstream: Upstream,
    checkout: Checkout,
    target: Target = Target.NATIVE,
    torch: str | None = None,
    jobs: int | None = None,
    release: bool = False,
    reporter: Reporter = Reporter(),
    python: str | None = None,
) -> Path:
    """Makes a wheel and checks it; it lies in build/wheels when it is good.

    Args:
      python: the Python that a wheel for another system is for, by name or
        path; default .venv's.
      release: whether it is meant for others: then this clone of k2-mps must
        be as committed.
    Raises:
      DirtyCheckoutError: the checkout holds edits; or the clone does, for a
        release.
      WheelVerificationError: it is not what it should be.
      WheelVerificationError: it cannot be installed or imported here.
      what `Builder.build` and `toolchain.assemble` raise.
    """
    refuse_edits(project, upstream, checkout)
    if release:
        refuse_dirt(project)
    wanted = torch_requirement(upstream.torch, torch)
    environment = Environment(project, reporter)
    tools = None
    if target.crossed:
        builder.prepare(
            project, upstream, builder.Request(Device.CPU, torch), reporter, with_torch=False
        )
        tools = toolchain.assemble(
            project, wanted, interpreter.find(python or environment.python), reporter
        )
    request = builder.Request(target.device, torch, jobs, for_wheel=True, toolchain=tools)
    built = builder.Builder(project, upstream, checkout, reporter).build(request)
    if release:  # It may have been edited meanwhile.
        refuse_dirt(project)
    description = describe(
        upstream, checkout, built, target, tools.python_tag if tools else environment.python_tag
    )
    directory = project.build_root / "wheels"
    unchecked = directory / "unchecked"
    unchecked.mkdir(parents=True, exist_ok=True)
    draft = unchecked / description.file_name
    pack(draft, description, contents(checkout, built, description))
    verify.check(draft, project, upstream, checkout, reporter, python)
    if not target.crossed:
        try_import(project, draft, built.origin["patched_tree"], reporter)
    wheel = directory / draft.name
    os.replace(draft, wheel)
    return wheel


def refuse_edits(project: Project, upstream: Upstream, checkout: Checkout) -> None:
    """A wheel says which patches it was made with; so there must be no more.

    Raises:
      DirtyCheckoutError: the checkout holds edits.
    """
    now = status.of_checkout(project, upstream, checkout)
    if now.state is State.EDITED:
        raise errors.DirtyCheckoutError(
            "a wheel is made of the locked patches, not of edits",
            why="; ".join(now.details),
            next_command=now.next_command or "k2mps status",
        )


def refuse_dirt(project: Project) -> None:
    """A release can be made again from a commit of k2-mps alone.

    Raises:
      DirtyCheckoutError: the clone holds edits, or is none.
    """
    found = provenance.edits(project)
    if found is None:
        raise errors.DirtyCheckoutError(
            "a release is made from a git clone of k2-mps",
            why=f"{project.root} is not one, so it is not known whether it was edited",
            next_command="git clone k2-mps, or k2mps wheel without --release",
        )
    if found:
        raise errors.DirtyCheckoutError(
            "a release is made of what is committed to k2-mps",
            why=f"{len(found)} file(s) are not: " + ", ".join(found[:5]),
            next_command="git commit or git stash, or k2mps wheel without --release",
        )


def try_import(project: Project, wheel: Path, tree: str, reporter: Reporter) -> None:
    """Installs a wheel for this machine in a clean environment and imports it.

    The environment has what .venv has, but no k2 and nothing that leads to
    one.

    Args:
      tree: the patched tree that the wheel is to be made of.
    Raises:
      WheelVerificationError: it cannot be installed or imported.
    """
    environment = Environment(project, reporter)
    with (
        tempfile.TemporaryDirectory(dir=project.build_root, prefix="wheel-test-") as folder,
        reporter.task(f"importing {wheel.name}"),
    ):
        clean = _clean_environment(Path(folder), environment)
        version = wheel.name.split("-")[1]
        for command in (
            [
                str(environment.python),
                "-m",
                "pip",
                "--python",
                str(clean),
                "install",
                "--no-deps",
                "--no-index",
                "--quiet",
                "--disable-pip-version-check",
                str(wheel),
            ],
            [str(clean), "-c", _CHECK.format(version=version, tree=tree)],
        ):
            outcome = process.run(
                command,
                reporter=reporter,
                cwd=Path(folder),
                # Loading binds all symbols, not each when it is called.
                environment={
                    "LD_BIND_NOW": "1",
                    "PYTHONPATH": "",
                    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
                },
            )
            if outcome.status != 0:
                raise errors.WheelVerificationError(
                    f"{wheel.name} cannot be installed and imported",
                    why=outcome.lines[-1] if outcome.lines else "",
                    next_command=f"look at {wheel}",
                )


def _clean_environment(folder: Path, environment: Environment) -> Path:
    """Makes a virtual environment with .venv's packages; its Python.

    The packages are linked to, which makes it a matter of a second.  Files
    that change Python's path stay behind.
    """
    directory = folder / "venv"
    subprocess.run(
        [str(environment.python), "-m", "venv", "--without-pip", str(directory)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    [site] = directory.glob("lib/python3.*/site-packages")
    for entry in environment.site_packages.iterdir():
        if entry.suffix != ".pth" and not re.match(r"_?k2\b", entry.name):
            (site / entry.name).symlink_to(entry)
    return directory / "bin" / "python"
