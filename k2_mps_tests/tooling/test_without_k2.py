"""`make build` out of reach of k2 does the steps that need no k2."""

import re
import shutil

import pytest
from k2mps.build import builder, environment
from k2mps.core import project

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.test_build import make_environment

ROOT = support.TOOLS.parent
TRAINING = "k2_mps_tests/kernels/train.py"


@pytest.fixture
def away(empty):
    """A clone of k2-mps with an environment, whose upstream is missing."""
    shutil.copy(ROOT / "pyproject.toml", empty.root)
    make_environment(empty.root / ".venv")
    empty.use_installed_torch()
    here = project.Project(empty.root)
    torch = environment.Environment(here).version_of("torch")
    support.write(
        empty.root,
        {
            "emulator/source": "",
            "k2_mps_tests/__init__.py": "",
            "k2_mps_tests/kernels/__init__.py": "",
            TRAINING: "print('trained')\n",
        },
    )
    # The stamp says that the emulator is installed.
    settings = builder.emulator_settings(here)
    key = environment.tree_hash(
        empty.root / "emulator", *sorted(map("=".join, settings.items())), f"torch {torch}"
    )
    (empty.root / ".venv/k2mps-emulator.stamp").write_text(key)
    empty.upstream.rename(empty.upstream.with_name("gone"))
    return empty


def test_training_takes_its_place(away):
    out = away.ok("build", "--or-kernels")
    lines = out.splitlines()
    missing = [line for line in lines if line.startswith("k2 itself is missing: ")]
    assert len(missing) == 2 and away.upstream.as_uri() in missing[0]
    first = lines.index(missing[0])
    assert first < lines.index("trained") < lines.index(missing[0], first + 1)
    assert re.match("why: .", lines[first + 1])
    assert f"have the pinned commit {away.pin[:12]}" in lines[-1]
    assert "make build K2=URL" in lines[-1]
    assert "make test, or train something" not in out
    assert not (away.root / "build/k2").exists()
    assert "build --or-kernels" in (ROOT / "Makefile").read_text()
    # The command in the message, up to the clone.
    mirror = away.upstream.with_name("gone")
    assert away.pin in away.ok("checkout", env={"K2": mirror.as_uri()})
    assert away.pin in away.ok("checkout", env={"K2": str(mirror)})


def test_what_is_an_error_also_then(away):
    support.write(away.root, {TRAINING: "raise SystemExit(1)\n"})
    assert "status 1" in away.fails(34, "build", "--or-kernels")
    other = away.root.parent / "other"
    support.git(away.root.parent, "init", "--quiet", str(other))
    support.commit(other, "not k2", {"README": "another\n"})
    message = away.fails(1, "build", "--or-kernels", "--k2", other.as_uri())
    assert "could not be fetched from" in message
    # A build for the CPU does not end with a training on mps.
    for words in (["build"], ["build", "--or-kernels", "--device", "cpu"]):
        assert "could not be cloned" in away.fails(20, *words)
