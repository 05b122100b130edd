"""`make clean` keeps the checkout and a rebase, a signal to make reaches the tool, and git adds
patches."""

import os
import shutil
import subprocess
import sys

import pytest

from k2_mps_tests.tooling import support


def test_clean_deletes_build_trees_only(sandbox, k2):
    build = sandbox.root / "build"
    for name in ("Makefile", ".gitignore"):
        shutil.copy(support.TOOLS.parent / name, sandbox.root)
    support.git(sandbox.root, "init", "--quiet")
    support.git(k2, "worktree", "add", "--quiet", "--detach", str(build / "rebase"))
    support.write(build, {"cpu-torch/build.ninja": "x\n", "tests/tooling.xml": "x\n", "file": ""})
    support.write(sandbox.root, {"mine/file": ""})
    (build / "link").symlink_to(sandbox.root / "mine")
    before = support.snapshot(k2)
    for _ in range(2):
        support.output("make", "clean", cwd=sandbox.root)
        assert (sandbox.root / "mine/file").exists()
        assert sorted(os.listdir(build)) == ["k2", "rebase"]
        assert support.snapshot(k2) == before
    assert sandbox.state() == "applied"


def test_git_adds_a_patch_although_the_user_ignores_such_files(tmp_path):
    shutil.copy(support.TOOLS.parent / ".gitignore", tmp_path)
    support.git(tmp_path, "init", "--quiet")
    files = {".git/info/exclude": "*.patch\n", "patches/more.patch": "", "mine.patch": ""}
    support.write(tmp_path, files)
    support.git(tmp_path, "add", ".")
    assert support.git(tmp_path, "ls-files").split() == [".gitignore", "patches/more.patch"]


# A stand-in for k2mps.  Like a compiler, it ends a moment after SIGTERM.  SIGTERM is blocked, so
# sigwait() also receives a signal that comes before the call.  dash's `wait` could miss it.
TOOL = f"""\
#!{sys.executable}
import pathlib, signal, time
signal.alarm(60)
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGTERM}})
pathlib.Path("started").touch()
signal.sigwait({{signal.SIGTERM}})
time.sleep(1)
pathlib.Path("ended").touch()
raise SystemExit(143)
"""


@pytest.mark.parametrize("target", ["build", "test", "mac-report"])
def test_make_ends_after_the_tool_at_a_sigterm(tmp_path, target):
    shutil.copytree(support.TOOLS.parent / "k2_mps_tests/report", tmp_path / "k2_mps_tests/report")
    for name in ("Makefile", "pyproject.toml", "k2_mps_tests/__init__.py"):
        shutil.copy(support.TOOLS.parent / name, tmp_path / name)
    support.write(tmp_path, {".venv/bin/k2mps": TOOL})
    (tmp_path / ".venv/bin/k2mps").chmod(0o755)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)  # so there is a .venv
    make = subprocess.Popen(["make", target], cwd=tmp_path, stderr=subprocess.DEVNULL)
    support.wait_for(tmp_path / "started")
    make.terminate()
    assert make.wait(timeout=30) != 0
    assert (tmp_path / "ended").exists()
