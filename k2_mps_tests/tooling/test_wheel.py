"""`k2mps wheel` makes a wheel of the small stand-in for k2, for this machine."""

import base64
import copy
import csv
import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from k2mps.build.builder import Built
from k2mps.build.environment import Environment
from k2mps.core.project import Project
from k2mps.stack.checkout import Checkout
from k2mps.wheel import contents

from k2_mps_tests.running import ran
from k2_mps_tests.tooling import support, wheel_of_k2
from k2_mps_tests.tooling.stand_in import bare_path, make_buildable, write_program
from k2_mps_tests.tooling.support import git

ROOT = support.TOOLS.parent
LICENSE = "Do as you like.\n"


def make_ready(sandbox):
    """Gives the stand-in for k2 a licence, which a wheel must have."""
    pin = support.commit(sandbox.upstream, "licence", {"LICENSE": LICENSE})
    sandbox.pin = pin
    sandbox.write_config(pin)
    sandbox.torch = sandbox.use_installed_torch()
    return sandbox


@pytest.fixture
def ready(buildable):
    """The clone `buildable`, ready for `k2mps wheel`; nothing is built."""
    return make_ready(buildable)


@pytest.fixture
def made(ready):
    """The clone `ready`, after `k2mps wheel`."""
    ready.ok("wheel")
    return ready


def the_wheel(made) -> Path:
    [path] = (made.root / "build/wheels").glob("*.whl")
    return path


def origin_of(path: Path) -> dict:
    with zipfile.ZipFile(path) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/k2mps.json")]
        return json.loads(archive.read(name))


class Wheel:
    """A wheel that several tests read and no test changes.

    Attributes:
      clone: the clone of k2-mps that made the wheel.
      path: the path of the wheel.
      package: the sorted names of the files outside of the folder .dist-info.
      metadata: {name without the folder: bytes} of the files in .dist-info.
    """

    def __init__(self, clone):
        self.clone = clone
        self.path = the_wheel(clone)
        self.package = []
        self.metadata = {}
        with zipfile.ZipFile(self.path) as archive:
            for name in sorted(archive.namelist()):
                folder, _, file = name.partition("/")
                if folder.endswith(".dist-info"):
                    self.metadata[file] = archive.read(name)
                else:
                    self.package.append(name)

    def lines(self) -> list[str]:
        return self.metadata["METADATA"].decode().splitlines()

    def origin(self) -> dict:
        return json.loads(self.metadata["k2mps.json"])


@pytest.fixture(scope="module")
def wheel(make_empty, tmp_path_factory):
    clone = make_ready(make_buildable(make_empty(tmp_path_factory.mktemp("wheel"))))
    printed = clone.ok("wheel")
    made = Wheel(clone)
    assert f"{made.path}: verified\nnext: ci/try-wheel {made.path}, which " in printed
    return made


def test_the_name_of_the_wheel_has_the_versions(wheel):
    tag = Environment(Project(wheel.clone.root)).python_tag
    torch = re.escape(wheel.clone.torch)
    name = rf"k2-1\.0\.dev20231114\+cpu\.torch{torch}-{tag}-{tag}-\w+\.whl"
    assert re.fullmatch(name, wheel.path.name)


def test_the_wheel_has_the_package(wheel):
    [extension] = [name for name in wheel.package if name.startswith("_k2.")]
    assert wheel.package == [
        extension,
        "k2/__init__.py",
        "k2/mps/__init__.py",
        "k2/torch_version.py",
        "k2_mac/__init__.py",
        "k2_mac/check.py",
        "k2_mac/provenance.py",
        "k2_mac_run.pth",
    ]


def test_the_libraries_of_a_build_have_their_places_in_a_wheel(wheel, tmp_path):
    names = ("_k2.so", "libk2_log.so", "k2mps.json", "notes")
    support.write(tmp_path, {"torch_version.py": "", **{f"lib/{name}": name for name in names}})
    k2 = Checkout(wheel.clone.checkout)
    built = Built(k2.directory, tmp_path, (tmp_path, tmp_path), 0)
    description = wheel_of_k2.case().description
    files = contents.contents(Project(wheel.clone.root), k2, built, description)
    assert (files["_k2.so"], files["k2/lib/libk2_log.so"]) == (b"_k2.so", b"libk2_log.so")
    assert b"notes" not in files.values() and b"k2mps.json" not in files.values()


def test_the_record_has_the_hash_and_the_size_of_each_file(wheel):
    with zipfile.ZipFile(wheel.path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    [record] = [name for name in files if name.endswith(".dist-info/RECORD")]
    rows = {record: ["", ""]}
    for name in files.keys() - rows.keys():
        digest = hashlib.sha256(files[name]).digest()
        hash_ = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        rows[name] = [f"sha256={hash_}", str(len(files[name]))]
    assert {name: row for name, *row in csv.reader(files[record].decode().splitlines())} == rows


def test_only_libraries_are_executable(wheel):
    with zipfile.ZipFile(wheel.path) as archive:
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    executable = {name for name, mode in modes.items() if mode == 0o100755}
    assert executable == {name for name in wheel.package if name.startswith("_k2.")}
    assert {*modes.values()} == {0o100755, 0o100644}


def test_the_wheel_requires_the_torch_of_the_build(wheel):
    assert f"Requires-Dist: torch=={wheel.clone.torch}" in wheel.lines()


def test_the_wheel_has_the_licence(wheel):
    assert wheel.metadata["LICENSE"] == LICENSE.encode()


def test_pip_installs_the_wheel(wheel, tmp_path):
    """The installed k2 loads its own library, and knows its origin."""
    where = ["--no-deps", "--no-index", "--quiet", "--target", tmp_path]
    support.output(sys.executable, "-m", "pip", "install", *where, wheel.path)
    code = "import json, k2; from k2_mac import provenance;"
    code += " print(json.dumps([k2.__file__, k2.__dev_version__, provenance.build_info()]))"
    # With -S, Python ignores the .pth files of .venv, which may lead to another k2.
    found = support.output(sys.executable, "-S", "-c", code, cwd=tmp_path)
    version = wheel.path.name.split("-")[1]
    assert json.loads(found) == [str(tmp_path / "k2/__init__.py"), version, wheel.origin()]


def test_the_origin_names_the_sources(wheel):
    origin = wheel.origin()
    tree = git(wheel.clone.checkout, "rev-parse", "HEAD^{tree}")
    assert origin["patched_tree"] == tree
    url = wheel.clone.upstream.as_uri()
    assert origin["upstream"] == {"url": url, "commit": wheel.clone.pin}


def test_the_origin_names_the_build(wheel):
    origin = wheel.origin()
    assert origin["torch"] == wheel.clone.torch
    assert (origin["built"], origin["device"]) == ("native", "cpu")
    assert re.fullmatch(r"(GNU|Clang) \d+(\.\d+)*", origin["compiler"])


def test_no_commit_of_k2_mps_is_named_outside_of_a_git_clone(wheel):
    assert wheel.origin()["dirty"] is None


def test_the_build_tree_has_the_origin_of_its_wheel(wheel):
    [built] = (wheel.clone.root / "build").glob("cpu-wheel-*/lib/k2mps.json")
    version = wheel.path.name.split("-")[1]
    assert {**json.loads(built.read_bytes()), "version": version} == wheel.origin()


@pytest.fixture(scope="module")
def quick_wheel(make_empty, tmp_path_factory) -> Path:
    """The path of a wheel that `k2mps wheel --quick` makes with the variable SOURCE_DATE_EPOCH."""
    clone = make_buildable(make_empty(tmp_path_factory.mktemp("quick")))
    clone.ok("wheel", "--quick", env={"SOURCE_DATE_EPOCH": "1800000000"})
    [path] = (clone.root / "build/wheels").rglob("*.whl")
    return path


def test_a_quick_wheel_is_marked_as_for_a_check_only(quick_wheel):
    assert origin_of(quick_wheel)["built"] == "native, for a check only"


def test_a_k2_without_a_licence_gets_a_wheel_without_it(quick_wheel):
    with zipfile.ZipFile(quick_wheel) as archive:
        assert not [name for name in archive.namelist() if "LICENSE" in name]


def test_a_quick_wheel_is_in_the_folder_quick(quick_wheel):
    assert quick_wheel.parent.name == "quick"


def test_the_time_of_the_files_can_be_chosen(quick_wheel):
    with zipfile.ZipFile(quick_wheel) as archive:
        times = {entry.date_time for entry in archive.infolist()}
    assert times == {(2027, 1, 15, 8, 0, 0)}


@pytest.mark.skipif(sys.platform == "darwin", reason="on a Mac, no linker is missing")
def test_what_a_wheel_for_macos_needs_is_checked_first(buildable, tmp_path):
    env = {"PATH": bare_path(tmp_path)}
    for name in ("c++", "clang++-19"):
        os.symlink(shutil.which(name), Path(env["PATH"], name))
    # The tool looks for the linker before it clones k2.
    clone = ("--k2", "file:///nowhere/k2.git")
    result = buildable.run("wheel", "--target", "macos-arm64", *clone, env=env)
    assert result.returncode == 30
    assert "the build needs ld64.lld-19 (links for macOS)" in result.stderr
    assert "sudo apt-get install lld-19" in result.stderr
    assert not list((buildable.root / "build").glob("mps-*"))
    # A build for this machine does not need the linker for macOS.
    doctor = buildable.ok("doctor", "--device", "cpu", env=env)
    assert re.search(r"^absent\tld64.lld-19\tnothing\t.*lld-19$", doctor, re.MULTILINE)


def test_a_build_elsewhere_gives_the_same_bytes(made, tmp_path):
    other = copy.copy(made)
    other.root = tmp_path / "a clone elsewhere"
    shutil.copytree(made.root, other.root, symlinks=True, ignore=shutil.ignore_patterns("build"))
    other.ok("wheel")
    assert the_wheel(made).read_bytes() == the_wheel(other).read_bytes()


@pytest.fixture
def pip_wheel(ready, tmp_path):
    """Returns a function that makes a wheel with pip, in the folder `found`.

    The function takes options of `pip wheel`.  The build backend in wheel/ runs the tool of the
    clone, which makes a wheel for the Python that runs pip, and for that Python's torch.
    """
    shutil.copy(ROOT / "Makefile", ready.root)
    shutil.copytree(ROOT / "wheel", ready.root / "wheel")
    write_program(ready.root)

    def run(*options: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", *options]
        return ready.program(*command, "--wheel-dir", tmp_path / "found", ready.root / "wheel")

    return run


def test_pip_makes_the_wheel_from_the_repository(ready, pip_wheel, tmp_path):
    result = pip_wheel()
    assert result.returncode == 0, result.stdout + result.stderr
    [found] = (tmp_path / "found").iterdir()
    assert found.name == the_wheel(ready).name
    assert found.read_bytes() == the_wheel(ready).read_bytes()


@pytest.mark.parametrize(
    "name",
    ["PYTHONPATH", "PYTHONNOUSERSITE", "PEP517_X", "_PYPROJECT_HOOKS_X", "PIP_BUILD_TRACKER"],
)
def test_a_build_does_not_get_what_pip_sets_for_its_own_build(monkeypatch, name):
    monkeypatch.setenv(name, "x")
    backend = runpy.run_path(str(support.TOOLS.parent / "wheel/backend.py"))
    assert name not in backend["_asked"]([sys.executable, "-c", "import os; print(*os.environ)"])


@pytest.mark.parametrize(
    "settings, options",
    [(None, "wheel"), ({"quick": "", "torch": "2.13.0"}, "wheel --quick --torch=2.13.0")],
)
def test_options_of_pip_become_options_of_the_tool(tmp_path, settings, options):
    """For a Python without torch, and in a clone whose tool writes its options into the wheel."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / ".venv"], check=True)
    shutil.copytree(ROOT / "wheel", tmp_path / "wheel")
    support.write(
        tmp_path,
        {
            "Makefile": ".venv/bin/k2mps:\n",
            ".venv/bin/k2mps": '#!/bin/sh\necho "$@" >build/wheels/k2-1.whl\n',
            "build/wheels/README": "",
        },
    )
    (tmp_path / ".venv/bin/k2mps").chmod(0o755)
    program = f"import backend; backend.build_wheel('.', {settings})"
    ran(tmp_path / ".venv/bin/python", "-c", program, cwd=tmp_path / "wheel", check=True)
    assert (tmp_path / "wheel/k2-1.whl").read_text() == f"{options}\n"


def test_pip_refuses_a_torch_that_is_not_supported(pip_wheel):
    result = pip_wheel("--config-settings", "torch=0.1")
    assert result.returncode == 1
    assert "torch 0.1 is not supported" in result.stdout + result.stderr


def test_pip_refuses_an_environment_of_another_python(ready, pip_wheel):
    (ready.root / ".venv/bin/python").unlink()
    (ready.root / ".venv/bin/python").write_text("#!/bin/sh\necho '(3, 9)'\n")
    (ready.root / ".venv/bin/python").chmod(0o755)
    result = pip_wheel()
    assert result.returncode == 1
    assert f"{ready.root}/.venv is for Python (3, 9)" in result.stdout + result.stderr


def edit_k2(ready):
    ready.ok("apply")
    support.edit(ready.checkout / "k2/csrc/answer.cc", "42", "43")


def test_a_checkout_with_edits_makes_no_wheel(ready):
    edit_k2(ready)
    assert "edit" in ready.fails(1, "wheel")


def test_commits_that_no_patch_has_make_no_wheel(ready):
    edit_k2(ready)
    git(ready.checkout, "commit", "--quiet", "--all", "-m", "answer: 43")
    assert "commit(s) that patches/ lacks" in ready.fails(1, "wheel")


def test_a_build_with_edits_is_marked_as_dirty(ready):
    edit_k2(ready)
    ready.ok("build", "--device", "cpu", "--no-demo")
    [file] = (ready.root / "build").glob("cpu-*-edited-*/lib/k2mps.json")
    origin = json.loads(file.read_text())
    assert origin["dirty"] is True
    assert (origin["patched_tree"], origin["series"]) == (None, None)


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
