"""`k2mps build` names the programs that it lacks; root installs them."""

import os
import re
import shutil
from pathlib import Path

import pytest
from k2mps.build import doctor

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.stand_in import CPU, answer, bare_path, fails


def test_missing_compilers_name_the_one_command(buildable, tmp_path):
    """The PATH has no compiler and no apt-get."""
    env = {"PATH": bare_path(tmp_path)}
    message = fails(buildable, 30, env=env)
    assert "C++ compiler" in message
    assert message.rstrip().endswith("next: sudo apt-get install g++")
    assert not buildable.checkout.exists()  # The tool refuses before it clones k2.
    result = buildable.run("doctor", *CPU, env=env)
    assert result.returncode == 30 and "sudo apt-get install g++" in result.stderr
    assert re.search(r"^MISSING\tC\+\+ compiler\tnothing", result.stdout, re.MULTILINE)
    # With compilers, nothing is missing.
    checks = [
        line.split("\t") for line in buildable.ok("doctor", *CPU).splitlines() if "\t" in line
    ]
    named = {name for _, name, *_ in checks}
    assert {"git", "Python", "Python headers", "C++ compiler", "ccache"} <= named


@pytest.mark.skipif(os.geteuid() != 0, reason="as another user, the tool would call sudo")
@pytest.mark.parametrize("works", [True, False])
def test_root_installs_what_is_missing(buildable, tmp_path, works):
    """A fake apt-get puts a compiler on the PATH, or fails if `works` is false."""
    path = bare_path(tmp_path)
    log = tmp_path / "apt.log"
    tool = Path(path) / "apt-get"
    compiler = shutil.which("c++") or shutil.which("g++")
    install = f"ln -s {compiler} '{path}/c++'" if works else "echo E: Unable to locate; exit 100"
    script = f"echo \"$@\" >> '{log}'\n[ $1 = update ] || {{ {install}; }}\n"
    tool.write_text(f"#!/bin/sh\n{script}")
    tool.chmod(0o755)
    result = buildable.run("build", *CPU, "--no-demo", env={"PATH": path})
    assert "install -y --no-install-recommends g++" in log.read_text()
    if works:
        assert result.returncode == 0, result.stderr
        assert answer(buildable) == "42"
    else:
        assert result.returncode == 30
        assert "Unable to locate" in result.stderr


@pytest.mark.parametrize(
    "versions, newest", [(["9", "13"], 13), (["12", "13-win32"], 12), ([], 12)]
)
def test_the_newest_gcc_has_the_headers_of_objective_c(tmp_path, monkeypatch, versions, newest):
    """Compilers for other systems can have versions that are no numbers."""
    support.write(tmp_path, {f"linux-gnu/{version}/libgcc.a": "" for version in versions})
    monkeypatch.setattr(doctor, "Path", lambda path: tmp_path)
    packages = [check.package for check in doctor._emulated()]
    assert f"libobjc-{newest}-dev" in packages
