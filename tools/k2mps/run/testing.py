"""`k2mps test`: builds what the chosen suites need, runs them, sums up."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

from k2mps.build import builder
from k2mps.build.builder import Built, Request
from k2mps.build.doctor import Device
from k2mps.build.environment import Environment
from k2mps.core import errors
from k2mps.core.progress import Reporter
from k2mps.run import suites
from k2mps.run.suites import Result
from k2mps.stack.checkout import Checkout


def run_all(
    environment: Environment,
    obtain: Callable[[], Checkout],
    request: Request,
    names: Sequence[str],
    arguments: Sequence[str] = (),
) -> list[Result]:
    """Runs suites, and does not stop at the first that fails.

    Args:
      obtain: gives the checkout, cloned if need be.
      request: what to build; the suite says for which device.
      names: of the suites; all where empty.
    Returns:
      One result a suite.  Where upstream cannot be reached, the suites that
      need k2 are not run, nor the tests of the others that do.
    """

    @functools.cache
    def outcome(device: Device, on_k2: bool, cpp: bool) -> Built | errors.K2mpsError | None:
        """Builds k2 once a device; each suite that asks for a build that fails gets the error."""
        wanted = dataclasses.replace(request, device=device, tests=cpp)
        try:
            if on_k2:
                return builder.build(environment, obtain(), wanted)
            builder.prepare(environment, wanted)
        except errors.K2mpsError as error:
            return error

    def build(suite: suites.Suite, on_k2: bool) -> Built | None:
        found = outcome(suite.device, on_k2, suite.cpp)
        if isinstance(found, errors.K2mpsError):
            raise found
        return found

    results = []
    for suite in suites.choose(names):
        try:
            try:
                built = build(suite, suite.on_k2)
            except errors.UnreachableError as error:
                if not suite.marked:
                    reason = str(error).replace("\n", "; ")
                    results.append(suites.not_run(environment.project, suite, reason))
                    continue
                built = build(suite, False)
            for extra in suite.extras:
                environment.install_group(extra)
        except errors.K2mpsError as error:
            results.append(Result(suite, broken=str(error)))
        else:
            results.append(suites.run(environment, suite, built, arguments))
    return results


def report(results: Sequence[Result], reporter: Reporter) -> None:
    """Shows the failures, then the summary.

    Raises:
      CheckFailedError: something failed, a suite collected nothing, or no suite could be run.
    """
    for result in results:
        if result.output:
            reporter.info(f"--- {result.suite.title}")
            for line in result.output:
                reporter.info(line)
    for line in suites.summary(results):
        reporter.info(line)
    if all(result.not_run for result in results):
        raise errors.CheckFailedError(
            "no suite could be run", next_command="k2mps doctor; the reasons are above"
        )
    failed = [result.suite.name for result in results if not result.ok]
    if failed:
        raise errors.CheckFailedError(
            f"failures in {', '.join(failed)}",
            next_command=f"k2mps test {failed[0]}; the whole output is in"
            f" build/tests/{failed[0]}.log",
        )
