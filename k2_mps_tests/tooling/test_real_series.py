"""The project's own series, on the real k2.

The tests that need upstream are skipped if upstream cannot be reached.
"""

import re
import shutil

import pytest
from k2mps.core import project
from k2mps.series import patch_folder, series_file
from k2mps.stack.checkout import Checkout

from k2_mps_tests.commits import style
from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.sandbox import Sandbox
from k2_mps_tests.tooling.series_files import patches
from k2_mps_tests.tooling.support import git

ROOT = support.TOOLS.parent
REAL = project.Project(ROOT)


def test_patches_carry_one_line_of_context():
    """A patch has at most one unchanged line of upstream's text before and after each change."""
    for patch in patch_folder.load(REAL.patches).patches:
        run = 0
        for line in patch.diff.split(b"\n"):
            run = run + 1 if line.startswith(b" ") else 0
            # Two changes with two unchanged lines between them are in one hunk.
            assert run <= 2, patch.name


@pytest.fixture(scope="module")
def clone(tmp_path_factory, users_environment):
    """Returns a function that runs the tool in a copy of the project.

    The copy has the real series, and a clone of the real k2.  The function's attributes `root` and
    `k2` are the folders of the copy and of the clone.
    """
    root = tmp_path_factory.mktemp("real") / "project"
    root.mkdir()
    shutil.copy(ROOT / "upstream.toml", root)
    shutil.copytree(ROOT / "patches", root / "patches")

    def run(*args, **env):
        variables = {**users_environment, "PYTHONPATH": str(support.TOOLS), "K2": "", **env}
        return support.ran(*Sandbox.command(None, *args), cwd=root, env=variables)

    result = run("apply")
    if result.returncode == 20:
        pytest.skip(f"upstream cannot be reached: {result.stderr.strip()}")
    assert result.returncode == 0, result.stderr
    run.root = root
    run.k2 = root / "build" / "k2"
    return run


def restore(clone):
    """Checks out the pin in the clone, and deletes the tool's refs."""
    pin = REAL.upstream().pin.commit
    git(clone.k2, "checkout", "--quiet", "--detach", pin)
    for ref in ("refs/heads/k2-mps", "refs/k2mps/applied"):
        git(clone.k2, "update-ref", "-d", ref)


def test_k2s_style_checkers_find_nothing(clone):
    restore(clone)
    assert clone("apply").returncode == 0
    checkout = Checkout(clone.k2)
    pin = REAL.upstream().pin.commit
    found = []
    for commit in checkout.commits(f"{pin}..{checkout.head().commit}"):
        found += style.findings(checkout, commit.parents[0], commit.id)
    assert found == []


def test_code_of_builds_without_mps_compiles_with_a_torch_that_has_no_mps(clone):
    """torch has mps from 1.12 on, and k2 builds older releases: see kTorchMps in mps_context.h."""
    restore(clone)
    assert clone("apply").returncode == 0
    # mps.cmake lists the files that a build without mps does not compile.
    mps_only = re.findall(
        r"^  (mps/[\w/]+\.\w+)$", (clone.k2 / "cmake/mps.cmake").read_text(), re.M
    )
    assert "mps/mps_context.mm" in mps_only
    found = git(
        clone.k2, "grep", "-E", r"is_mps\(|:kMPS|DeviceType::MPS", "--", "k2/*.h", "k2/*.cu"
    )
    excluded = tuple(f"k2/csrc/{name}:" for name in mps_only)
    lines = [line for line in found.splitlines() if not line.startswith(excluded)]
    # A comment or a message may name torch::kMPS.
    code = [line for line in lines if not re.search(r'@(param|return)|"[^"]*kMPS[^"]*"', line)]
    assert code == [
        "k2/csrc/mps/mps_context.h:constexpr torch::DeviceType kTorchMps = torch::kMPS;"
    ]


def test_export_gives_the_same_patches(clone):
    """Export writes the same patches over the old ones, and into a folder without patches."""
    restore(clone)
    assert clone("apply").returncode == 0
    before = patches(clone)
    for _ in range(2):
        result = clone("export")
        assert result.returncode == 0, result.stderr
        assert patches(clone) == before
        for path in (clone.root / "patches").glob("*.patch"):
            path.unlink()
    for path, text in before.items():
        (clone.root / path).write_bytes(text)


@pytest.mark.parametrize("group", [*filter(series_file.is_fix, series_file.GROUPS)])
def test_each_group_of_fixes_applies_to_the_pin_alone(clone, group):
    restore(clone)
    assert clone("apply").returncode == 0
    git(clone.k2, "config", "user.name", "A")
    git(clone.k2, "config", "user.email", "a@example.org")
    (clone.root / "docs").mkdir(exist_ok=True)
    shutil.copy(ROOT / "docs/pull-requests.md", clone.root / "docs")
    result = clone("upstream", "--group", group, "--branch", group)
    assert result.returncode == 0, result.stderr
    series = patch_folder.load(REAL.patches)
    names = [name for name, its in series.groups.items() if its == group]
    alone = [name for name in names if series_file.stands_alone(name)]
    commits = git(clone.k2, "rev-list", f"{REAL.upstream().pin.commit}..{group}").split()
    assert len(commits) == 1 + len(alone)
