"""`k2mps upstream --check`: builds and tests each commit of a pull request.

The check builds each commit twice, in a worktree under build/.  The first build has K2_WITH_MPS
off, as in upstream; k2's own suite then runs on the CPU.  The second build has K2_WITH_MPS on; the
suite then runs on mps, with the tests of mps that the commit has.  Commits without the option
K2_WITH_MPS have no second build, and commits whose Python does not know mps only import k2.  There
are two build trees, one for all first builds and one for all second builds.  So a build compiles
only what a commit changes.  k2's style checkers read the lines that a commit adds.

The builds of the last commit compile each file alone, which finds a missing #include.  All other
builds compile several files at once.  A quick check runs k2's suite on the last commit only.

The check saves each result, with the tree of the commit and the arguments of the build.  Another
run of the check does not repeat the builds and tests that have passed.
"""

import argparse
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from k2mps.build import builder
from k2mps.build.doctor import Device
from k2mps.build.environment import Environment
from k2mps.build.request import Request
from k2mps.cli.console import Console
from k2mps.core import errors, project, replacement
from k2mps.run import suites
from k2mps.stack import clone
from k2mps.stack.checkout import Checkout, Commit

from k2_mps_tests import ending
from k2_mps_tests.commits import style

SUITES = {Device.CPU: "upstream-cpu", Device.MPS: "upstream-mps"}
# A build without optimization finds the errors of an optimized build, in a third of the time.
QUICK = ("-DCMAKE_CXX_FLAGS_RELEASE=-O0", "-DCMAKE_OBJCXX_FLAGS_RELEASE=-O0")
EACH_ALONE = (*QUICK, "-DK2_UNITY=OFF")
OPTION = "cmake/mps.cmake"
# Without these files, k2's Python does not know mps, or k2 has no code for the RNN-T losses there.
PYTHON, KERNELS = "k2/python/tests/mps_device_test.py", "k2/csrc/mps/mutual_information.cu"
WITHOUT_KERNELS = ("-k", "not rnnt and not mutual_information")
FSA = """\
import k2
fsa = k2.create_fsa_vec([k2.Fsa.from_str("0 1 1 0.5\\n1 2 -1 0.25\\n2")])
devices = ["cpu"]
if hasattr(k2, "mps") and k2.mps.is_available():
    devices.append("mps")
for device in devices:
    score = fsa.to(device).get_tot_scores(False, True).item()
    assert score == 0.75, (device, score)
print("import k2 and an FSA on " + ", ".join(devices))
"""


def check(
    environment: Environment, checkout: Checkout, base: str, tip: str, quick: bool
) -> Iterator[tuple[Commit, Sequence[tuple[str, bool]]]]:
    """Builds and tests the commits from `base` to `tip`, the oldest commit first.

    Args:
      quick: whether to run k2's suite on the last commit only.
    Yields:
      (commit, results).  A result is (text, whether it is good).  The first result is from
      the build with K2_WITH_MPS off, and the third from k2's style checkers.  The second is from
      the build with K2_WITH_MPS on; its text is "-" if k2 lacks this option.
    """
    root = environment.project.build_root
    folder, file = root / "upstream", root / "upstream-check.json"
    root.mkdir(exist_ok=True)
    with project.exclusive(root, "build/upstream"):
        if os.path.lexists(folder):
            raise errors.K2mpsError(
                f"{folder} exists",
                why="a check was killed, or the folder is yours",
                next_command="move it away, or delete it; then the same command again",
            )
        try:
            saved = json.loads(file.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            saved = {}
        try:
            for commit in checkout.commits(f"{base}..{tip}"):
                is_last = commit.id == tip
                arguments = EACH_ALONE if is_last else QUICK
                tests = is_last or not quick
                key = " ".join([checkout.tree_of(commit.id), *arguments, "tests" * tests])
                if key not in saved or not all(ok for _, ok in saved[key]):
                    print(commit, flush=True)
                    worktree = at_commit(checkout, folder, commit.id)
                    saved[key] = [
                        tried(environment, worktree, Device.CPU, arguments, tests),
                        tried_on_mps(environment, worktree, arguments, tests),
                        # The first build has installed the style checkers.
                        styled(worktree, commit, base if is_last else ""),
                    ]
                    replacement.rewrite(file, json.dumps(saved, indent=1) + "\n")
                yield commit, saved[key]
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def tried_on_mps(
    environment: Environment, worktree: Checkout, arguments: tuple[str, ...], tests: bool
) -> tuple[str, bool]:
    """Returns the result of the build with K2_WITH_MPS on; ("-", True) without this option."""
    if not (worktree.directory / OPTION).is_file():
        return "-", True
    tests = tests and (worktree.directory / PYTHON).is_file()
    return tried(environment, worktree, Device.MPS, arguments, tests)


def styled(worktree: Checkout, commit: Commit, base: str) -> tuple[str, bool]:
    """Returns the result of k2's style checkers for the lines that a commit adds.

    Args:
      base: for the last commit, the commit below the pull request, otherwise empty.  clang-format
        checks the last commit only, and there all lines that the pull request adds: a later commit
        may change the lines of an earlier one.
    """
    offences = list(style.findings(worktree, commit.parents[0], commit.id))
    if base:
        offences += style.findings(worktree, base, commit.id, ["clang-format"])
    return "\n".join(offences) or "well", not offences


def tried(
    environment: Environment,
    worktree: Checkout,
    device: Device,
    arguments: tuple[str, ...],
    tests: bool = False,
) -> tuple[str, bool]:
    """Builds the worktree as it is; then imports k2 or, with `tests`, runs k2's suite.

    Returns (text, whether all succeeded).
    """
    request = Request(device, as_is=True, cmake_arguments=arguments)
    try:
        built = builder.build(environment, worktree, request)
    except errors.CompileError as error:
        return f"does not build: {error.why}", False
    (suite,) = suites.choose([SUITES[device]])
    if not tests:
        # On the CPU, there must be no mps device, not even the emulated one.
        variables = suite.variables if device is Device.CPU else {}
        path = os.pathsep.join(map(str, built.python_path))
        settings = {**variables, "PYTHONPATH": path}
        root = environment.project.build_root
        outcome = environment.run(["-c", FSA], cwd=root, environment=settings)
        return "\n".join(outcome.lines[-8:]), outcome.status == 0
    lacks_kernels = device is Device.MPS and not (worktree.directory / KERNELS).is_file()
    result = suites.run(environment, suite, built, WITHOUT_KERNELS if lacks_kernels else ())
    return "\n".join([result.summary, *result.output[-20:]]), result.ok


def at_commit(checkout: Checkout, folder: Path, commit: str) -> Checkout:
    """Checks out a commit in the clone in `folder`; makes the clone if it does not exist.

    The commit must be HEAD of `checkout`, or in its history.
    """
    is_new = not folder.exists()
    if is_new:
        clone.copy(checkout, folder)
    worktree = Checkout(folder, checkout.reporter)
    if not is_new:
        worktree.git.bytes("fetch", "--quiet", "--no-tags", str(checkout.directory), "HEAD")
    worktree.git.bytes("checkout", "--quiet", "--detach", commit)
    return worktree


def main() -> int:
    parser = argparse.ArgumentParser(prog="k2mps upstream --check")
    for name in ("k2", "base", "tip"):
        parser.add_argument(name)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    console = Console()
    checkout = Checkout(Path(options.k2), console)
    environment = Environment(project.find(), console)
    count, bad = 0, []
    try:
        for commit, results in check(
            environment, checkout, options.base, options.tip, options.quick
        ):
            off, on, offences = (text for text, _ in results)
            print(f"{commit}: K2_WITH_MPS=OFF: {off}; ON: {on}; style: {offences}", flush=True)
            if not all(ok for _, ok in results):
                bad.append(commit.subject)
            count += 1
    except errors.K2mpsError as error:
        # The tool finds the reason in these lines, see `Program.run`.
        print("error: " + str(error).replace("\n", "\n  "))
        return error.exit_code
    print(f"{len(bad)} of {count} commits fail" + "".join(f"; {subject}" for subject in bad))
    return bool(bad)


if __name__ == "__main__":
    ending.run(main)
