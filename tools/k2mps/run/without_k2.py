"""`make build` without access to k2.

The environment and the emulator need nothing of k2, nor do the backend's
Metal kernels: a small transducer is trained by one of them.  Nothing of this
stands for k2: `import k2` fails as before, and `k2mps build` by itself is the
error that it was.
"""

from __future__ import annotations

from k2mps.build import builder
from k2mps.core import errors
from k2mps.core.pins import Upstream
from k2mps.core.progress import Reporter
from k2mps.core.project import Project
from k2mps.run import program

_TRAINING = "k2_mps_tests.kernels.train"


def go_on(
    project: Project,
    upstream: Upstream,
    request: builder.Request,
    error: errors.UnreachableError,
    reporter: Reporter,
) -> None:
    """Sets up what needs no k2, and trains with a kernel of the backend.

    Args:
      project, upstream: the clone of k2-mps and its upstream.toml.
      request: what was to be built, for mps.
      error: why k2 cannot be had.
      reporter: told about progress, and first and last that k2 is missing.
    Raises:
      what `builder.prepare` raises.
      DemoError: the training fails.
    """
    for line in notice(upstream, error):
        reporter.info(line)
    reporter.info("what needs no k2 goes on: the environment, and training with a kernel alone")
    builder.prepare(project, upstream, request, reporter)
    outcome = program.run(project, _TRAINING, [], reporter)
    if outcome.status != 0:
        raise errors.DemoError(
            "the training with a kernel alone failed",
            why=f"python -m {_TRAINING} ended with status {outcome.status}",
            next_command="k2mps kernels --device cpu, to see which kernels fail",
        )
    reporter.info("the backend's kernel trains, beside float64; k2 has not been built")
    for line in notice(upstream, error):
        reporter.info(line)


def notice(upstream: Upstream, error: errors.UnreachableError) -> list[str]:
    """That k2 is missing, why, and how to go on."""
    commit = upstream.pin.commit[:12]
    return [
        f"k2 itself is missing: {error.what}",
        *(f"why: {line}" for line in error.why.splitlines()[-1:]),
        "next: make build, when the network is back; or make build K2=URL, a mirror, or"
        f" K2=DIRECTORY, a clone: either is verified to have the pinned commit {commit}",
    ]
