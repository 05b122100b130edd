"""A signal ends `k2mps build`, and the compilers that ninja has started."""

import contextlib
import fcntl
import os
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from k2mps.core import process as processes
from k2mps.stack import checkout

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.stand_in import (
    CPU,
    answer,
    build,
    fails,
    make_buildable,
    start_slow_build,
)
from k2_mps_tests.tooling.support import git


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
