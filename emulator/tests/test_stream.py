"""Tests torch's streams: counters, waits, events, and work of several threads."""

import contextlib
import functools
import threading

import kernels
import mps_emulator
import pytest
import torch

MPS = "mps"
KNOWS_QUEUES = hasattr(torch.mps, "Stream")  # torch 2.15 or newer


# ---- counters


def test_bytes_of_copies_are_counted():
    x = torch.zeros(10)
    with mps_emulator.counters() as counted:
        y = x.to(MPS)
        z = y.clone()
        z.cpu()
        z[0].item()
    assert counted.host_to_device_bytes == 40
    assert counted.device_to_host_bytes == 44


def test_a_copy_does_not_count_as_an_operator():
    with mps_emulator.counters() as counted:
        torch.zeros(10).to(MPS).clone().cpu()
    assert counted.operators == 0


def test_a_copy_from_or_to_the_host_waits():
    x = torch.zeros(10)
    with mps_emulator.counters() as counted:
        y = x.to(MPS)
        y.clone()
        y.cpu()
        y[0].item()
    assert counted.waits_with_work == 3


def test_operators_are_counted():
    x = torch.zeros(10, device=MPS)
    with mps_emulator.counters() as counted:
        x.mul(2).add_(1)
        x.view(2, 5).t()
    assert counted.operators == 2
    assert counted.host_to_device_bytes + counted.device_to_host_bytes == 0


def test_dispatches_and_waits_are_counted():
    x, y = torch.ones(512, device=MPS), torch.zeros(512, device=MPS)
    torch.mps.synchronize()
    with mps_emulator.counters() as counted:
        kernels.axpy(x, y, 256.0)
        kernels.fill_with_index(torch.empty(8, dtype=torch.int32, device=MPS))
        assert counted.dispatches == 0
        torch.mps.synchronize()
        torch.mps.synchronize()
    assert counted.dispatches == 2
    assert counted.waits_with_work == 1
    assert counted.operators == 0
    assert y.tolist() == [256.0] * 512


# ---- waiting


def test_a_wait_for_an_idle_device_is_fast(in_child):
    """A wait takes less than 200 ns in C++, in the best of five runs.

    Other processes use the CPU too, so some runs may be slow.  The test runs in a new process,
    which has only the default stream: from torch 2.15 on, a wait enters the queue of each stream.
    """
    child = in_child("print(min(extension.nanoseconds_of_idle_wait(20_000) for _ in range(5)))")
    assert float(child.stdout) < 200, child.stderr


# ---- failures


def test_a_command_buffer_can_be_made_to_fail(extension):
    x = torch.full((4,), 7, dtype=torch.int32, device=MPS)
    torch.mps.synchronize()
    reported = KNOWS_QUEUES and pytest.raises(
        RuntimeError, match="MPS command buffer execution failed: Caused GPU Timeout Error"
    )
    with mps_emulator.failing_command_buffer(2):
        assert extension.status_after_dispatch(torch.zeros_like(x))[0] == 4
        x.fill_(7)  # an operator, not a kernel of the program, so it does not count
        with reported or contextlib.nullcontext():
            status, text = extension.status_after_dispatch(x)
            assert (status, text[:25]) == (5, "Caused GPU Timeout Error ")
    assert x.tolist() == [7] * 4
    assert extension.status_after_dispatch(x)[0] == 4
    assert x.tolist() == [0, 1, 2, 3]


# ---- the streams of torch 2.15

needs_streams = pytest.mark.skipif(
    not KNOWS_QUEUES, reason=f"torch {torch.__version__} has one stream"
)


@needs_streams
def test_streams():
    first, second = torch.mps.Stream(), torch.mps.Stream()
    assert first != second != torch.mps.default_stream() == torch.mps.current_stream()
    x = torch.zeros(4, device=MPS)
    torch.mps.synchronize()
    with torch.mps.stream(first):
        assert torch.mps.current_stream() == first
        y = x + 1
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.mps.current_stream()))
        thread.start()
        thread.join()
    assert seen == [torch.mps.default_stream()]
    assert torch.mps.current_stream() == torch.mps.default_stream()
    first.synchronize()
    assert y.tolist() == [1] * 4


@needs_streams
def test_the_pool_has_32_streams():
    ids = {torch.mps.Stream().stream_id for _ in range(50)}
    assert ids == set(range(1, 33))


def on_two_streams():
    """Encodes x += 1 on a new stream and y += 1 on the default stream.

    Returns:
      The new stream, x and y.
    """
    one = torch.ones(4, device=MPS)
    x, y = torch.zeros(4, device=MPS), torch.zeros(4, device=MPS)
    torch.mps.synchronize()
    stream = torch.mps.Stream()
    with torch.mps.stream(stream):
        kernels.axpy(one, x, 1.0)
    kernels.axpy(one, y, 1.0)
    return stream, x, y


@needs_streams
def test_synchronize_of_a_stream_waits_only_for_this_stream(extension):
    stream, x, y = on_two_streams()
    stream.synchronize()
    assert extension.read_contents(x) == [1.0] * 4
    assert extension.read_contents(y) == [0.0] * 4


@needs_streams
def test_synchronize_waits_for_all_streams(extension):
    _, x, y = on_two_streams()
    torch.mps.synchronize()
    assert extension.read_contents(x) == [1.0] * 4
    assert extension.read_contents(y) == [1.0] * 4


@needs_streams
def test_memory_that_one_stream_frees_does_not_go_to_another():
    one, freed = torch.ones(4, device=MPS), torch.zeros(4, device=MPS)
    torch.mps.synchronize()
    kernels.axpy(one, freed, 1.0)
    del freed  # The kernel that uses the memory has not run yet.
    with torch.mps.stream(torch.mps.Stream()):
        x = torch.zeros(4, device=MPS)
    torch.mps.synchronize()
    assert x.tolist() == [0.0] * 4


@needs_streams
def test_an_event_orders_two_streams(in_child):
    """With the event there is no race.  Without the event, the emulator reports a race."""
    program = (
        "x = torch.zeros(64, device='mps')\n"
        "torch.mps.synchronize()\n"
        "first, second = torch.Stream('mps'), torch.Stream('mps')\n"
        "torch.accelerator.set_stream(first)\n"
        "y = x + 1\n"
        "event = first.record_event()\n"
        "torch.accelerator.set_stream(second)\n"
        "{wait}\n"
        "z = y + 1\n"
        "assert z.tolist() == [2.0] * 64\n"
    )
    right = in_child(program.format(wait="second.wait_event(event)"), MPS_EMULATOR_CHECK_RACES="1")
    assert right.code == 0, right.stderr
    wrong = in_child(program.format(wait=""), MPS_EMULATOR_CHECK_RACES="1")
    assert wrong.fatal_lines, wrong.stderr


def test_exception_through_dispatch_sync_with_rethrow(extension):
    with pytest.raises(RuntimeError, match="thrown inside the queue"):
        extension.throw_through_rethrow()
    torch.zeros(1, device=MPS).item()


# ---- events


def test_events():
    start = torch.mps.Event(enable_timing=True)
    end = torch.mps.Event(enable_timing=True)
    x = torch.ones(100, device=MPS)
    start.record()
    for _ in range(100):
        x = x + 1
    end.record()
    assert not end.query()
    polls = 0
    while not end.query():
        polls += 1
    assert polls <= 1
    end.synchronize()
    assert 0 < start.elapsed_time(end) < 10_000


def test_an_event_that_was_never_recorded_is_done():
    event = torch.mps.Event(enable_timing=True)
    assert event.query()
    event.synchronize()
    with pytest.raises(RuntimeError, match="must be recorded"):
        event.elapsed_time(torch.mps.Event(enable_timing=True))


def test_a_generic_event():
    event = torch.Event(MPS, enable_timing=True)
    event.record()
    event.synchronize()
    assert event.query()


def test_the_stream_of_the_accelerator():
    assert torch.accelerator.current_stream().device.type == MPS


# ---- threads


def test_several_threads_use_the_queue(extension, in_threads):
    def work(index):
        x = torch.ones(64, device=MPS)
        y = torch.zeros(64, device=MPS)
        for _ in range(50):
            kernels.axpy(x, y, 1.0)
            extension.synchronize()
        assert extension.read_contents(y) == [50.0] * 64

    in_threads([functools.partial(work, index) for index in range(4)])


def test_allocation_on_several_threads(extension, in_threads):
    def work(index):
        for i in range(2000):
            x = torch.empty(1 + i % 300, device=MPS)
            extension.write_contents(x[:1], [float(index)])
            assert extension.read_contents(x[:1]) == [float(index)]

    in_threads([functools.partial(work, index) for index in range(4)])


def test_operators_do_not_take_the_gil_inside_of_the_queue(in_threads):
    """If an operator takes the GIL inside of the queue, this test ends in a deadlock.

    torch holds the GIL while `tensor[i] = number` waits for the queue.
    """

    def assign(i):
        x = torch.zeros(4, device="mps")
        x[1] = i
        assert x.tolist() == [0, i, 0, 0]

    def read(i):
        assert torch.full((1,), i, device="mps").item() == i

    def copy(i):
        assert torch.full((2,), i, device="mps").cpu().tolist() == [i, i]

    def compute(i):
        x = torch.full((2,), i, device="mps")
        assert (x + x)[0] == 2 * i

    def repeated(body):
        for i in range(300):
            body(i)

    in_threads([functools.partial(repeated, body) for body in [assign, read, copy, compute] * 2])


def test_backward_runs_on_autograds_thread():
    x = torch.ones(4, device=MPS, requires_grad=True)
    thread_ids = []
    x.register_hook(lambda grad: thread_ids.append(threading.get_ident()))
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0] * 4
    assert thread_ids and thread_ids[0] != threading.get_ident()


def test_a_process_can_use_the_device_after_it_has_forked(in_child):
    done = in_child(
        "import os\n"
        "x = torch.ones(4, device='mps')\n"
        "torch.mps.synchronize()\n"
        "if os.fork() == 0: os._exit(0)\n"
        "os.wait()\n"
        "print((x + 1).sum().item())\n"
    )
    assert done.stdout == "8.0\n", done.stderr
