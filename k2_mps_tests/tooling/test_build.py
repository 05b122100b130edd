"""`k2mps build` with real cmake, ninja and compilers, on a small stand-in for k2."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from k2mps.build import builder, doctor, environment
from k2mps.core import process as processes
from k2mps.core import project
from k2mps.stack import checkout

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.stand_in import (
    CPU,
    ROOT,
    answer,
    bare_path,
    build,
    fails,
    leave_emulator,
    make_buildable,
    start_slow_build,
    trees,
)
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


def test_the_progress_names_the_file_of_ninjas_last_step(buildable):
    buildable.ok("apply")
    here = environment.Environment(project.Project(buildable.root), progress := support.Progress())
    builder.build(here, checkout.Checkout(buildable.checkout), builder.Request(doctor.Device.CPU))
    assert {name for _, total, name in progress.steps if total == 3} >= {"answer.cc.o"}


def test_the_origin_says_whether_kernels_were_to_be_compiled(buildable, monkeypatch):
    monkeypatch.setattr(doctor, "assembler", lambda: doctor.Check("llvm-as-14", "", "here"))
    buildable.ok("apply")
    here = environment.Environment(project.Project(buildable.root))
    for asked in (False, True):
        request = builder.Request(doctor.Device.CPU, metallib=asked)
        built = builder.build(here, checkout.Checkout(buildable.checkout), request)
        assert built.origin["metallib"] is asked


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
    build(buildable)
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


def test_another_series_is_built_in_another_tree(buildable):
    build(buildable)
    work = buildable.root.parent / "authoring"
    support.write(work, {"k2/csrc/answer.cc": "int Answer() { return 7; }\n"})
    git(work, "commit", "--quiet", "--all", "--amend", "--no-edit")
    old = support.patches(buildable)
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


def test_an_edit_of_the_overlay_is_built_once(buildable):
    build(buildable)
    overlay = buildable.root / "CMakeLists.overlay.cmake"
    overlay.write_text(overlay.read_text() + "add_definitions(-DX=1)\n")
    assert "nothing to do" not in build(buildable)
    assert "nothing to do" in build(buildable)


def test_an_error_of_cmake_is_shown(buildable):
    message = fails(buildable, 34, "--", "-DK2_BREAK_CONFIGURE=ON")
    assert "broken on purpose" in message and "configure.log" in message


def test_an_error_of_ninja_itself_is_shown(buildable):
    build(buildable)
    [tree] = trees(buildable)
    (buildable.root / "build" / tree / "build.ninja").write_text("not ninja\n")
    message = fails(buildable, 34)
    assert "ninja: error: build.ninja:1: " in message


def break_the_source(sandbox):
    """Builds, then puts a hundred warnings and an error into a source."""
    build(sandbox)
    warnings = "#warning of no interest\n" * 100
    text = warnings + "int Answer() { return wrong_name; }\n"
    support.write(sandbox.checkout, {"k2/csrc/answer.cc": text})


def test_an_error_of_the_compiler_is_shown_without_warnings(buildable):
    break_the_source(buildable)
    message = fails(buildable, 34)
    assert "answer.cc:101:" in message and "wrong_name" in message
    assert "FAILED: " in message and "build.log" in message
    assert "of no interest" not in message
    assert "-std=" not in message  # Only the log has the compiler's command.
    assert len(message.splitlines()) < 60


def test_with_keep_going_each_error_of_the_compiler_is_shown(buildable):
    break_the_source(buildable)
    support.edit(buildable.checkout / "k2/csrc/module.cc", "(&module)", "(other_name)")
    message = fails(buildable, 34, "--jobs", "1", "--keep-going")
    assert message.count("FAILED: ") == 2
    assert "wrong_name" in message and "other_name" in message
    assert fails(buildable, 34, "--jobs", "1").count("FAILED: ") == 1


def test_a_build_goes_on_after_an_error(buildable):
    break_the_source(buildable)
    fails(buildable, 34)
    support.write(buildable.checkout, {"k2/csrc/answer.cc": "int Answer() { return 5; }\n"})
    assert "2 steps" in build(buildable)
    assert answer(buildable) == "5"


def test_an_error_of_the_linker_is_shown(buildable):
    buildable.ok("apply")
    text = "int Missing();\nint Answer() { return Missing(); }\n"
    support.write(buildable.checkout, {"k2/csrc/answer.cc": text})
    message = fails(buildable, 34, "--", "-DCMAKE_MODULE_LINKER_FLAGS=-Wl,--no-undefined")
    assert "Missing()" in message


def test_a_full_disk_in_a_step_is_reported(buildable):
    buildable.ok("apply")
    full = 'add_custom_command(OUTPUT x.cc COMMAND sh -c "cat /dev/zero > /dev/full" VERBATIM)\n'
    path = buildable.checkout / "CMakeLists.txt"
    path.write_text(f"{path.read_text()}{full}target_sources(_k2 PRIVATE x.cc)\n")
    assert "No space left on device" in fails(buildable, 34)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or ") Z " not in status.read_text()


def ends(pid: int) -> bool:
    """Waits up to 5 seconds for the end of a process; returns whether it has ended.

    A process that ends closes its pipes a moment before it is gone.
    """
    deadline = time.monotonic() + 5  # much less than the minute that SLOW_STEP sleeps
    while alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@contextlib.contextmanager
def heeded_hangup():
    """Lets SIGHUP end the tool even if the tests run under nohup, where SIGHUP is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


class Interrupted(NamedTuple):
    """How signals ended a build, and what answer() returns after the next build."""

    signal: int
    status: int
    output: str
    compiler_ended: bool
    left_a_lock: bool  # whether the checkout is locked
    answer: str  # what answer() returns after the next build


def is_locked(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


# `timeout` sends SIGTERM twice; a closed terminal sends SIGHUP.
@pytest.fixture(
    scope="module",
    params=[[signal.SIGINT], [signal.SIGTERM, signal.SIGTERM], [signal.SIGHUP]],
    ids=["ctrl-c", "timeout", "closed terminal"],
)
def interrupted(request, make_empty, tmp_path_factory):
    sandbox = make_buildable(make_empty(tmp_path_factory.mktemp("interrupted")))
    with heeded_hangup():
        process, pid = start_slow_build(sandbox)
    for number in request.param:
        process.send_signal(number)
        time.sleep(0.05)
    output, _ = process.communicate(timeout=30)
    ended = ends(pid)
    locked = is_locked(checkout.Checkout(sandbox.checkout).git_dir)
    git(sandbox.checkout, "checkout", "--quiet", "CMakeLists.txt")
    build(sandbox)
    return Interrupted(
        signal=request.param[0],
        status=process.returncode,
        output=output,
        compiler_ended=ended,
        left_a_lock=locked,
        answer=answer(sandbox),
    )


def test_a_build_that_a_signal_ends_has_the_status_of_the_signal(interrupted):
    assert interrupted.status == 128 + interrupted.signal, interrupted.output


def test_a_build_that_a_signal_ends_prints_interrupted(interrupted):
    assert "interrupted" in interrupted.output


def test_a_signal_ends_the_compilers(interrupted):
    assert interrupted.compiler_ended


def test_a_build_that_a_signal_ends_leaves_no_lock(interrupted):
    assert not interrupted.left_a_lock


def test_the_build_after_a_signal_goes_on(interrupted):
    assert interrupted.answer == "42"


def test_a_compiler_that_does_not_end_is_killed(tmp_path):
    """The test's compiler is in a separate process group, as each step of ninja is."""
    script = (
        "import os, signal, time; os.setpgid(0, 0); signal.signal(signal.SIGTERM, lambda *_: 0)"
    )
    script += f"; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))"
    script += "; [time.sleep(1) for _ in range(60)]"
    words = ["sh", "-c", '"$0" -c "$1" & wait', sys.executable, script]
    with pytest.raises(KeyboardInterrupt):
        with processes.started(words, grace=0.5, start_new_session=True):
            support.wait_for(tmp_path / "pid")
            time.sleep(0.2)
            begin = time.monotonic()
            raise KeyboardInterrupt
    assert ends(int((tmp_path / "pid").read_text()))
    assert time.monotonic() - begin < 30  # without SIGKILL, the compiler would end after 60 s


def test_a_compiler_that_outlives_its_parent_has_time_to_end(tmp_path):
    """The compiler removes its incomplete output, after its parent has ended."""
    compiler = 'trap "sleep 0.5; rm output; exit" TERM; touch output; while :; do sleep 0.1; done'
    words = ["sh", "-c", f"({compiler}) & wait"]
    with pytest.raises(KeyboardInterrupt):
        with processes.started(words, start_new_session=True, cwd=tmp_path):
            support.wait_for(tmp_path / "output")
            raise KeyboardInterrupt
    assert not (tmp_path / "output").exists()


def test_after_kill_9_the_next_build_waits_for_the_compilers(buildable):
    process, pid = start_slow_build(buildable)
    process.kill()
    process.communicate()
    assert alive(pid)
    message = fails(buildable, 17)
    assert "another k2mps" in message
    os.killpg(os.getpgid(pid), signal.SIGKILL)
    deadline = time.monotonic() + 20
    git(buildable.checkout, "checkout", "--quiet", "CMakeLists.txt")
    while time.monotonic() < deadline:
        result = buildable.run("build", *CPU, "--no-demo")
        if result.returncode != 17:
            break
        time.sleep(0.2)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("command", [["apply"], ["export"], ["fold", "answer-42"]])
def test_a_command_that_changes_the_checkout_is_refused_while_a_build_reads_it(buildable, command):
    process, _ = start_slow_build(buildable)
    assert "a build reads it" in buildable.fails(17, *command)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)


def test_a_build_is_refused_while_the_checkout_is_changed(buildable):
    build(buildable)
    with checkout.Checkout(buildable.checkout).exclusive():
        assert "another k2mps changes" in fails(buildable, 17)


def test_two_builds_may_read_one_checkout(buildable):
    build(buildable)
    with checkout.Checkout(buildable.checkout).reading():
        assert "nothing to do" in build(buildable)


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


def test_a_pull_request_is_checked_commit_by_commit(buildable):
    """`upstream --check` names the commit that fails; a second run checks only this commit."""
    work = buildable.root.parent / "authoring"
    answers = "# Copyright 2026\nimport k2\n\n\ndef test_answer():\n    assert k2.answer() == 43\n"
    for message, files in {
        "answer: broken": {"k2/csrc/answer.cc": "int Answer() { return wrong; }\n"},
        "answer: mended": {
            "k2/csrc/answer.cc": "int Answer() { return 43; }\n",
            "k2/python/tests/answer_test.py": answers,
        },
    }.items():
        support.commit(work, message, files)
    buildable.ok("export", "--k2", str(work))
    support.write_cover_letters(buildable)
    shutil.rmtree(buildable.root / "tools")
    (buildable.root / "tools").symlink_to(support.TOOLS)
    (buildable.root / "k2_mps_tests").mkdir()
    # `upstream --check --quick` runs the suite upstream-cpu on the last commit.
    for name in ("__init__.py", "ending.py", "commits", "upstream"):
        (buildable.root / "k2_mps_tests" / name).symlink_to(ROOT / "k2_mps_tests" / name)
    buildable.ok("apply")
    git(buildable.checkout, "config", "user.name", "A Sender")
    git(buildable.checkout, "config", "user.email", "sender@example.org")
    mine = buildable.root / "build/upstream/notes"
    support.write(buildable.root, {"build/upstream/notes": "mine\n"})
    assert f"{mine.parent} exists" in buildable.run("upstream", "--check", "--quick").stdout
    mine.unlink()
    mine.parent.rmdir()
    for built in (["answer: 42", "answer: broken", "answer: mended"], ["answer: broken"]):
        result = buildable.run("upstream", "--check", "--quick")
        assert result.returncode == 34, result.stdout + result.stderr
        assert "1 of 3 commits fail; answer: broken" in result.stderr
        assert re.findall(r"^[0-9a-f]{12} (answer: \w+)$", result.stdout, re.MULTILINE) == built
        for fact in (
            "answer: 42: K2_WITH_MPS=OFF: import k2 and an FSA on cpu; ON: -; style: well",
            "answer: broken: K2_WITH_MPS=OFF: does not build: ",
            "k2/csrc/answer.cc:1:",
            "answer: mended: K2_WITH_MPS=OFF: 1 passed in ",
        ):
            assert fact in result.stdout
