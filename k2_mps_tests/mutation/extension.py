"""Compiles k2's Python extension with one changed header of its bindings."""

from pathlib import Path

from k2mps.build import builder
from k2mps.build.environment import Environment
from k2mps.build.request import Request
from k2mps.cli.console import Console
from k2mps.core import errors, project
from k2mps.stack.checkout import Checkout

from k2_mps_tests.commits.__main__ import at_commit

SOURCES = "k2/python/csrc/torch"


class Extension:
    """A clone of the patched k2 in build/mutation, and its build.

    Attributes:
      path: the entries of sys.path that lead to the build; empty before the first build.
    """

    def __init__(self, root: Path):
        console = Console()
        console.shows_progress = False
        build_root = project.Project(root).build_root
        self._environment = Environment(project.Project(root), console)
        checkout = Checkout(build_root / "k2", console)
        self._clone = at_commit(checkout, build_root / "mutation", checkout.head().commit)
        self._clone.git.bytes("checkout", "--quiet", "--force", "HEAD")
        self.path: tuple[Path, ...] = ()

    def build(self, header: str = "", text: str = "") -> bool:
        """Builds the clone; returns whether the clone compiles.

        Args:
          header: the name of a header; empty for a build without a change.
          text: the content of the header in this build.
        """
        file = self._clone.directory / SOURCES / header
        content = file.read_bytes() if header else b""
        if header:
            file.write_text(text, encoding="utf-8")
        try:
            built = builder.build(self._environment, self._clone, Request(as_is=True))
            self.path = built.python_path
        except errors.CompileError:
            return False
        finally:
            if header:
                file.write_bytes(content)
        return True
