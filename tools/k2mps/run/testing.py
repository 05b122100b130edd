"""`k2mps test`: builds what the chosen suites need, runs them, sums up."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from k2mps.build import builder
from k2mps.build.doctor import Device
from k2mps.core import errors
from k2mps.core.pins import Upstream
from k2mps.core.progress import Reporter
from k2mps.core.project import Project
from k2mps.run import suites
from k2mps.run.suites import Result, Suite
from k2mps.stack import clone


def run_all(
    project: Project,
    upstream: Upstream,
    k2: str | None,
    names: Sequence[str],
    *,
    torch: str | None = None,
    jobs: int | None = None,
    arguments: Sequence[str] = (),
    reporter: Reporter = Reporter(),
) -> list[Result]:
    """Runs suites, and does not stop at the first that fails.

    Args:
      project, upstream: the clone of k2-mps and its upstream.toml.
      k2: the checkout, as `clone.obtain` takes it.
      names: of the suites; all where empty.
      torch, jobs: as in `builder.Request`.
      arguments: further arguments for pytest.
      reporter: told about progress.
    Returns:
      One result a suite.  Where upstream cannot be reached, the suites that
      need k2 are not run, nor the tests that do of those where some do.
    """
    chosen = suites.choose(names)
    builds = _Builds(project, upstream, k2, torch, jobs, reporter)
    results = []
    for suite in chosen:
        try:
            try:
                built = builds.of(suite)
            except errors.UnreachableError as error:
                if not suite.marked:
                    reason = str(error).replace("\n", "; ")
                    results.append(suites.not_run(project, suite, reason))
                    continue
                built = builds.of(dataclasses.replace(suite, on_k2=False))
            suites.provide(project, suite, reporter)
        except errors.InterruptedRunError:
            raise
        except errors.K2mpsError as error:
            results.append(Result(suite, broken=str(error)))
        else:
            results.append(suites.run(project, suite, built, arguments, reporter))
    return results


def report(results: Sequence[Result], reporter: Reporter) -> None:
    """Shows the failures, then the summary.

    Raises:
      TestsFailedError: something failed, a suite collected nothing, or no
        suite could be run.
    """
    for result in results:
        if result.output:
            reporter.info(f"--- {result.suite.title}")
            for line in result.output:
                reporter.info(line)
    for line in suites.summary(results):
        reporter.info(line)
    if all(result.not_run for result in results):
        raise errors.TestsFailedError(
            "no suite could be run", next_command="k2mps doctor; the reasons are above"
        )
    failed = [result.suite.name for result in results if not result.ok]
    if failed:
        raise errors.TestsFailedError(
            f"failures in {', '.join(failed)}",
            next_command=f"k2mps test {failed[0]}; the whole output is in"
            f" build/tests/{failed[0]}.log",
        )


class _Builds:
    """Builds k2 once a device, when a suite first asks for it."""

    def __init__(self, project, upstream, k2, torch, jobs, reporter):
        self._project = project
        self._upstream = upstream
        self._k2 = k2
        self._torch = torch
        self._jobs = jobs
        self._reporter = reporter
        self._done: dict[tuple[Device, bool, bool], object] = {}

    def of(self, suite: Suite) -> builder.Built | None:
        """The build for a suite; None where it needs no k2.

        Raises:
          whatever building raises, for each suite that asks.
        """
        key = (suite.device, suite.on_k2, suite.cpp)
        if key not in self._done:
            try:
                self._done[key] = self._make(*key)
            except errors.K2mpsError as error:
                self._done[key] = error
        if isinstance(self._done[key], errors.K2mpsError):
            raise self._done[key]
        return self._done[key]

    def _make(self, device: Device, on_k2: bool, cpp: bool) -> builder.Built | None:
        request = builder.Request(device, self._torch, self._jobs, tests=cpp)
        if not on_k2:
            builder.prepare(self._project, self._upstream, request, self._reporter)
            return None
        k2 = clone.obtain(self._project, self._upstream.pin, self._k2, self._reporter)
        by = builder.Builder(self._project, self._upstream, k2, self._reporter)
        return by.build(request)
