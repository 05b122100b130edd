"""`make clean` deletes only files that other commands make again."""

import os
import shutil

from k2_mps_tests.tooling import support


def test_build_trees_go_and_clones_stay(sandbox, k2):
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
