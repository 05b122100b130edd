"""`k2mps test`: builds what the chosen suites need, runs them, sums up."""

from __future__ import annotations

from typing import Optional, Sequence, Union

from k2mps import build, checkout, errors, suites
from k2mps.doctor import Device
from k2mps.project import Project
from k2mps.reporter import Reporter
from k2mps.suites import Result
from k2mps.upstream import Upstream

# What keeps a suite from being run without being a failure of ours.
_OUT_OF_REACH = (errors.UnreachableError, errors.CommitMissingError)


def run_all(
    project: Project,
    upstream: Upstream,
    k2: Optional[str],
    names: Sequence[str],
    *,
    torch: Optional[str] = None,
    jobs: Optional[int] = None,
    arguments: Sequence[str] = (),
    reporter: Reporter = Reporter(),
) -> list[Result]:
    """Runs suites, and does not stop at the first that fails.

    Args:
      project, upstream: the clone of k2-mps and its upstream.toml.
      k2: the checkout, as `checkout.obtain` takes it.
      names: of the suites; all where empty.
      torch, jobs: as in `build.Request`.
      arguments: further arguments for pytest.
      reporter: told about progress.
    Returns:
      One result a suite.  Where upstream cannot be reached, the suites that
      need k2 are not run, and every other is.
    """
    chosen = suites.choose(names)
    builds = _Builds(project, upstream, k2, torch, jobs, reporter)
    results = []
    for suite in chosen:
        built = builds.of(suite.device)
        if isinstance(built, errors.K2mpsError):
            results.append(_without_build(suite, built))
            continue
        results.append(
            suites.run(project, suite, built, arguments, reporter)
        )
    return results


def report(results: Sequence[Result], reporter: Reporter) -> None:
    """Shows what failed, then the summary.

    Raises:
      TestsFailedError: something failed or a suite collected nothing.
    """
    for result in results:
        if result.output:
            reporter.info(f"--- {result.suite.title}")
            for line in result.output:
                reporter.info(line)
    for line in suites.summary(results):
        reporter.info(line)
    failed = [result.suite.name for result in results if not result.ok]
    if failed:
        raise errors.TestsFailedError(
            f"failures in {', '.join(failed)}",
            next_command=f"k2mps test {failed[0]}; the whole output is in"
            f" build/tests/{failed[0]}.log",
        )


class _Builds:
    """Builds each device once, when a suite first asks for it."""

    def __init__(self, project, upstream, k2, torch, jobs, reporter):
        self._project = project
        self._upstream = upstream
        self._k2 = k2
        self._torch = torch
        self._jobs = jobs
        self._reporter = reporter
        self._made: dict[Optional[Device], object] = {}

    def of(
        self, device: Optional[Device]
    ) -> Union[build.Built, errors.K2mpsError, None]:
        """The build, or why there is none; None where none is needed."""
        if device not in self._made:
            try:
                self._made[device] = self._make(device)
            except errors.InterruptedRunError:
                raise
            except errors.K2mpsError as error:
                self._made[device] = error
        return self._made[device]

    def _make(self, device: Optional[Device]) -> Optional[build.Built]:
        request = build.Request(device or Device.MPS, self._torch, self._jobs)
        if device is None:
            build.prepare(
                self._project, self._upstream, request, self._reporter
            )
            return None
        k2 = checkout.obtain(
            self._project, self._upstream.pin, self._k2, self._reporter
        )
        builder = build.Builder(
            self._project, self._upstream, k2, self._reporter
        )
        return builder.build(request)


def _without_build(suite: suites.Suite, error: errors.K2mpsError) -> Result:
    if isinstance(error, _OUT_OF_REACH) and suite.device is not None:
        return Result(suite, not_run=str(error).replace("\n", "; "))
    return Result(suite, broken=str(error))
