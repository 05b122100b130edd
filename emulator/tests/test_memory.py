"""Tests the memory model of src/core/memory.h: handles, copies of buffers, and reuse of memory."""

import gc
import signal
import time

import kernels
import mps_emulator
import pytest
import torch

MPS = "mps"


# ---- handles


@pytest.mark.planted("invalid host access")
@pytest.mark.parametrize(
    "code, said",
    [
        ("torch.ones(8, device='mps'), 0", "MTLBuffer #"),
        ("torch.ones(8, device='mps')[3:], 4", "(32 bytes) at byte +16"),
        ("torch.ones(8, device='mps'), 32", "(32 bytes) at byte +32"),
        ("torch.ones(1 << 20, device='mps'), 4 << 20", "at byte +4194304"),
    ],
)
def test_a_host_access_through_a_handle_faults(code, said, in_child):
    child = in_child(f"extension.dereference_handle({code})")
    assert child.signal == signal.SIGSEGV
    assert len(child.fatal_lines) == 1, child.stderr
    assert "the CPU dereferenced the handle of" in child.fatal_lines[0]
    assert said in child.fatal_lines[0]


def test_a_fault_at_a_freed_handle_is_reported_as_one(in_child):
    child = in_child(
        "import ctypes\n"
        "address = torch.ones(8, device='mps').data_ptr()\n"
        "ctypes.string_at(address, 1)\n"
    )
    assert child.signal == signal.SIGSEGV
    assert "the handle of the freed MTLBuffer #" in child.fatal_lines[0]


def test_faulthandler_still_prints_its_traceback(in_child):
    child = in_child(
        "import faulthandler, ctypes\n"
        "faulthandler.enable()\n"
        "x = torch.ones(8, device='mps')\n"
        "ctypes.string_at(x.data_ptr(), 1)\n"
    )
    assert child.signal == signal.SIGSEGV
    assert "mps emulator: fatal: the CPU dereferenced" in child.stderr
    assert "Fatal Python error: Segmentation fault" in child.stderr


def test_other_segmentation_faults_are_left_alone(in_child):
    child = in_child("import ctypes; ctypes.string_at(8, 1)")
    assert child.signal == signal.SIGSEGV
    assert not child.fatal_lines


def test_a_freed_handle_does_not_come_back_at_once():
    handles = {torch.empty(25, device=MPS).data_ptr() for _ in range(1000)}
    assert len(handles) == 1000


# ---- host addresses as data pointers, because a later release of torch may use them


def test_torchs_header_finds_the_buffer(extension):
    x = torch.ones(8, device=MPS)[3:]
    assert extension.host_address_by_torch(x) == extension.host_address(x)


def test_data_pointers_can_be_host_addresses(in_child):
    child = in_child(
        "import ctypes\n"
        "x = torch.arange(8, dtype=torch.float32, device='mps')[3:]\n"
        "assert extension.host_address_by_torch(x) == x.data_ptr()\n"
        "torch.mps.synchronize()\n"
        "assert ctypes.c_float.from_address(x.data_ptr()).value == 3.0\n"
        "kernels.axpy(x.clone(), x, 1.0)\n"
        "assert torch.equal((x + x).cpu(), x.cpu() * 2)\n",
        MPS_EMULATOR_POINTERS="addresses",
    )
    assert child.code == 0, child.stderr


@pytest.mark.planted("data pointer used as a buffer")
def test_a_message_to_a_host_address_is_reported(in_child):
    child = in_child(
        "extension.host_address(torch.ones(8, device='mps'))", MPS_EMULATOR_POINTERS="addresses"
    )
    assert child.signal == signal.SIGABRT
    [line] = child.fatal_lines
    assert "a message to the data pointer of a tensor on mps" in line
    assert "getMTLBufferStorage()" in line


# ---- the host copy


@pytest.mark.planted("missing synchronize")
@pytest.mark.parametrize("commit", [False, True])
def test_results_of_a_kernel_need_a_wait(commit, extension):
    x = torch.ones(4, device=MPS)
    y = torch.zeros(4, device=MPS)
    torch.mps.synchronize()
    kernels.axpy(x, y, 3.0)
    if commit:  # a commit does not wait
        extension.commit_in_queue()
    assert extension.read_contents(y) == [0.0] * 4
    torch.mps.synchronize()
    assert extension.read_contents(y) == [3.0] * 4


@pytest.mark.planted("missing synchronize")
def test_results_of_an_operator_need_a_wait(extension):
    x = torch.ones(4, device=MPS)
    torch.mps.synchronize()
    assert extension.read_contents(x) == [1.0] * 4
    x.add_(1)
    assert extension.read_contents(x) == [1.0] * 4
    torch.mps.synchronize()
    assert extension.read_contents(x) == [2.0] * 4


@pytest.mark.planted("invalid host access")
def test_the_first_read_without_a_wait_gets_the_poison_byte(extension):
    x = torch.ones(4, device=MPS) * 5
    assert set(extension.host_alias(x).view(torch.uint8).tolist()) == {0xC7}
    torch.mps.synchronize()
    assert extension.read_contents(x) == [5.0] * 4


@pytest.mark.parametrize(
    "wait",
    [
        lambda x, extension: torch.mps.synchronize(),
        lambda x, extension: extension.synchronize(),
        lambda x, extension: torch.accelerator.synchronize(),
        lambda x, extension: x.cpu(),
        lambda x, extension: x[0].item(),
        lambda x, extension: torch.zeros(3).to(MPS),
        lambda x, extension: _wait_for_event(),
    ],
    ids=["synchronize", "in queue", "accelerator", "cpu()", "item()", "to mps", "event"],
)
def test_these_calls_wait_for_the_device(wait, extension):
    x = torch.zeros(4, device=MPS)
    torch.mps.synchronize()
    extension.read_contents(x)
    x.add_(1)
    wait(x, extension)
    assert extension.read_contents(x) == [1.0] * 4


def _wait_for_event():
    event = torch.mps.Event()
    event.record()
    event.synchronize()


def test_host_writes_reach_the_next_kernel(extension):
    x = torch.zeros(4, device=MPS)
    y = torch.zeros(4, device=MPS)
    torch.mps.synchronize()
    extension.write_contents(x, [1.0, 2.0, 3.0, 4.0])
    kernels.axpy(x, y, 1.0)
    torch.mps.synchronize()
    assert extension.read_contents(y) == [1.0, 2.0, 3.0, 4.0]
    # Now x has a copy on the device already.
    extension.write_contents(x, [5.0, 6.0, 7.0, 8.0])
    kernels.axpy(x, y, 1.0)
    torch.mps.synchronize()
    assert extension.read_contents(y) == [6.0, 8.0, 10.0, 12.0]


@pytest.mark.parametrize("elements", [1, 7, 1000, 1 << 20])
def test_a_wait_merges_copies_of_any_size(elements, extension):
    """After a wait, a buffer has what the CPU wrote and what a kernel wrote to other elements."""
    x = torch.zeros(2 * elements, device=MPS)
    torch.mps.synchronize()
    extension.read_contents(x[:1])
    ones = torch.ones(elements, device=MPS)
    kernels.axpy(ones, x[:elements], 1.0)
    extension.write_contents(x[2 * elements - 1 :], [9.0])
    torch.mps.synchronize()
    expected = torch.cat([torch.ones(elements), torch.zeros(elements)])
    expected[-1] = 9.0
    assert torch.equal(extension.host_alias(x), expected)
    assert torch.equal(x.cpu(), expected)


def test_a_host_alias_is_at_the_tensors_host_address(extension):
    x = torch.zeros(1000, device=MPS)[2:]
    torch.mps.synchronize()
    alias = extension.host_alias(x)
    assert alias.data_ptr() == extension.host_address(x)
    alias.fill_(2.0)
    assert x.cpu().tolist() == [2.0] * 998


def test_a_host_alias_keeps_the_memory(extension):
    x = torch.zeros(1000, device=MPS)[2:]
    torch.mps.synchronize()
    alias = extension.host_alias(x)
    alias.fill_(2.0)
    del x
    others = [torch.zeros(1000, device=MPS) for _ in range(10)]
    torch.mps.synchronize()
    assert (alias == 2).all()
    del others


def test_the_host_address_of_a_tensor_does_not_change(extension):
    x = torch.zeros(100, device=MPS)
    before = extension.host_address(x)
    for _ in range(3):
        x.add_(1)
        torch.mps.synchronize()
        assert extension.host_address(x) == before
        assert extension.read_contents(x)[99] == x[99].item()


# ---- copies that do not wait


@pytest.mark.planted("missing synchronize")
def test_non_blocking_copy_to_the_host_needs_a_wait():
    x = torch.ones(4, device=MPS)
    torch.mps.synchronize()
    host = torch.zeros(4)
    host.copy_(x, non_blocking=True)
    assert host.tolist() == [0.0] * 4
    torch.mps.synchronize()
    assert host.tolist() == [1.0] * 4


def test_a_non_blocking_copy_reads_the_host_at_the_wait():
    host = torch.ones(4)
    x = torch.zeros(4, device=MPS)
    torch.mps.synchronize()
    x.copy_(host, non_blocking=True)
    host.fill_(2.0)
    torch.mps.synchronize()
    assert x.tolist() == [2.0] * 4


# ---- reuse of freed memory


def test_freed_memory_is_used_again(extension):
    x = torch.ones(1000, device=MPS)
    torch.mps.synchronize()
    address = extension.host_address(x)
    del x
    y = torch.empty(1000, device=MPS)
    assert extension.host_address(y) == address


def test_memory_that_is_used_again_is_filled_with_the_poison_byte(extension):
    x = torch.ones(1000, device=MPS)
    torch.mps.synchronize()
    del x
    y = torch.empty(1000, device=MPS)
    assert set(extension.host_alias(y).view(torch.uint8).tolist()) == {0xC7}
    assert set(y.cpu().view(torch.uint8).tolist()) == {0xC7}


def test_a_command_keeps_the_memory_it_uses(extension):
    """A kernel reads a buffer's data even if a new tensor already has the buffer's memory."""
    x = torch.ones(64, device=MPS)
    y = torch.zeros(64, device=MPS)
    torch.mps.synchronize()
    extension.write_contents(x, [4.0] * 64)
    kernels.axpy(x, y, 2.0)
    address = extension.host_address(x)
    del x
    # The new tensor takes the freed memory.  host_address() fills the host's copy of this memory
    # with the poison byte.
    recycled = torch.empty(64, device=MPS)
    assert extension.host_address(recycled) == address
    torch.mps.synchronize()
    assert extension.read_contents(y) == [8.0] * 64


def test_a_kernel_reads_host_writes_even_if_the_buffer_is_freed(extension):
    """A kernel reads what the host wrote before the launch, though a new tensor has the memory.

    An operator has used another part of the buffer, so the kernel is not its first user.
    """
    x = torch.zeros(128, device=MPS)
    y = torch.zeros(64, device=MPS)
    torch.mps.synchronize()
    extension.read_contents(x)
    x[:64].add_(1)
    extension.write_contents(x[64:], [5.0] * 64)
    kernels.axpy(x[64:], y, 1.0)
    address = extension.host_address(x)
    del x
    # As in the test above, the host's copy of the memory now has the poison byte.
    recycled = torch.empty(128, device=MPS)
    assert extension.host_address(recycled) == address
    torch.mps.synchronize()
    assert extension.read_contents(y) == [5.0] * 64


def test_empty_cache_gives_memory_back():
    before = torch.mps.driver_allocated_memory()
    x = torch.zeros(1 << 24, device=MPS)
    assert torch.mps.driver_allocated_memory() >= before + (1 << 26)
    del x
    torch.mps.synchronize()
    torch.mps.empty_cache()
    assert torch.mps.driver_allocated_memory() <= before


def test_memory_statistics():
    # A backward thread of autograd may still free memory of earlier tests.
    gc.collect()
    for _ in range(100):
        if torch.mps.current_allocated_memory() == 0:
            break
        time.sleep(0.01)
    torch.mps.empty_cache()
    before = torch.mps.current_allocated_memory()
    x = torch.zeros(1 << 20, dtype=torch.uint8, device=MPS)
    assert torch.mps.current_allocated_memory() >= before + (1 << 20)
    del x
    assert torch.mps.current_allocated_memory() == before
    assert torch.mps.recommended_max_memory() > 1 << 30


def test_out_of_memory(in_child):
    child = in_child(
        "torch.mps.set_per_process_memory_fraction(0.001)\n"
        "try:\n"
        "    torch.empty(1 << 32, dtype=torch.uint8, device='mps')\n"
        "except RuntimeError as error:\n"
        "    assert 'MPS backend out of memory' in str(error), error\n"
        "else:\n"
        "    raise AssertionError('no error')\n"
        "torch.empty(1 << 10, device='mps')\n"
    )
    assert child.code == 0, child.stderr


def test_200_000_live_tensors_that_the_host_has_seen(extension):
    gc.collect()
    tensors = [torch.full((4,), float(i), device=MPS) for i in range(200_000)]
    torch.mps.synchronize()
    assert len({extension.host_address(t) for t in tensors}) == 200_000
    assert torch.stack(tensors[::1000]).sum().item() == 4.0 * sum(range(0, 200_000, 1000))
    assert len({t.data_ptr() for t in tensors}) == 200_000


@pytest.mark.planted("out of bounds")
@pytest.mark.parametrize("elements, threads", [(64, 65), (16, 64), (64, 256)])
def test_an_increment_past_the_end_is_reported(elements, threads, in_child):
    """The emulator notices small changes of guard bytes, near the buffer's end and far past it."""
    child = in_child(
        "library = torch.mps.compile_shader('kernel void increment(device float *x, '\n"
        "    'uint i [[thread_position_in_grid]]) { x[i] += 1; }')\n"
        f"x = torch.zeros({elements}, device='mps')\n"
        f"library.increment(x, threads={threads})\n"
        "torch.mps.synchronize()\n"
    )
    assert child.signal == signal.SIGABRT, child.stderr
    [line] = child.fatal_lines
    assert "kernel increment wrote past the end of MTLBuffer #" in line
    assert f"({4 * elements} bytes): byte +{4 * elements}" in line


@pytest.mark.planted("out of bounds")
@pytest.mark.parametrize("element", [20, 1 << 20])
def test_guard_mode_ends_a_kernel_at_the_access(element, in_child):
    child = in_child(
        "x = torch.zeros(20, device='mps')\n"
        "kernels.poke_at(x, 19)\n"
        "torch.mps.synchronize()\n"
        "print(x[19].item(), flush=True)\n"
        f"kernels.poke_at(x, {element})\n"
        "torch.mps.synchronize()\n",
        MPS_EMULATOR_GUARD="1",
    )
    assert child.stdout == "1.0\n"
    assert child.signal == signal.SIGSEGV


@pytest.mark.planted("out of bounds")
def test_guard_mode_faults_at_the_first_byte_beyond_a_buffer(in_child):
    child = in_child(
        "x = torch.zeros(20, device='mps')\n"
        "torch.mps.synchronize()\n"
        "extension.write_contents(x, [1.0] * 20)\n"
        "print(x.sum().item(), flush=True)\n"
        "extension.write_contents(x[19:], [1.0, 2.0])\n",
        MPS_EMULATOR_GUARD="1",
    )
    assert child.stdout == "20.0\n"
    assert child.signal == signal.SIGSEGV


def test_the_counter_upkeep_has_the_time_for_a_buffers_second_copy(extension):
    x = torch.zeros(1 << 22, device=MPS)
    torch.mps.synchronize()
    with mps_emulator.counters() as first:
        extension.host_alias(x)
    with mps_emulator.counters() as again:
        extension.host_alias(x)
    # On any machine, a copy of 16 MB takes longer than a microsecond.
    assert first.upkeep > 1000
    assert again.upkeep == 0
    # The time that an operator needs for copies is not upkeep: profilers count it as the
    # operator's time.
    with mps_emulator.counters() as operators:
        x.add_(1).cpu()
    assert operators.upkeep == 0
