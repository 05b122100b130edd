"""Tests that a mistake ends the process with one line that names the mistake.

On a Mac, such a mistake leads to a crash, a hang or wrong data.
"""

import ast
import pathlib
import re
import signal

import pytest
import torch

KNOWS_QUEUES = hasattr(torch.mps, "Stream")  # torch 2.15 or newer
SOURCE = pathlib.Path(__file__).parent / "extension" / "misuse.mm"
# The messages of the cases in misuse.mm.
MESSAGES = [
    ast.literal_eval(f"({text})")
    for text in re.findall(
        r'^      \{((?:"(?:\\.|[^"\\])*"\s*)+),\s*\[\]', SOURCE.read_text(), re.MULTILINE
    )
    if not (KNOWS_QUEUES and "synchronizing torch's stream ran outside" in text)
]


def test_every_case_is_listed(extension):
    assert sorted(extension.misuses()) == sorted(MESSAGES)


def assert_ends_with(child, message):
    # A kernel without its buffer faults at the access, so the signal is SIGSEGV.
    faults = "no buffer is bound at index 5" in message
    assert child.signal == (signal.SIGSEGV if faults else signal.SIGABRT), child.stderr
    assert len(child.fatal_lines) == 1, child.stderr
    assert message in child.fatal_lines[0]


def marks(message):
    two_threads = pytest.mark.planted("synchronize from two threads")
    return [two_threads] if message.startswith("synchronizing torch's") else []


@pytest.mark.parametrize("message", [pytest.param(m, marks=marks(m)) for m in MESSAGES])
def test_misuse(message, in_child):
    assert_ends_with(in_child(f"extension.misuse({message!r})"), message)


@pytest.mark.skipif(KNOWS_QUEUES, reason="from 2.15 on, torch itself enters the queue")
@pytest.mark.planted("synchronize from two threads")
@pytest.mark.parametrize(
    "call, message",
    [
        (
            "torch.mps.synchronize()",
            "synchronizing torch's stream ran outside the dispatch queue "
            '"metal gpu stream" on one thread while another thread was at work in that queue',
        ),
        (
            "extension.commit_outside_queue()",
            "committing torch's stream ran outside the dispatch queue",
        ),
    ],
)
def test_a_call_while_another_thread_is_in_the_queue(call, message, in_child):
    child = in_child(
        "import threading, time\n"
        "torch.mps.synchronize()\n"
        "threading.Thread(target=extension.hold_queue, args=(2000,)).start()\n"
        "time.sleep(0.2)\n" + call
    )
    assert_ends_with(child, message)


@pytest.mark.skipif(not KNOWS_QUEUES, reason="before 2.15, torch does not check the caller's queue")
@pytest.mark.parametrize(
    "call, message",
    {
        "commit_outside_queue": "torch::mps::commit() outside of the dispatch queue",
        "synchronize_in_queue": 'dispatch_sync on queue "metal gpu stream" from work that runs on',
    }.items(),
)
def test_torch_checks_the_callers_queue(call, message, in_child):
    assert_ends_with(in_child(f"extension.{call}()"), message)


@pytest.mark.parametrize("in_queue", [False, True])
def test_the_encoder_of_torchs_stream_belongs_to_its_queue(in_queue, in_child):
    """commandEncoder() outside of the queue fails only with MPS_EMULATOR_ASSERT_QUEUE=1.

    No release of torch makes this check by itself yet.
    """
    take = f"extension.take_encoder({in_queue})"
    assert in_child(take).code == 0
    child = in_child(take, MPS_EMULATOR_ASSERT_QUEUE="1")
    assert (child.code == 0) == in_queue
    reported = "commandEncoder() must be called on the stream queue" in child.stderr
    assert reported != in_queue, child.stderr


@pytest.mark.planted("encoder beside torch's own")
def test_a_variable_makes_every_torch_check_the_queue(in_child):
    child = in_child("extension.commit_outside_queue()", MPS_EMULATOR_ASSERT_QUEUE="1")
    assert_ends_with(child, "torch::mps::commit() outside of the dispatch queue")


@pytest.mark.planted("out of bounds")
def test_a_kernel_that_writes_past_the_end_is_reported(in_child):
    child = in_child("kernels.poke_at(torch.zeros(25, device='mps'), 25)\ntorch.mps.synchronize()")
    assert_ends_with(child, "kernel poke_at wrote past the end of MTLBuffer")


FILL = "extension.write_contents(recycled, [5.0] * 64)\n"


@pytest.mark.planted("host write to reused memory in flight")
@pytest.mark.parametrize(
    "use, then",
    {
        "a kernel": ("kernels.axpy(x, y, 2.0)", FILL + "torch.mps.synchronize()"),
        "another kernel": (
            "kernels.axpy(x, y, 2.0)",
            FILL + "kernels.axpy(recycled, y, 2.0); del recycled; torch.mps.synchronize()",
        ),
        "an operator": ("y = x + 1", FILL + "torch.mps.synchronize()"),
        "freed again": ("y = x + 1", FILL + "del recycled"),
    }.values(),
)
def test_a_host_write_to_reused_memory_in_flight_is_reported(use, then, in_child):
    child = in_child(
        "x, y = torch.ones(64, device='mps'), torch.zeros(64, device='mps')\n"
        f"torch.mps.synchronize()\n{use}\n"
        f"del x\nrecycled = torch.empty(64, device='mps')\n{then}"
    )
    assert_ends_with(child, "while a command in flight was using the same memory")


# A program may keep memory of its own, and use it again while the tensor's storage lives.
@pytest.mark.planted("host write under an operator")
@pytest.mark.parametrize("use", ["y = x + 1", "x.add_(1)", "y = x[60:] + 1"])
@pytest.mark.parametrize("then", ["torch.mps.synchronize()", "y = x * 2", "x.tolist()"])
def test_a_host_write_under_an_operator_is_reported(use, then, in_child):
    child = in_child(
        "x = torch.ones(64, device='mps')\n"
        "torch.mps.synchronize()\nextension.host_address(x)\n"
        f"{use}\nextension.write_contents(x, [5.0] * 64)\n{then}"
    )
    assert_ends_with(child, "while an operator in flight uses this byte")


@pytest.mark.parametrize(
    "use, then",
    [
        ("y = x + 1; torch.mps.synchronize()", "y = x * 2"),
        ("y = (x + 1).tolist()", "y = x * 2"),
        ("y = x[64:] + 1", "torch.mps.synchronize()"),
        ("pass", "y = x * 2; torch.mps.synchronize()"),
    ],
)
def test_the_host_may_write_what_no_operator_in_flight_uses(use, then, in_child):
    child = in_child(
        "x = torch.ones(128, device='mps')\n"
        "torch.mps.synchronize()\nextension.host_address(x)\n"
        f"{use}\nextension.write_contents(x[:64], [5.0] * 64)\n{then}\n"
        "assert extension.read_contents(x) == [5.0] * 64 + [1.0] * 64"
    )
    assert child.code == 0, child.stderr


def test_the_calls_of_the_cases_above_pass_when_used_correctly(in_child):
    """If a program makes the calls of the cases above correctly, the emulator reports nothing."""
    child = in_child(
        "x = torch.ones(64, device='mps')\n"
        "y = torch.zeros(64, device='mps')\n"
        "kernels.axpy(x, y, 2.0)\n"
        "kernels.poke_at(y, 63)\n"
        "extension.hold_queue(1)\n"
        + ("" if KNOWS_QUEUES else "extension.commit_outside_queue()\n")
        + "extension.synchronize()\n"
        "torch.mps.synchronize()\n"
        "assert extension.read_contents(y) == [2.0] * 63 + [1.0]\n"
    )
    assert child.code == 0, child.stderr
    assert not child.fatal_lines
