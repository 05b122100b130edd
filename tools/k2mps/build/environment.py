"""The virtual environment in which builds and tests run, and the packages in it."""

import functools
import importlib.metadata
import itertools
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement

from k2mps.core import errors, process
from k2mps.core.pins import Torch, Upstream, sha256, tomllib
from k2mps.core.progress import Reporter
from k2mps.core.project import Project

# The index of PyTorch's wheels without CUDA.
TORCH_WITHOUT_CUDA = "https://download.pytorch.org/whl/cpu"

_CONFIGURED_INDEX = re.compile(r"[^=]*\.(index-url|extra-index-url|find-links|no-index)=")
_NOT_INSTALLED = re.compile(r"(^|/)(__pycache__|build|tests|\.[^/]*|[^/]*\.egg-info)/")
_ERROR = re.compile(r"^\s*error:|: error:", re.IGNORECASE)
_SHOWN_LINES = 8
_UNREACHABLE = re.compile(
    r"connection|timed out|temporary failure|name or service not known"
    r"|max retries|network is unreachable|ssl",
    re.IGNORECASE,
)


class Environment:
    """The virtual environment .venv of a clone of k2-mps."""

    def __init__(self, project: Project, reporter: Reporter = Reporter()):
        self.project = project
        self.reporter = reporter
        self.directory = project.environment

    @functools.cached_property
    def upstream(self) -> Upstream:
        return self.project.upstream()

    @property
    def python(self) -> Path:
        return self.program("python")

    def program(self, name: str) -> Path:
        """Returns the path of a program that a package has installed in the environment."""
        return self.directory / "bin" / name

    def run(self, arguments: Sequence[object], **run_options) -> process.Outcome:
        """Runs the environment's Python; `run_options` goes to `process.run`."""
        return process.run([self.python, *arguments], reporter=self.reporter, **run_options)

    @property
    def python_version(self) -> str:
        """The version of the environment's Python, such as "3.11"."""
        return self.site_packages.parent.name.removeprefix("python")

    @property
    def python_tag(self) -> str:
        """The tag of the environment's Python in names of wheels, such as "cp311"."""
        return "cp" + self.python_version.replace(".", "")

    @property
    def site_packages(self) -> Path:
        folders = sorted(self.directory.glob("lib/python3.*/site-packages"))
        if not folders:
            raise errors.RequirementMissingError(
                f"{self.directory} is not a virtual environment",
                next_command="remove it, then make build",
            )
        return folders[-1]

    def version_of(self, name: str) -> str | None:
        """Returns the installed version of a package, or None if it is not installed."""
        distributions = importlib.metadata.distributions(name=name, path=[str(self.site_packages)])
        return next((entry.version for entry in distributions), None)

    def requirements(self, *groups: str) -> list[Requirement]:
        """Returns, from these groups of pyproject.toml, the requirements for this Python."""
        path = self.project.root / "pyproject.toml"
        extras = tomllib.loads(path.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
        markers = {"python_version": self.python_version}
        requirements = [Requirement(line) for group in groups for line in extras[group]]
        return [
            entry
            for entry in requirements
            if entry.marker is None or entry.marker.evaluate(markers)
        ]

    def install(self, wanted: Sequence[Requirement]) -> bool:
        """Installs the requirements that are missing; returns whether any were missing.

        pip uses its own configuration, which sets index, proxy and certificates.

        Raises:
          IndexUnreachableError: the package index does not answer.
          RequirementMissingError: pip failed for another reason, such as a missing version.
        """
        missing = []
        for entry in wanted:
            version = self.version_of(entry.name)
            if version is None or not entry.specifier.contains(version, prereleases=True):
                missing.append(entry)
        torch = [entry for entry in missing if entry.name == "torch"]
        others = [entry for entry in missing if entry.name != "torch"]
        if torch:
            self._pip_install(torch, self.torch_options())
        if others:
            self._pip_install(others)
        return bool(missing)

    def _pip_install(self, entries: Sequence[Requirement], options: Sequence[str] = ()) -> None:
        """Installs requirements; arguments as for `pip install`."""
        names = ", ".join(entry.name for entry in entries)
        requirements = [f"{entry.name}{entry.specifier}" for entry in entries]
        self._pip(f"installing {names}", ["install", *options, *requirements])

    def install_extra(self, name: str) -> None:
        """Installs the missing packages of a group in pyproject.toml, so that this process can
        import them."""
        self.install(self.requirements(name))
        importlib.invalidate_caches()

    def torch_options(self) -> list[str]:
        """Returns pip's options to install torch without CUDA.

        The result is empty on macOS, where torch's wheels have no CUDA.  It is also empty if pip's
        configuration names an index.  If PyTorch's index lacks the wheel, pip installs the wheel
        with CUDA from PyPI.
        """
        if sys.platform != "linux":
            return []
        outcome = self.run(["-m", "pip", "config", "list"])
        if any(_CONFIGURED_INDEX.match(line) for line in outcome.lines):
            return []
        return ["--extra-index-url", TORCH_WITHOUT_CUDA]

    def download(
        self,
        wanted: Requirement,
        directory: Path,
        platform: str = "",
        python_version: str = "",
        more: Sequence[str] = (),
    ) -> Path:
        """Downloads a wheel without its dependencies; returns the wheel's path.

        Args:
          wanted: the package; if it names no version, pip downloads the newest.
          directory: the folder for the wheel.  It must not contain other wheels.  If the folder is
            missing, pip makes it.
          platform: the wheel's platform tag; empty for a wheel for this machine.
          python_version: the wheel's Python, such as "3.12"; used only with `platform`.
          more: further options of pip.
        Raises:
          IndexUnreachableError, RequirementMissingError: as for `install`.
        """
        title = f"downloading {wanted.name}"
        options = ["--no-deps", "--only-binary=:all:", "--dest", str(directory)]
        if platform:
            title += f" for {platform}"
            options += ["--platform", platform, "--python-version", python_version]
        self._pip(title, ["download", *options, *more, f"{wanted.name}{wanted.specifier}"])
        return next(directory.glob("*.whl"))

    def install_tree(self, source: Path, settings: Mapping[str, str]) -> bool:
        """Installs a package from its source tree, if the tree, `settings` or torch has changed.

        Args:
          settings: environment variables for the package's build.
        Returns:
          Whether the package was installed.
        """
        stamp = self._stamp(source)
        lines = sorted(f"{name}={value}" for name, value in settings.items())
        key = tree_hash(source, *lines, f"torch {self.version_of('torch')}")
        if self.tree_key(source) == key:
            return False
        stamp.unlink(missing_ok=True)
        self._pip(
            f"building the mps {source.name}",
            # With --verbose, pip shows ninja's lines of progress.
            ["install", "--verbose", "--no-build-isolation", str(source)],
            settings,
        )
        stamp.write_text(key)
        return True

    def tree_key(self, source: Path) -> str:
        """Returns the key with which `install_tree` last installed `source`; "" if it never did."""
        stamp = self._stamp(source)
        return stamp.read_text() if stamp.exists() else ""

    def _stamp(self, source: Path) -> Path:
        """Returns the file with the key of an installed source tree, see `tree_key`."""
        return self.directory / f"k2mps-{source.name}.stamp"

    def _pip(
        self, title: str, arguments: Sequence[str], settings: Mapping[str, str] | None = None
    ) -> None:
        """Runs pip.

        Args:
          title: the name of the work in the progress display, such as "installing torch".
          arguments: the command and its options, without "pip".
          settings: environment variables for pip.
        Raises:
          IndexUnreachableError, RequirementMissingError: as for `install`.
        """
        log = self.directory / "k2mps-pip.log"
        with self.reporter.task(title, log) as update:
            lines = itertools.count(1)

            def follow(line: str) -> None:
                """Passes ninja's progress on, or the number of the lines of pip so far."""
                if match := process.NINJA_PROGRESS.match(line.strip()):
                    update(int(match[1]), int(match[2]), match[3])
                else:
                    update(next(lines), 0, line.strip())

            outcome = self.run(
                ["-m", "pip", *arguments, "--disable-pip-version-check", "--progress-bar=off"],
                environment=settings,
                on_line=follow,
                log=log,
            )
        if outcome.status == 0:
            return
        kind = errors.RequirementMissingError
        if _UNREACHABLE.search("\n".join(outcome.lines)):
            kind = errors.IndexUnreachableError
        raise kind(
            f"pip failed while {title}",
            why="\n".join(_complaint(outcome.lines)),
            next_command=f"read {log}; check pip's index and the network,"
            " then run the same command again",
        )


def _complaint(lines: Sequence[str]) -> list[str]:
    """Returns pip's or a compiler's lines from the first error on, at most `_SHOWN_LINES`."""
    first = next((at for at, line in enumerate(lines) if _ERROR.search(line)), -_SHOWN_LINES)
    return [line for line in lines[first:] if line.strip()][:_SHOWN_LINES]


def torch_requirement(torch: Torch, version: str | None, crossed: bool = False) -> Requirement:
    """Returns the requirement for the torch of a build, such as torch==2.13.0.

    Args:
      version: the version that the user chose; None for the default.
      crossed: whether the build is for macOS although it runs on Linux.
    Raises:
      K2mpsError: upstream.toml does not list the version.
    """
    chosen = version or torch.default_for(mac=crossed or sys.platform == "darwin")
    if chosen not in torch.supported:
        raise errors.K2mpsError(
            f"torch {chosen} is not supported",
            why=f"upstream.toml lists {', '.join(torch.supported)}",
            next_command="choose one of them with --torch",
        )
    return Requirement(f"torch=={chosen}")


def version_in(wanted: Requirement) -> str:
    """Returns the version in a requirement of the form NAME==VERSION."""
    return str(wanted.specifier).removeprefix("==")


def tree_hash(source: Path, *more: str) -> str:
    """Returns a hash of a source tree's paths and contents, and of the texts `more`.

    Files that pip does not install are left out: tests, and files that Python or build tools make.
    """
    parts = list(more)
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source).as_posix()
        if path.is_file() and not _NOT_INSTALLED.search(name):
            parts += [name, sha256(path.read_bytes())]
    return sha256(json.dumps(parts).encode())
