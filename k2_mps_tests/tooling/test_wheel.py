"""`k2mps wheel` for this machine, on the small stand-in for k2."""

import copy
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from k2mps.build.environment import Environment
from k2mps.core.project import Project

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import git
from k2_mps_tests.tooling.test_build import bare_path, sandbox, write_program  # noqa: F401

ROOT = support.TOOLS.parent
LICENSE = "Do as you like.\n"
# k2's __init__ refuses any torch but the build's in the same way.
REFUSAL = """\
import torch
if torch.__version__.split("+")[0] != {torch!r}:
  raise ImportError(f"pip install torch=={torch} in place of {{torch.__version__}}")
"""
INIT = "k2/python/k2/__init__.py"


@pytest.fixture
def ready(sandbox):  # noqa: F811
    """The stand-in with a licence and a check of torch, built for a wheel."""
    right = importlib.metadata.version("torch").split("+")[0]
    init = REFUSAL.format(torch=right) + (sandbox.upstream / INIT).read_text()
    pin = support.commit(sandbox.upstream, "licence", {"LICENSE": LICENSE, INIT: init})
    sandbox.pin = pin
    sandbox.write_config(pin)
    sandbox.torch = sandbox.use_installed_torch()
    return sandbox


@pytest.fixture
def made(ready):
    """The same sandbox, and its wheel."""
    ready.output = ready.ok("wheel")
    return ready


def the_wheel(made) -> Path:
    [path] = (made.root / "build/wheels").glob("*.whl")
    return path


def origin_of(path: Path) -> dict:
    with zipfile.ZipFile(path) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/k2mps.json")]
        return json.loads(archive.read(name))


def test_it_holds_the_package_and_its_metadata(made):
    path = the_wheel(made)
    tag = Environment(Project(made.root)).python_tag
    assert re.fullmatch(
        rf"k2-1\.0\.dev20231114\+cpu\.torch{re.escape(made.torch)}"
        rf"-{tag}-{tag}-\w+\.whl",
        path.name,
    )
    assert "verified, imported in a clean environment" in made.output
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        info = next(name for name in names if name.endswith("/METADATA"))
        info = info.removesuffix("/METADATA")
        files = {name: archive.read(name) for name in names}
    assert sorted(name for name in names if not name.startswith(info)) == [
        next(name for name in names if name.startswith("_k2.")),
        "k2/__init__.py",
        "k2/mps/__init__.py",
        "k2/mps/check.py",
        "k2/torch_version.py",
    ]
    metadata = files[f"{info}/METADATA"].decode().splitlines()
    assert f"Requires-Dist: torch=={made.torch}" in metadata
    assert "built: native" in metadata
    assert files[f"{info}/LICENSE"] == LICENSE.encode()
    origin = json.loads(files[f"{info}/k2mps.json"])
    assert origin["patched_tree"] == git(made.checkout, "rev-parse", "HEAD^{tree}")
    assert origin["upstream"] == {"url": made.upstream.as_uri(), "commit": made.pin}
    assert origin["torch"] == made.torch
    assert (origin["built"], origin["device"]) == ("native", "cpu")
    assert re.fullmatch(r"(GNU|Clang) \d+(\.\d+)*", origin["compiler"])
    # The sandbox is no git clone, so its commit is unknown.
    assert origin["dirty"] is None
    # The build tree's k2mps.json says the same.
    [built] = (made.root / "build").glob("cpu-wheel-*/lib/k2mps.json")
    assert {**json.loads(built.read_bytes()), "version": path.name.split("-")[1]} == origin


def test_a_wheel_for_a_check_says_so_and_lies_elsewhere(ready):
    ready.ok("wheel", "--quick", env={"SOURCE_DATE_EPOCH": "1800000000"})
    [path] = (ready.root / "build/wheels").rglob("*.whl")
    assert path.parent.name == "quick"
    assert origin_of(path)["built"] == "native, for a check only"
    # The time of the files can be chosen.
    with zipfile.ZipFile(path) as archive:
        times = {entry.date_time for entry in archive.infolist()}
    assert times == {(2027, 1, 15, 8, 0, 0)}


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac needs nothing else")
def test_what_a_wheel_for_macos_needs_is_checked_first(sandbox, tmp_path):  # noqa: F811
    env = {"PATH": bare_path(tmp_path)}
    for name in ("c++", "clang++-19"):
        os.symlink(shutil.which(name), Path(env["PATH"], name))
    # The linker is looked for before k2 is cloned.
    clone = ("--k2", "file:///nowhere/k2.git")
    result = sandbox.run("wheel", "--target", "macos-arm64", *clone, env=env)
    assert result.returncode == 30
    assert "the build needs ld64.lld-19 (links for macOS)" in result.stderr
    assert "sudo apt-get install lld-19" in result.stderr
    assert not list((sandbox.root / "build").glob("mps-*"))
    # A build for this machine needs no such linker.
    doctor = sandbox.ok("doctor", "--device", "cpu", env=env)
    assert re.search(r"^absent\tld64.lld-19\tnothing\t.*lld-19$", doctor, re.MULTILINE)


def test_a_build_elsewhere_gives_the_same_bytes(made, tmp_path):
    other = copy.copy(made)
    other.root = tmp_path / "a clone elsewhere"
    shutil.copytree(made.root, other.root, symlinks=True, ignore=shutil.ignore_patterns("build"))
    other.ok("wheel")
    assert the_wheel(made).read_bytes() == the_wheel(other).read_bytes()


def test_pip_makes_it_from_the_repository(ready, tmp_path):
    """The backend in wheel/ runs this clone's tool, for pip's Python and its torch."""
    shutil.copy(ROOT / "Makefile", ready.root)
    shutil.copytree(ROOT / "wheel", ready.root / "wheel")
    write_program(ready.root)

    def pip(*options: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", *options]
        return ready.program(*command, "--wheel-dir", tmp_path / "found", ready.root / "wheel")

    result = pip("--config-settings", "torch=0.1")
    assert result.returncode == 1 and "torch 0.1 is not supported" in result.stdout + result.stderr
    result = pip()
    assert result.returncode == 0, result.stdout + result.stderr
    [found] = (tmp_path / "found").iterdir()
    assert found.name == the_wheel(ready).name
    assert found.read_bytes() == the_wheel(ready).read_bytes()
    # .venv/bin/python was made for another Python.
    (ready.root / ".venv/bin/python").unlink()
    (ready.root / ".venv/bin/python").write_text("#!/bin/sh\necho '(3, 9)'\n")
    (ready.root / ".venv/bin/python").chmod(0o755)
    result = pip()
    assert result.returncode == 1
    assert f"{ready.root}/.venv is for Python (3, 9)" in result.stdout + result.stderr


def test_edits_make_no_wheel_and_a_build_says_so(ready):
    ready.ok("apply")
    file = ready.checkout / "k2/csrc/answer.cc"
    file.write_text(file.read_text().replace("42", "43"))
    assert "edit" in ready.fails(1, "wheel")
    ready.ok("build", "--device", "cpu", "--no-demo")
    [told] = (ready.root / "build").glob("cpu-*-edited-*/lib/k2mps.json")
    origin = json.loads(told.read_text())
    assert origin["dirty"] is True
    assert (origin["patched_tree"], origin["series"]) == (None, None)
    git(ready.checkout, "commit", "--quiet", "--all", "-m", "answer: 43")
    assert "commit(s) of yours" in ready.fails(1, "wheel")


def test_an_edited_clone_of_k2_mps_makes_a_dirty_wheel(ready):
    git(ready.root, "init", "--quiet")
    support.write(ready.root, {".gitignore": "/build/\n/.venv/\n/.k2mps/\n__pycache__/\n"})
    git(ready.root, "add", "--all")
    git(ready.root, "commit", "--quiet", "-m", "all of it")
    new = ready.root / "tools/k2mps/new.py"
    new.write_text("")
    ready.ok("wheel")
    dirty = the_wheel(ready)
    assert f"+cpu.torch{ready.torch}.dirty-" in dirty.name
    assert origin_of(dirty)["dirty"] is True
    dirty.unlink()
    new.unlink()
    ready.ok("wheel")
    assert f"+cpu.torch{ready.torch}-" in the_wheel(ready).name
    assert origin_of(the_wheel(ready))["dirty"] is False


@pytest.mark.parametrize(
    "old, new, why",
    [
        ("import answer", "import gone", "cannot import name 'gone'"),
        ("raise ImportError", "print", "it does not refuse another torch"),
        ("pip install", "install", "AssertionError: install torch=="),
    ],
)
def test_a_wheel_that_cannot_be_imported_or_loads_beside_any_torch(made, old, new, why):
    text = (made.checkout / INIT).read_text()
    support.commit(made.checkout, "broken", {INIT: text.replace(old, new)})
    made.ok("export")
    assert why in made.fails(34, "wheel")
