"""Fixtures of the tooling tests."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from k2mps.core import git

from k2_mps_tests.tooling import reporting, stand_in, support
from k2_mps_tests.tooling.sandbox import Sandbox, make_upstream, sample_series

# The developer's environment variables, for tests that fetch from the real upstream.
_USERS_ENVIRONMENT = dict(os.environ)


def pytest_configure(config):
    # A shell starts a background job with SIGINT ignored, and child processes ignore it too.
    # Without this line, tests that run in the background could not interrupt the tool.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption(
        "--fault-points", type=int, default=56, help="most kills of each command in test_faults.py"
    )


@pytest.fixture(scope="session")
def users_environment() -> dict[str, str]:
    """Returns the environment variables as they were before the tests changed them."""
    return dict(_USERS_ENVIRONMENT)


@pytest.fixture(scope="session", autouse=True)
def _own_git_configuration(tmp_path_factory):
    """Keeps the developer's git configuration out of the tests."""
    patch = pytest.MonkeyPatch()
    config = tmp_path_factory.mktemp("config") / "gitconfig"
    config.write_text('[protocol "file"]\n\tallow = always\n')
    patch.setenv("GIT_CONFIG_GLOBAL", str(config))
    patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("K2", "TORCH_DEVICE_BACKEND_AUTOLOAD"):
        patch.delenv(name, raising=False)
    git.scrub_environment()
    yield
    patch.undo()


@pytest.fixture(scope="session")
def _upstream(tmp_path_factory) -> Path:
    return make_upstream(tmp_path_factory.mktemp("up") / "k2")


@pytest.fixture(scope="session")
def _with_series(tmp_path_factory, _upstream) -> Sandbox:
    folder = tmp_path_factory.mktemp("with-series")
    sandbox = Sandbox(folder / "project", _upstream)
    sample_series(sandbox)
    return sandbox


@pytest.fixture(scope="session")
def make_empty(_upstream):
    """Returns a function that makes, in a folder, a clone of k2-mps without patches.

    The clone has its own copy of upstream, so a test may change the clone and the copy.
    """

    def make(folder: Path) -> Sandbox:
        shutil.copytree(_upstream, folder / "k2", symlinks=True)
        return Sandbox(folder / "project", folder / "k2")

    return make


@pytest.fixture
def empty(tmp_path, make_empty) -> Sandbox:
    return make_empty(tmp_path)


@pytest.fixture
def sandbox(empty, _with_series) -> Sandbox:
    """A clone of k2-mps with the series of `sample_series`."""
    shutil.copytree(_with_series.root / "patches", empty.root / "patches", dirs_exist_ok=True)
    text = (_with_series.root / "upstream.toml").read_text()
    (empty.root / "upstream.toml").write_text(
        text.replace(_with_series.upstream.as_uri(), empty.upstream.as_uri())
    )
    return empty


@pytest.fixture
def buildable(empty) -> Sandbox:
    """A clone of k2-mps that can build the stand-in for k2 of stand_in.py."""
    return stand_in.make_buildable(empty)


@pytest.fixture
def user_name(sandbox) -> None:
    """Gives git a name of the user, in the configuration of the sandbox."""
    sandbox.config.write_text("[user]\n\tname = Me\n\temail = me@example.org\n")


@pytest.fixture
def k2(sandbox) -> Path:
    """The sandbox's checkout, with the series applied."""
    sandbox.ok("apply")
    return sandbox.checkout


@pytest.fixture
def exchanged(empty) -> Sandbox:
    """A clone of k2-mps whose pin has moved since its checkout was made.

    At the new pin, the folder `b` has become a file, and the file `a` has become a folder.
    """
    before = {"a": "1\n", "b/deep/file": "2\n", "b/two": "3\n"}
    pin = support.commit(empty.upstream, "before", before)
    support.git(empty.upstream, "rm", "--quiet", *before)
    after = {"a/deep/file": "4\n", "a/two": "5\n", "b": "6\n"}
    for pin in (pin, support.commit(empty.upstream, "after", after)):
        empty.write_config(pin)
        if not empty.checkout.exists():
            empty.ok("apply")
    return empty


@pytest.fixture
def own(sandbox) -> Path:
    """A checkout that the user made, with an untracked file and a branch."""
    directory = sandbox.clone("own")
    support.write(directory, {"notes.txt": "mine\n"})
    support.git(directory, "branch", "feature")
    return directory


@pytest.fixture
def project(tmp_path):
    """A project with `make mac-report` alone; it is no git clone."""
    root = tmp_path / "project"
    shutil.copytree(reporting.ROOT / "k2_mps_tests/report", root / "k2_mps_tests/report")
    (root / "k2_mps_tests/__init__.py").touch()
    return root
