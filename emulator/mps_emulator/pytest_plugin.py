"""Makes a fatal misuse of the device fail one test instead of the whole run.

    pytest -p mps_emulator.pytest_plugin --mps-isolate

runs every test in a forked process of its own.  Each process sets up fixtures of
wider scope again.  A test's changes to its process are lost.
"""

import os
import pickle
import signal
import sys

import pytest
from _pytest.runner import runtestprotocol


def pytest_addoption(parser):
    parser.getgroup("mps_emulator").addoption(
        "--mps-isolate",
        action="store_true",
        help="run every test in a process of its own, so that a fatal misuse "
        "of the emulated device fails that test alone",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    if not item.config.option.mps_isolate:
        return None
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _run_in_child(item):
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _run_in_child(item):
    """The reports of a test that runs in a forked process."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(readable)
            _take_device_along()
            reports = runtestprotocol(item, log=False, nextitem=None)
            serialized = [
                item.config.hook.pytest_report_to_serializable(config=item.config, report=report)
                for report in reports
            ]
            with os.fdopen(writable, "wb") as pipe:
                pickle.dump(serialized, pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        received = pipe.read()
    _, status = os.waitpid(child, 0)
    # pytest's capture has the child's output: the processes share its files.
    captured = _captured(item)
    if received:
        return [
            item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
            for data in pickle.loads(received)
        ]
    return [_report_of_death(item, status, *captured)]


def _take_device_along():
    """Makes torch seed the emulated device in this forked process.

    A Mac's device does not survive a fork, so torch.manual_seed() skips mps in
    the child of a process that used it.  The emulated device survives a fork.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.mps._is_in_bad_fork = lambda: False


def _captured(item):
    """Returns (stdout, stderr) since the last test, empty without a capture."""
    manager = item.config.pluginmanager.getplugin("capturemanager")
    if manager is None or not manager.is_globally_capturing():
        return "", ""
    return manager.read_global_capture()


def _report_of_death(item, status, out, err):
    fatal = [line for line in err.splitlines() if line.startswith("mps emulator: fatal: ")]
    if os.WIFSIGNALED(status):
        end = "the test's process ended with " + (signal.Signals(os.WTERMSIG(status)).name)
    else:
        end = f"the test's process ended with status {os.waitstatus_to_exitcode(status)}"
    sections = [
        (f"Captured {name} call", text) for name, text in (("stdout", out), ("stderr", err)) if text
    ]
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={name: 1 for name in item.keywords},
        outcome="failed",
        longrepr="\n".join(fatal or [end]),
        when="call",
        sections=sections,
    )
