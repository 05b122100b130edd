"""`k2mps build` names the programs that it lacks; root installs them."""

import os
import platform
import re
import shutil
from pathlib import Path

import pytest
from k2mps.build import build_tree, doctor
from k2mps.build.doctor import Check, Device
from k2mps.core import errors
from k2mps.core.progress import Reporter

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


def write_programs(folder: Path, **scripts: str) -> None:
    """Writes programs, {name: shell commands}, into a folder of the PATH."""
    for name, script in scripts.items():
        program = folder / name.replace("_", "-")
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)


@pytest.fixture
def programs(tmp_path, monkeypatch) -> Path:
    """The only folder of the PATH, which is empty."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


SMALL = Check("small", "any", "", "small-package")
LOG = 'printf "%s " "$@" >>"${0%/*}/log"'


def test_a_user_who_is_not_root_installs_with_sudo(programs, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    write_programs(programs, apt_get="exit 9", sudo=LOG)
    doctor.provide([SMALL, Check("ccache", "any", "", "ccache", needed=False)], Reporter())
    log = (programs / "log").read_text()
    assert log.startswith("-n env DEBIAN_FRONTEND=noninteractive sh -c apt-get update; ")
    assert log.endswith(" small-package ")


@pytest.mark.parametrize(
    "names, user, checks",
    [
        (["sudo"], 1000, [SMALL]),
        (["apt_get"], 1000, [SMALL]),
        # apt-get cannot install all that is missing, so it installs nothing.
        (["apt_get", "sudo", "env"], 0, [SMALL, Check("Xcode", "any", "", fix="get-xcode")]),
        ([], 0, [Check("small", "any", "", fix="get-small")]),
    ],
)
def test_nothing_is_installed_if_not_all_can_be(programs, monkeypatch, names, user, checks):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    write_programs(programs, **dict.fromkeys(names, LOG))
    with pytest.raises(
        errors.RequirementMissingError, match=r"the build needs small \(any\)"
    ) as caught:
        doctor.provide(checks, Reporter())
    assert not (programs / "log").exists()
    fixes = [check.fix for check in checks]
    assert caught.value.next_command == "; ".join(fixes)
    assert caught.value.why.startswith("small: found nothing")


def test_an_optional_program_that_is_missing_is_no_error(programs):
    doctor.provide([Check("ccache", "any", "", "ccache", needed=False)], Reporter())


@pytest.mark.parametrize(
    "version, is_ok", [("2.37.9", False), ("2.38.0", True), ("2.100", True), (None, False)]
)
def test_an_old_git_is_missing(programs, version, is_ok):
    if version:
        write_programs(programs, git=f"echo git version {version}")
    [git] = [check for check in doctor.system_checks(Device.CPU) if check.name == "git"]
    assert (git.found, git.ok) == (version or "", is_ok)


def test_the_compilers_of_a_build(programs):
    def found():
        [check] = [one for one in doctor.system_checks(Device.CPU) if one.name == "C++ compiler"]
        return check.found

    names = {"C": "clang-19", "CXX": "clang++-19", "OBJC": "clang-19", "OBJCXX": "clang++-19"}
    assert found() == ""
    assert (doctor.compilers(Device.CPU), doctor.compilers(Device.MPS)) == ({}, names)
    write_programs(programs, **{"c++": ""})
    assert found() == str(programs / "c++")
    assert doctor.compilers(Device.CPU) == {}
    write_programs(programs, **{"clang_19": "", "clang++_19": ""})
    paths = {language: str(programs / name) for language, name in names.items()}
    assert found() == paths["CXX"]
    assert doctor.compilers(Device.MPS) == paths
    assert doctor.compilers(Device.CPU) == {"C": paths["C"], "CXX": paths["CXX"]}


@pytest.mark.parametrize(
    "system, machine, wrong",
    [
        ("14.0", "arm64", []),
        ("26.1", "x86_64", ["processor"]),
        ("13.7.1", "arm64", ["macOS"]),
        ("", "arm64", ["macOS"]),
    ],
)
def test_a_mac_needs_macos_14_and_its_own_processor(monkeypatch, system, machine, wrong):
    monkeypatch.setattr(platform, "mac_ver", lambda: (system, ("", "", ""), machine))
    monkeypatch.setattr(platform, "machine", lambda: machine)
    macos, processor, *_ = doctor._apple()
    assert [check.name for check in (macos, processor) if not check.ok] == wrong


def test_on_a_mac_apple_and_homebrew_have_the_packages(programs, monkeypatch):
    monkeypatch.setattr(doctor, "_MAC", True)
    folders = []
    monkeypatch.setattr(doctor, "Path", lambda *parts: folders.append(parts) or Path(*parts))
    checks = [*doctor.examine(Device.MPS), doctor.googletest()]
    assert folders == [("/opt/homebrew/include", "gmock/gmock.h")]
    fixes = {check.name: check.fix for check in checks if not check.ok}
    assert {"git", "C++ compiler", "ccache"} <= fixes.keys()
    assert fixes["git"] == fixes["C++ compiler"] == "xcode-select --install"
    assert fixes["ccache"] == "brew install ccache"
    assert fixes["GoogleTest"] == "brew install googletest"
    assert "ld64.lld-19" not in fixes
    assert "brew install " not in [check.fix for check in checks]
    write_programs(programs, **{"clang++_19": ""})
    assert doctor.compilers(Device.CPU) == {}


KIB_PER_JOB = 3 << 19


@pytest.mark.parametrize(
    "facts, jobs",
    [
        (f"MemTotal: 9 kB\nMemAvailable:   {3 * KIB_PER_JOB} kB\n", 3),
        (f"MemAvailable: {3 * KIB_PER_JOB - 1} kB\n", 2),
        ("MemAvailable: 1000 kB\n", 1),
        (f"MemAvailable: {90 * KIB_PER_JOB} kB\n", 8),
        ("MemTotal: 9 kB\n", 8),
        (None, 8),
    ],
)
def test_as_many_compilers_run_as_processors_and_memory_allow(tmp_path, monkeypatch, facts, jobs):
    if facts:
        (tmp_path / "meminfo").write_text(facts)
    monkeypatch.setattr(build_tree, "Path", lambda path: tmp_path / "meminfo")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    assert build_tree.fitting_jobs() == jobs
    # macOS has neither the function nor the file.
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert build_tree.fitting_jobs() == 1
