"""If k2 cannot be cloned, `make build` does the steps that need no k2."""

import shutil

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.stand_in import leave_emulator, make_environment, write_program

ROOT = support.TOOLS.parent
KERNELS = "k2_mps_tests/kernels/__main__.py"


@pytest.fixture
def away(empty):
    """A clone of k2-mps that has a virtual environment, but cannot reach upstream."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, empty.root)
    make_environment(empty.root / ".venv")
    write_program(empty.root)
    empty.use_installed_torch()
    packages = {f"k2_mps_tests/{name}__init__.py": "" for name in ("", "kernels/")}
    program = "import sys\nprint('trained', *sys.argv[1:])\n"
    support.write(empty.root, {**packages, KERNELS: program})
    leave_emulator(empty.root)
    empty.upstream.rename(empty.upstream.with_name("gone"))
    return empty


def make(away, *words):
    # If `make test` runs this test, these variables would make the test's make print more.
    outer = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    environment = {name: text for name, text in away.environment.items() if name not in outer}
    return away.program("make", "build", *words, env=environment)


def test_without_k2_make_build_trains_a_small_model(away):
    result = make(away)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"warning: {away.upstream.as_uri()} could not be cloned\n  why: " in result.stderr
    lines = result.stdout.splitlines()
    last = lines[-1]
    assert last.startswith("k2 itself is missing") and "make build K2=DIRECTORY" in last
    assert lines.index(last) < lines.index("trained --train") == len(lines) - 2
    assert not (away.root / "build/k2").exists()
    # The message gives K2=DIRECTORY as a remedy, and docs/tool.md gives insteadOf.  Tries both.
    mirror = away.upstream.with_name("gone")
    assert "applied" in away.ok("apply", env={"K2": str(mirror)})
    instead = f"url.{mirror.as_uri()}.insteadOf"
    support.git(away.root, "config", "--file", away.config, instead, away.upstream.as_uri())
    assert "applied" in away.ok("apply")


def test_without_k2_other_failures_are_still_errors(away):
    assert "could not be cloned" in away.fails(20, "build")
    support.write(away.root, {KERNELS: "raise SystemExit(1)\n"})
    result = make(away)
    assert result.returncode == 2 and "status 1" in result.stderr
    other = away.root.parent / "other"
    support.git(away.root.parent, "init", "--quiet", str(other))
    support.commit(other, "not k2", {"README": "another\n"})
    result = make(away, f"K2={other}")
    assert result.returncode == 2 and "does not have the pinned commit" in result.stderr
    assert "k2 itself is missing" not in result.stdout
