"""The packages that docs/icefall.md installs beside k2 can be installed in a new environment."""

import importlib.util
import re
import sys
import venv
from pathlib import Path

import pytest

from k2_mps_tests.tooling import support

PAGE = support.TOOLS.parent / "docs/icefall.md"
# pip's messages if it reaches no package index.
UNREACHABLE = re.compile(
    "Failed to establish a new connection|Temporary failure in name resolution"
    "|Connection refused|ProxyError|No matching distribution found|timed out"
)


@pytest.fixture
def python(tmp_path) -> Path:
    """The Python of a new environment in which only torch is installed.

    A reader of the page already has k2 and torch.  Without torch in this environment, pip
    would download a torch with CUDA.
    """
    found = importlib.util.find_spec("torch")
    if found is None:
        pytest.skip("torch is not installed; make build installs it")
    venv.create(tmp_path / "venv")
    [packages] = (tmp_path / "venv/lib").glob("python3*/site-packages")
    installed = Path(found.origin).parents[1]
    for part in ("torch", "torchgen", "functorch", *installed.glob("torch-*.dist-info")):
        (packages / Path(part).name).symlink_to(installed / part)
    return tmp_path / "venv/bin/python"


def test_what_the_page_installs_can_be_imported(python, users_environment):
    [line] = re.findall(r"^pip (install .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    words = line.split()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    done = support.ran(*pip, *words, "--quiet", "--retries=1", env=users_environment)
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip(f"no package index: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    support.output(python, "-c", f"import {', '.join(words[1:])}")
