"""`k2mps wheel` for this machine, on the small stand-in for k2."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from pathlib import Path

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import git
from k2_mps_tests.tooling.test_build import sandbox  # noqa: F401
from k2mps import wheel
from k2mps.environment import Environment
from k2mps.project import Project

LICENSE = "Do as you like.\n"


@pytest.fixture
def made(sandbox):  # noqa: F811
    """The stand-in with a licence, and the wheel that was made of it."""
    pin = support.commit(sandbox.upstream, "licence", {"LICENSE": LICENSE})
    sandbox.write_config(pin)
    config = sandbox.root / "upstream.toml"
    torch = Environment(Project(sandbox.root)).version_of("torch")
    sandbox.torch = torch.split("+")[0]
    config.write_text(config.read_text().replace("2.13.0", sandbox.torch))
    sandbox.ok("lock")
    sandbox.output = sandbox.ok("wheel")
    return sandbox


def the_wheel(made) -> Path:
    [path] = (made.root / "build/wheels").glob("*.whl")
    return path


def test_it_holds_the_package_and_its_metadata(made):
    path = the_wheel(made)
    tag = Environment(Project(made.root)).python_tag
    assert re.fullmatch(
        rf"k2-1\.0\.dev20231114\+cpu\.torch{re.escape(made.torch)}"
        rf"-{tag}-{tag}-\w+\.whl", path.name,
    )
    assert "verified, imported in a clean environment" in made.output
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        info = next(name for name in names if name.endswith("/METADATA"))
        info = info.removesuffix("/METADATA")
        assert archive.testzip() is None
        files = {name: archive.read(name) for name in names}
    assert sorted(name for name in names if not name.startswith(info)) == [
        next(name for name in names if name.startswith("_k2.")),
        "k2/__init__.py", "k2/torch_version.py",
    ]
    metadata = files[f"{info}/METADATA"].decode().splitlines()
    assert f"Requires-Dist: torch=={made.torch}" in metadata
    assert "built: native" in metadata
    assert files[f"{info}/LICENSE"] == LICENSE.encode()
    origin = json.loads(files[f"{info}/k2mps.json"])
    assert origin["patched_tree"] == git(
        made.checkout, "rev-parse", "HEAD^{tree}"
    )
    record = dict(
        line.split(",", 1)
        for line in files[f"{info}/RECORD"].decode().splitlines()
    )
    assert record.keys() == files.keys()
    for name, content in files.items():
        if not name.endswith("/RECORD"):
            assert record[name] == (
                f"{wheel.record_hash(content)},{len(content)}"
            )


def test_a_second_build_gives_the_same_bytes(made):
    first = the_wheel(made).read_bytes()
    shutil.rmtree(made.root / "build/wheels")
    made.ok("clean")
    made.ok("wheel")
    assert the_wheel(made).read_bytes() == first
    # Nor does it depend on the day; what sets the times is in the files.
    made.ok("wheel", env={"SOURCE_DATE_EPOCH": "1800000000"})
    changed = the_wheel(made)
    assert changed.read_bytes() != first
    with zipfile.ZipFile(changed) as archive:
        times = {entry.date_time for entry in archive.infolist()}
    assert times == {(2027, 1, 15, 8, 0, 0)}


def test_edits_make_no_wheel(made):
    file = made.checkout / "k2/csrc/answer.cc"
    file.write_text(file.read_text().replace("42", "43"))
    assert "edit" in made.fails(11, "wheel")
    git(made.checkout, "commit", "--quiet", "--all", "-m", "answer: 43")
    assert "commit(s) of yours" in made.fails(11, "wheel")


def test_a_wheel_that_cannot_be_imported_is_an_error(made):
    file = "k2/python/k2/__init__.py"
    support.commit(made.checkout, "broken", {file: "from _k2 import gone\n"})
    made.ok("export")
    assert "cannot import name 'gone'" in made.fails(40, "wheel")
