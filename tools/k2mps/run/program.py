"""Running Python programs in .venv that import k2_mps_tests and k2, as `k2mps fuzz` does."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from k2mps.build import builder
from k2mps.build.builder import Built
from k2mps.build.environment import Environment
from k2mps.core import errors
from k2mps.core.process import Outcome


def run(
    environment: Environment,
    module: str,
    arguments: Sequence[object],
    *,
    built: Built | None = None,
    variables: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] = lambda line: None,
    log: Path | None = None,
) -> Outcome:
    """Runs a module as a program, at the top of the clone.

    Args:
      built: the build whose k2 the program imports; default the registered one, if any.
    """
    root = environment.project.root
    paths = [root, root / "tools", *(built.python_path if built else ())]
    settings = {**(variables or {}), "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = ["-m", module, *arguments]
    return environment.run(command, cwd=root, environment=settings, on_line=on_line, log=log)


@dataclasses.dataclass(frozen=True)
class Program:
    """A program of k2_mps_tests that is a command of the tool."""

    module: str
    what: str  # the program's name in messages
    next_command: str  # what to do when the program fails
    group: str = ""  # a group of pyproject.toml that the program needs
    repeated: int = 0  # how many of the program's last lines the error repeats
    # The next commands for the exit statuses that mean that something is missing.
    missing: Mapping[int, str] = dataclasses.field(default_factory=dict)

    def run(
        self, environment: Environment, options: Mapping[str, object], built: Built | None = None
    ) -> None:
        """Runs the program and shows what it prints."""
        if self.group:
            environment.install_group(self.group)
        words, show = list(_words(options)), environment.reporter.info
        outcome = run(environment, self.module, words, built=built, on_line=show)
        if outcome.status in self.missing:
            raise errors.RequirementMissingError(
                f"the {self.what} cannot run",
                why=outcome.lines[-1] if outcome.lines else "it said nothing",
                next_command=self.missing[outcome.status],
            )
        failure = f"the {self.what} ended with status {outcome.status}"
        outcome.check(errors.CheckFailedError, failure, self.next_command, self.repeated)


CHECK = Program(
    "k2.mps.check", "comparison with the CPU", "k2mps test parity, to see which tests fail"
)
TRAINING = Program(
    "k2_mps_tests.kernels.train",
    "training with a kernel alone",
    "k2mps kernels --device cpu, to see which kernels fail",
)
FUZZ = Program(
    "k2_mps_tests.parity.fuzz",
    "fuzzer",
    "run the program printed above in .venv/bin/python; after a crash, read build/tests/fuzz.log",
)
DOCS = Program(
    "k2_mps_tests.docs", "build of docs/", "correct the page that is named, then k2mps docs", "docs"
)
TORCH = Program(
    "k2_mps_tests.macos_torch",
    "comparison of torch with what is known",
    "check the files that rely on the facts that differ, then write these facts in"
    " k2_mps_tests/macos_torch/known.toml",
    "wheels",
    missing={3: "read k2mps-pip.log in .venv, check pip's index; then run the same command again"},
)
COMMITS = Program(
    "k2_mps_tests.commits",
    "check of the commits",
    "k2mps fold the fix into the patch, then k2mps upstream --check again: it skips commits that"
    " have passed",
    repeated=1,
)
BENCH = Program(
    "k2_mps_tests.benchmarks.bench",
    "benchmark",
    "k2mps test parity, if k2 itself failed",
    group="examples",
    repeated=5,
)
KERNELS = Program(
    "k2_mps_tests.kernels",
    "check of the kernels",
    "k2mps kernels --device cpu, after a change of the kernel or of its check in"
    " k2_mps_tests/kernels/checks",
    # The statuses of k2_mps_tests/kernels/__main__.py.
    missing={
        3: "k2mps kernels --device cpu, or k2mps kernels --prepare DIR and DIR/run.py on a"
        " machine with a GPU",
        4: "install what it names, then run the same command again",
    },
)


def _words(options: Mapping[str, object]) -> Iterator[str]:
    """Options as words of a command line; paths become absolute: the program runs elsewhere."""
    for name, value in options.items():
        for one in value if isinstance(value, tuple) else (value,):
            if one is True:
                yield f"--{name}"
            elif one is not None and one is not False:
                yield from (f"--{name}", str(one.absolute() if isinstance(one, Path) else one))


def train_without_k2(
    environment: Environment, request: builder.Request, error: errors.UnreachableError
) -> None:
    """Does what `make build` can do without k2: trains a small transducer with a Metal kernel.

    Args:
      request: the build for mps that failed.
      error: why k2 cannot be had; shown first and last.
    """
    commit = environment.upstream.pin.commit[:12]
    lines = [
        f"k2 itself is missing: {error.what}",
        *(f"why: {line}" for line in error.why.splitlines()[-1:]),
        "next: make build, when the network is back; or make build K2=URL, a mirror, or"
        f" K2=DIRECTORY, a clone: either is verified to have the pinned commit {commit}",
    ]
    show, notice = environment.reporter.info, "\n".join(lines)
    show(notice)
    show("what needs no k2 goes on: the environment, and training with a kernel alone")
    builder.prepare(environment, request)
    TRAINING.run(environment, {})
    show("the backend's kernel trains, beside float64; k2 has not been built")
    show(notice)
