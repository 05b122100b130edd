"""Whether each commit of a pull request builds and passes k2's own suite.

Each commit is checked out in a worktree of its own under build/, built as
upstream builds it, with K2_WITH_MPS off, and tested on the CPU.  One build
tree follows the commits, so that a commit compiles what it changes.
"""

from __future__ import annotations

import dataclasses
import shutil
from typing import Iterator

from k2mps import errors, suites
from k2mps.build import Builder, Request
from k2mps.checkout import Checkout
from k2mps.doctor import Device
from k2mps.project import Project, exclusive
from k2mps.reporter import Reporter
from k2mps.submission import Submission
from k2mps.upstream import Upstream

_SUITE = "upstream-cpu"


@dataclasses.dataclass(frozen=True)
class Checked:
    """How one commit went.

    Attributes:
      commit: its id.
      subject: its first line.
      result: of k2's own suite.
    """

    commit: str
    subject: str
    result: suites.Result


def check(
    project: Project,
    upstream: Upstream,
    checkout: Checkout,
    made: Submission,
    reporter: Reporter,
) -> Iterator[Checked]:
    """Builds and tests the commits in their order, up to one that fails.

    Args:
      checkout: the one that has the commits.
      made: what `submission.make` made.
      reporter: told about progress.
    Raises:
      CompileError, ConfigureError: a commit does not build.
      TestsFailedError: one fails a test.
    """
    suite, = suites.choose([_SUITE])
    folder = project.build_root / "upstream"
    project.build_root.mkdir(exist_ok=True)
    with exclusive(project.build_root, "build/upstream"):
        _remove(project, checkout)
        try:
            for commit in checkout.commits(f"{made.base}..{made.tip}"):
                if folder.exists():
                    git = Checkout(folder, reporter).git
                    git.bytes("checkout", "--quiet", "--detach", commit.id)
                else:
                    checkout.git.bytes("worktree", "add", "--quiet",
                                       "--detach", str(folder), commit.id)
                reporter.info(f"{commit.id[:12]} {commit.subject}")
                built = Builder(
                    project, upstream, Checkout(folder, reporter), reporter
                ).build(Request(Device.CPU, as_is=True))
                result = suites.run(project, suite, built, (), reporter)
                yield Checked(commit.id, commit.subject, result)
                if not result.ok:
                    raise errors.TestsFailedError(
                        f"{commit.id[:12]} {commit.subject}: {result.failed}"
                        f" tests fail, {result.errors} have errors",
                        why="\n".join(result.output) or result.broken,
                        next_command=f"read {project.build_root}/tests/"
                        f"{_SUITE}.log",
                    )
        finally:
            _remove(project, checkout)


def _remove(project: Project, checkout: Checkout) -> None:
    """Removes the worktree, also one that a killed run has left."""
    shutil.rmtree(project.build_root / "upstream", ignore_errors=True)
    checkout.git.bytes("worktree", "prune")
