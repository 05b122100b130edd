"""Makes small changes in the code, one at a time, and checks that the tests notice them.

    .venv/bin/python -m k2_mps_tests.mutation --each 20

The program makes each change in a copy of the tree.  In this copy, it runs the tests that areas.py
lists for the changed file.  With --whole, the program then runs all other tests of the suite.  All
these tests must pass without the change.  The seed decides which changes the program makes.

For a change in a header of the bindings, the program compiles k2's extension in build/mutation.
All other changes need no build of k2.  The checks compile kernels at run time, and Python finds
the changed k2.mps before the k2.mps of the last `k2mps build`.  The last build must have the
patches of this tree.

The program prints a row for each change, and at the end how many changes the tests noticed.  The
exit status is 34 if they did not notice all changes.
"""

import argparse
import ast
import collections
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from k2_mps_tests import ending
from k2_mps_tests.mutation import areas, mutants
from k2_mps_tests.mutation.extension import SOURCES, Extension

ROOT = Path(__file__).resolve().parents[2]
UNNOTICED = 34
AREAS = ("kernels", "bindings", "k2.mps", "k2_mac", "tool")
# If tests take longer than this, the program assumes that the change makes the tests hang.  Such a
# change counts as noticed.
SECONDS = 1800


def copy_tree(folder: Path) -> None:
    """Copies this repository's files, and the checkout's Python and bindings, into a folder."""
    for name in areas.tracked(ROOT):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    shutil.copytree(ROOT / "build/k2/k2/python/k2", folder / areas.K2 / "k2")
    (folder / areas.BINDINGS).mkdir()
    for header in sorted((ROOT / "build/k2" / SOURCES).glob("*.h")):
        if header.name.startswith("mps_") or header.name == "scores.h":
            shutil.copy2(header, folder / areas.BINDINGS)
    for command in ("init", "add --all", "commit --quiet -m copy"):
        who = ["-c", "user.name=k2-mps", "-c", "user.email=k2-mps@k2-mps.invalid"]
        subprocess.run(["git", *who, *command.split()], cwd=folder, check=True, capture_output=True)


class Tests:
    """Runs the tests of an area's mutants in a copy of the tree.

    Attributes:
      tree: the copy.
    """

    def __init__(self, area: str, tree: Path):
        self.tree = tree
        self._log = tree.parent / "log.txt"
        self._sound: set[tuple[str, ...]] = set()
        self._extension = Extension(ROOT) if area == "bindings" else None

    def require_sound(self, commands: Sequence[Sequence[str]]) -> None:
        """Ends the program if the tests fail without a change.

        Tests that fail anyway would seem to notice each mutant.
        """
        for command in commands:
            if tuple(command) not in self._sound:
                if self._extension:
                    self._extension.build()
                if self.run(command):
                    sys.exit(f"error: without a change, {' '.join(command)} fails\n{self.end()}")
                self._sound.add(tuple(command))

    def compiles(self, mutant: mutants.Mutant) -> bool:
        """Returns whether the code with the change compiles.

        For a header of the bindings, builds k2's extension.
        """
        if self._extension:
            return self._extension.build(Path(mutant.path).name, mutant.text)
        if mutant.path.endswith(".py"):
            try:
                ast.parse(mutant.text)
            except SyntaxError:
                return False
        return True

    def run(self, command: Sequence[str]) -> int:
        """Runs a command with the code of the tree; returns its exit status."""
        built = self._extension.path if self._extension else ()
        folders = [self.tree / folder for folder in (areas.K2, "tools", ".")]
        path = os.pathsep.join(map(str, (*folders, *built)))
        environment = dict(os.environ, PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1")
        how = {"cwd": self.tree, "env": environment, "timeout": SECONDS}
        with open(self._log, "w", encoding="utf-8") as file:
            return subprocess.run(command, stdout=file, stderr=file, **how).returncode

    def end(self) -> str:
        """Returns the end of what the last command printed."""
        return self.said()[-2000:]

    def said(self) -> str:
        """Returns what the last command printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")


def outcome(area: str, mutant: mutants.Mutant, tests: Tests, commands: Sequence) -> str:
    """Returns the verdict on a mutant: "noticed", "hangs", "unnoticed" or "does not compile"."""
    if not tests.compiles(mutant):
        return "does not compile"
    for command in commands:
        try:
            status = tests.run(command)
        except subprocess.TimeoutExpired:
            return "hangs"
        if area == "kernels" and "seconds to compile" not in tests.said():
            return "does not compile"
        if status:
            return "noticed"
    return "unnoticed"


def run(area: str, count: int, seed: int, tree: Path, whole: bool) -> collections.Counter:
    """Tries `count` mutants of an area and prints a row for each; returns {outcome: number}."""
    tests = Tests(area, tree)
    texts = [(path, (tree / path).read_text(encoding="utf-8")) for path in areas.files(area, tree)]
    counts = collections.Counter()
    for mutant in mutants.shuffled(texts, seed):
        if sum(counts.values()) == count:
            break
        commands = areas.commands(area, mutant.path, tree, whole)
        tests.require_sound(commands)
        path = tree / mutant.path
        content = path.read_bytes()
        path.write_text(mutant.text, encoding="utf-8")
        try:
            found = outcome(area, mutant, tests, commands)
        finally:
            path.write_bytes(content)
        if found == "does not compile":
            continue
        counts[found] += 1
        shown = " ".join(mutant.text.splitlines()[mutant.line - 1].split())
        old, new = mutant.old.strip(), mutant.new.strip()
        print(f"{found:<10} {mutant.path}:{mutant.line}: {old!r} -> {new!r}: {shown}", flush=True)
    return counts


def main() -> int:
    """Returns UNNOTICED if no test noticed a mutant, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m k2_mps_tests.mutation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("area", nargs="*", help=f"of {', '.join(AREAS)}; default all")
    parser.add_argument("--each", type=int, default=20, help="changes in each area; default 20")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--whole",
        action="store_true",
        help="run the rest of the suite if the tests of the changed file notice nothing",
    )
    options = parser.parse_args()
    if unknown := set(options.area) - set(AREAS):
        parser.error(f"no area is called {', '.join(sorted(unknown))}")
    if not (ROOT / "build/k2/k2/python/k2/mps").is_dir():
        parser.error("build/k2 is missing: k2mps build")
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        tree.mkdir()
        copy_tree(tree)
        for area in options.area or AREAS:
            counts += run(area, options.each, options.seed, tree, options.whole)
    total = sum(counts.values())
    print(f"{total - counts['unnoticed']} of {total} changes were noticed (mps is emulated)")
    return UNNOTICED if counts["unnoticed"] else 0


if __name__ == "__main__":
    ending.run(main)
