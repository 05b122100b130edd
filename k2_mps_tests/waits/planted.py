"""Plants mistakes in k2's memory for the host on mps, one at a time, and runs the tests.

    k2mps build
    .venv/bin/python -m k2_mps_tests.waits.planted [NAME]...

Each mistake breaks one rule of k2/csrc/mps/host_memory.h or one_gate.h.  The program compiles a
copy of one source file with a mistake, links the object with the other objects of the build to a
library in a temporary folder, and runs the tests of the parity suite that must notice the mistake.
A test notices a mistake if it fails, or if the emulated device ends the process, because the host
wrote bytes that queued work uses.

k2's C++ test mps_host_memory_test.cu tests the other rules: those of kernels and tensors inside of
a function, of threads, and of the targets of copies.

NAME is the name of a mistake; default: all.  The program prints a row for each mistake.  Exit
status: 1 if the tests do not notice a mistake, or fail without a mistake.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from k2mps.build import builder
from k2mps.build.environment import Environment
from k2mps.build.request import Request
from k2mps.cli.console import Console
from k2mps.core import project
from k2mps.stack.checkout import Checkout

from k2_mps_tests import ending

ROOT = Path(__file__).resolve().parents[2]
MPS = "k2/csrc/mps"
PARITY = "k2_mps_tests/parity"
TESTS = [f"{PARITY}/test_{name}.py" for name in ("host_memory", "copies", "pending_inputs")]
# The folder, in the build tree, of the files by which cmake compiles several sources as one.
UNITY = "k2/csrc/CMakeFiles/context.dir/Unity"
# A test that takes longer hangs, and so notices the mistake.
SECONDS = 600


class Mistake(NamedTuple):
    """A change of k2 that breaks a rule."""

    rule: str  # the rule that the change breaks
    file: str  # the changed file
    text: str  # stands once in the file
    change: str  # replaces `text`


MISTAKES = {
    "new blocks": Mistake(
        "new memory of torch becomes idle by a wait",
        f"{MPS}/host_memory.mm",
        "  SynchronizeNow();\n  std::lock_guard",
        "  std::lock_guard",
    ),
    "large storages": Mistake(
        "the host writes a storage of torch after a wait",
        f"{MPS}/host_memory.mm",
        "    SynchronizeNow();\n    return ans;",
        "    return ans;",
    ),
    "tensors": Mistake(
        "a block of which k2 has made a tensor is not idle",
        f"{MPS}/host_memory.mm",
        "    static_cast<Block *>(data.get_context())->has_tensor = true;",
        "    static_cast<void>(data.get_context());",
    ),
    "freed blocks": Mistake(
        "a freed block with a tensor is not idle at once",
        f"{MPS}/host_memory.mm",
        "if (block->has_tensor) {",
        "if (block->has_tensor.exchange(false) && false) {",
    ),
    "order of a wait": Mistake(
        "a wait makes only blocks idle that were freed before it began",
        f"{MPS}/stream.mm",
        "  Recycle(num_freed);",
        # The sleep gives another thread the time to free a block.
        "  std::this_thread::sleep_for(std::chrono::milliseconds(2));\n"
        "  Recycle(NumFreed() + 0 * num_freed);",
    ),
    "copies from mps": Mistake(
        "a copy from memory that is not idle waits",
        f"{MPS}/mps_context.mm",
        "    if (!is_idle) Sync();",
        "    static_cast<void>(is_idle);",
    ),
    "inputs of a function": Mistake(
        "a function whose input is not idle waits",
        f"{MPS}/stream.mm",
        "  if (mps::t_gate.depth++ == 0 || !is_open) mps::t_gate.is_open = is_open;",
        "  mps::t_gate.is_open = mps::t_gate.depth++ == 0 || is_open;",
    ),
    "end of a function": Mistake(
        "a wait of a function does not count for the next function",
        f"{MPS}/stream.mm",
        "  if (--mps::t_gate.depth == 0) mps::t_gate.is_open = false;",
        "  --mps::t_gate.depth;",
    ),
}


class Build:
    """The last build of k2, and a copy of its library `context` with a mistake."""

    def __init__(self, folder):
        """Builds the patched k2; `folder` is for the library with a mistake."""
        console = Console()
        console.shows_progress = False
        environment = Environment(project.Project(ROOT), console)
        self._checkout = Checkout(project.Project(ROOT).build_root / "k2", console)
        self._built = builder.build(environment, self._checkout, Request())
        self._folder = Path(folder)
        ninja = [Path(sys.executable).parent / "ninja", "-t", "commands", "lib/libk2context.so"]
        self._commands = subprocess.run(
            ninja, cwd=self._built.directory, check=True, capture_output=True, text=True
        ).stdout.splitlines()

    def notices(self, mistake=None):
        """Returns how the tests end: "passed", or what has noticed the mistake.

        Args:
          mistake: the Mistake to plant; default none.
        """
        if mistake is None:
            return self._run(self._built.directory / "lib")
        content = (self._checkout.directory / mistake.file).read_text(encoding="utf-8")
        if content.count(mistake.text) != 1:
            sys.exit(f"error: {mistake.file} has changed; correct the mistake in {__file__}")
        changed = self._folder / mistake.file
        changed.parent.mkdir(parents=True, exist_ok=True)
        changed.write_text(content.replace(mistake.text, mistake.change), encoding="utf-8")
        try:
            self._compile(mistake.file)
            return self._run(self._folder)
        finally:
            changed.unlink()

    def _compile(self, file):
        """Compiles the object that has a file, and links it with the other objects of the build."""
        sources = (self._built.directory / UNITY).glob("*.mm")
        (source,) = (x.name for x in sources if f'"{file}"' in x.read_text(encoding="utf-8"))
        changed = self._folder / "changed.o"
        (compile_,) = (x for x in self._commands if f"-o {UNITY}/{source}.o " in x)
        # The compiler finds the changed file first.  The build has shown the warnings.
        compile_ = compile_.replace(" -I", f" -w -I{self._folder} -I", 1)
        link = self._commands[-1].replace("-o lib/", f"-o {self._folder}/")
        for command in (compile_, link):
            command = command.replace(f"{UNITY}/{source}.o", str(changed))
            subprocess.run(command, shell=True, cwd=self._built.directory, check=True)

    def _run(self, libraries):
        path = os.pathsep.join(map(str, (ROOT, *self._built.python_path)))
        command = [sys.executable, "-m", "pytest", "-qxs", "-p", "no:cacheprovider", *TESTS]
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=dict(os.environ, PYTHONPATH=path, LD_LIBRARY_PATH=str(libraries)),
                timeout=SECONDS,
                capture_output=True,
                text=True,
            )
        except subprocess.TimeoutExpired:
            return "a test hangs"
        if done.returncode == 0:
            return "passed"
        if done.returncode == 1:
            lines = done.stdout.splitlines()
            failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
            return "a test fails: " + failed[0].split("::")[-1].split(" - ")[0]
        if done.returncode < 0 or "mps emulator: fatal:" in done.stderr + done.stdout:
            return "the device ends the process"
        sys.exit(f"error: pytest ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr}")


def main():
    parser = argparse.ArgumentParser(
        prog="k2_mps_tests.waits.planted",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MISTAKES))
    names = parser.parse_args().names or list(MISTAKES)
    if unknown := set(names) - set(MISTAKES):
        parser.error(f"no mistake is called {', '.join(sorted(unknown))}")
    unnoticed = 0
    with tempfile.TemporaryDirectory() as folder:
        build = Build(folder)
        if (found := build.notices()) != "passed":
            sys.exit(f"error: without a mistake, {found}")
        for name in names:
            found = build.notices(MISTAKES[name])
            unnoticed += found == "passed"
            found = "unnoticed" if found == "passed" else found
            print(f"{name:<22} {MISTAKES[name].rule}: {found} (emulated)", flush=True)
    print(f"{len(names) - unnoticed} of {len(names)} mistakes are noticed (emulated)")
    return bool(unnoticed)


if __name__ == "__main__":
    ending.run(main)
