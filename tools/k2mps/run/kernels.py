"""`k2mps kernels`: each Metal kernel by itself, against a reference."""

from __future__ import annotations

from pathlib import Path

from k2mps.build import builder
from k2mps.build.doctor import Device
from k2mps.core import errors
from k2mps.core.pins import Upstream
from k2mps.core.progress import Reporter
from k2mps.core.project import Project
from k2mps.run import program

# Exit statuses of k2_mps_tests.kernels.
_NO_GPU = 3
_MISSING = 4


def check(
    project: Project,
    upstream: Upstream,
    device: str,
    prepare: Path | None = None,
    run: Path | None = None,
    libdevice: Path | None = None,
    gpu: str | None = None,
    reporter: Reporter = Reporter(),
) -> None:
    """Runs the checks of k2_mps_tests/kernels and shows what they print.

    Args:
      project, upstream: the clone of k2-mps and its upstream.toml.
      device: "cpu" for torch's mps device, emulated on Linux; "cuda" for an
        NVIDIA GPU.
      prepare: a folder to make for another machine's GPU, instead.
      run: such a folder to run, instead.
      libdevice: CUDA's libdevice.10.bc; the installed toolkit's if None.
      gpu: the oldest GPU that PTX is for, like sm_80.
      reporter: told what the checks say.
    Raises:
      TestsFailedError: a kernel is wrong.
      NoGpuError: there is no NVIDIA GPU to run on.
      RequirementMissingError: a kernel has no check, or a file of CUDA's is
        missing.
    """
    builder.prepare(project, upstream, builder.Request(Device.MPS), reporter)
    arguments = ["--device", device]
    for option, value in (
        ("--prepare", prepare),
        ("--run", run),
        ("--libdevice", libdevice),
        ("--gpu", gpu),
    ):
        if value is not None:
            arguments += [option, str(value)]
    outcome = program.run(
        project,
        "k2_mps_tests.kernels",
        arguments,
        reporter,
        cwd=Path.cwd(),  # the paths are the user's
        # What the error says need not be said twice.
        on_line=lambda line: (None if line.startswith("no GPU: ") else reporter.info(line)),
    )
    last = outcome.lines[-1] if outcome.lines else "it said nothing"
    if outcome.status == _NO_GPU:
        raise errors.NoGpuError(
            last,
            next_command="k2mps kernels --device cpu, or k2mps kernels"
            " --prepare DIR and DIR/run.py on a machine with a GPU",
        )
    if outcome.status == _MISSING:
        raise errors.RequirementMissingError(
            "the kernels cannot be checked",
            why=last,
            next_command="install what it names, then run the same command again",
        )
    if outcome.status != 0:
        raise errors.TestsFailedError(
            f"the checks of the kernels ended with status {outcome.status}",
            next_command="k2mps kernels --device cpu, after a change of the"
            " kernel or of its check in k2_mps_tests/kernels/checks",
        )
