"""What `k2mps build` builds, and in which build tree.  It builds a small stand-in for k2."""

import json
import re
import sys
from pathlib import Path

import pytest
from k2mps.build import build_tree, builder, doctor, environment
from k2mps.build.request import Request
from k2mps.core import project
from k2mps.stack import checkout

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.series_files import patches
from k2_mps_tests.tooling.stand_in import CPU, answer, build, leave_emulator, trees
from k2_mps_tests.tooling.support import git


def test_a_build_from_nothing_can_be_imported(buildable):
    out = build(buildable)
    assert "applied the series" in out
    assert re.search(r"built cpu-\S+: \d+ steps", out)
    assert answer(buildable) == "42"
    (name,) = trees(buildable)
    tree = git(buildable.checkout, "rev-parse", "HEAD^{tree}")
    assert f"-cp{sys.version_info[0]}{sys.version_info[1]}-" in name
    assert f"-{tree[:12]}-" in name and "-torch" in name
    assert f"\nbuild: {name}\nnext: k2mps test\n" in buildable.ok("status")


def test_the_progress_names_the_file_of_ninjas_last_step(buildable):
    buildable.ok("apply")
    here = environment.Environment(project.Project(buildable.root), progress := support.Progress())
    builder.build(here, checkout.Checkout(buildable.checkout), Request(doctor.Device.CPU))
    assert {name for _, total, name in progress.steps if total == 3} >= {"answer.cc.o"}


def test_the_origin_says_whether_kernels_were_to_be_compiled(buildable, monkeypatch):
    monkeypatch.setattr(doctor, "assembler", lambda: doctor.Check("llvm-as-14", "", "here"))
    buildable.ok("apply")
    here = environment.Environment(project.Project(buildable.root))
    for asked in (False, True):
        request = Request(doctor.Device.CPU, metallib=asked)
        built = builder.build(here, checkout.Checkout(buildable.checkout), request)
        assert built.origin["metallib"] is asked


@pytest.mark.parametrize(
    "options, label",
    [
        ({"device": doctor.Device.CPU}, "cpu"),
        ({"device": doctor.Device.CPU, "for_wheel": True, "quick": True}, "cpu-wheel-quick"),
        ({"tests": True}, f"{doctor.Device.MPS.label}-cpp"),
        ({"crossed": True, "metallib": True}, "mps-macos-arm64-metallib"),
    ],
)
def test_the_name_of_a_build_tree_begins_with_what_is_built(options, label):
    request = Request(**options)
    assert request.label == label
    assert request.emulated == ("emulated" in label)


@pytest.mark.parametrize("crossed", [True, False])
@pytest.mark.parametrize("before", ["of .venv's torch\n", None])
def test_a_cross_build_leaves_the_file_of_the_checkout_as_it_was(tmp_path, crossed, before):
    written, copy = tmp_path / "k2", tmp_path / "tree/torch_version.py"
    support.write(tmp_path, {"tree/x": "", **({"k2": before} if before else {})})
    tree = object.__new__(build_tree.BuildTree)
    tree.directory, tree._torch_version = copy.parent, written
    tree._request = Request(crossed=crossed)
    with tree._copied_version():
        pass
    assert copy.exists() == bool(before)
    for text in ("new\n", "newer\n"):
        with tree._copied_version():
            written.write_text(text)
        assert copy.read_text() == text
        now = written.read_text() if written.exists() else None
        assert now == (before if crossed else text)
    with tree._copied_version():
        pass
    assert copy.read_text() == "newer\n" and written.exists() == (not crossed or bool(before))


def test_a_second_build_runs_ninja_alone(buildable):
    build(buildable)
    before = support.snapshot(buildable.checkout)
    result = buildable.run("-v", "build", *CPU, "--no-demo")
    assert "nothing to do" in result.stdout
    assert support.snapshot(buildable.checkout) == before
    programs = {Path(word).name for word in re.findall(r"^\+ (\S+)", result.stderr, re.MULTILINE)}
    assert "ninja" in programs
    assert not programs & {"cmake", "pip", "python"}


def test_a_build_for_mps_ends_with_a_comparison(buildable):
    leave_emulator(buildable.root)
    assert "the answer is 42 --size small --seconds 0\n" in buildable.ok("build")
    assert "the answer is" not in buildable.ok("build", *CPU)


def test_edits_are_built_step_by_step_in_one_tree(buildable):
    build(buildable)
    source = "k2/csrc/answer.cc"
    support.write(buildable.checkout, {source: "int Answer() { return 1; }\n"})
    out = build(buildable)
    assert "building your edits" in out
    assert answer(buildable) == "1"
    support.write(buildable.checkout, {source: "int Answer() { return 2; }\n"})
    assert "2 steps" in build(buildable)
    assert answer(buildable) == "2"
    git(buildable.checkout, "commit", "--quiet", "--all", "-m", "mine")
    # k2's version has the id of the commit.
    assert "configuring k2" in build(buildable)
    assert "configuring k2" not in build(buildable)
    assert [name for name in trees(buildable) if "-edited-" in name]
    assert len(trees(buildable)) == 2
    # Without the user's commit, the tool uses the first build tree again.
    git(buildable.checkout, "reset", "--quiet", "--hard", "HEAD~1")
    build(buildable)
    assert answer(buildable) == "42"


def test_an_edit_of_an_unpatched_checkout_in_another_file_is_kept_and_built(buildable):
    buildable.obtain()
    support.write(buildable.checkout, {"k2/csrc/context.h": "mine\n"})
    build(buildable)
    assert answer(buildable) == "42"
    assert (buildable.checkout / "k2/csrc/context.h").read_text() == "mine\n"
    assert "-edited-" in trees(buildable)[0]


def test_a_build_of_edits_names_the_patches_that_it_lacks(buildable):
    buildable.ok("apply")
    support.write(buildable.checkout, {"k2/csrc/answer.cc": "int Answer() { return 1; }\n"})
    path = "patches/files/k2/csrc/mps/new.h"
    support.write(buildable.root, {path: "#pragma once\n"})
    result = buildable.run("build", *CPU, "--no-demo")
    assert f"is not part of this build: {path}\n" in result.stderr
    assert answer(buildable) == "1"


def test_another_series_is_built_in_another_tree(buildable):
    build(buildable)
    work = buildable.root.parent / "authoring"
    support.write(work, {"k2/csrc/answer.cc": "int Answer() { return 7; }\n"})
    git(work, "commit", "--quiet", "--all", "--amend", "--no-edit")
    old = patches(buildable)
    buildable.ok("export", "--k2", str(work))
    build(buildable)
    assert answer(buildable) == "7"
    assert len(trees(buildable)) == 2
    files = (buildable.root / "build").glob("cpu-*/lib/k2mps.json")
    told = {json.loads(file.read_text())["series"] for file in files}
    git(buildable.root, "init", "--quiet")
    git(buildable.root, "add", "patches")
    assert len(told) == 2 and git(buildable.root, "write-tree", "--prefix=patches/") in told
    for path, content in old.items():
        (buildable.root / path).write_bytes(content)
    buildable.ok("apply")
    assert "\nnext: k2mps build\n" in buildable.ok("status")
    build(buildable)
    assert len(trees(buildable)) == 2
    assert answer(buildable) == "42"


def test_other_flags_are_built_in_another_tree(buildable):
    build(buildable)
    build(buildable, "--", "-DCMAKE_CXX_FLAGS=-DSOMETHING=1")
    assert len(trees(buildable)) == 2
    build(buildable)
    assert len(trees(buildable)) == 2


def test_another_checkout_is_built_in_another_tree(buildable):
    build(buildable)
    build(buildable, "--k2", str(buildable.clone("own größe")))
    assert len(trees(buildable)) == 2
    assert answer(buildable) == "42"


def test_a_file_that_cmake_writes_is_written_again(buildable):
    build(buildable)
    path = buildable.checkout / "k2/python/k2/torch_version.py"
    path.write_text("k2_torch_version = 'of another build'\n")
    build(buildable)
    assert path.read_text() == "k2_torch_version = 'x'\n"
    [tree] = (buildable.root / "build").glob("cpu-*")
    for name in ("build.ninja", "k2mps-configured.json", "torch_version.py"):
        (tree / name).unlink()
        build(buildable)
        assert (tree / name).exists(), name


def test_an_edit_of_the_overlay_is_built_once(buildable):
    build(buildable)
    overlay = buildable.root / "CMakeLists.overlay.cmake"
    overlay.write_text(overlay.read_text() + "add_definitions(-DX=1)\n")
    assert "nothing to do" not in build(buildable)
    assert "nothing to do" in build(buildable)
