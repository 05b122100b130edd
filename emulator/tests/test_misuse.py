"""Mistakes that crash, hang or give wrong data on a Mac end with one clear line.

Each case is a function of extension/misuse.mm.
"""

import signal

import pytest

# {name in misuse.mm: words of the line}
EXPECTED = {
    "missing endEncoding": "commit: the compute command encoder of this "
    "command buffer lacks endEncoding",
    "missing endEncoding on an own command buffer": "commit: the blit command "
    "encoder of this command buffer lacks endEncoding",
    "missing endEncoding before an operator": "aten::add_: a compute command "
    "encoder is already encoding to this command buffer",
    "nested encoders": "blit command encoder: a compute command encoder is "
    "already encoding to this command buffer",
    "encoder after commit": "compute command encoder: the command buffer was committed before",
    "encoder after synchronize": "compute command encoder: the command buffer was committed before",
    "use after endEncoding": "setBytes:length:atIndex:: this compute command "
    "encoder was ended by endEncoding before",
    "endEncoding twice": "endEncoding: this compute command encoder was ended",
    "encoder released unended": "a compute command encoder was released without endEncoding",
    "commit twice": "commit: the command buffer was committed before",
    "wait without commit": "waitUntilCompleted: the command buffer was not committed",
    "handler after commit": "addCompletedHandler:: the command buffer was committed before",
    "buffer index 31": "setBuffer:offset:atIndex:: index 31 is not below 31",
    "bytes index 31": "setBytes:length:atIndex:: index 31 is not below 31",
    "threadgroup memory index 31": "setThreadgroupMemoryLength:atIndex:: index 31 is not below 31",
    "setBytes of 4097 bytes": "a length of 4097 bytes is over the limit of 4096",
    "CPU pointer as a buffer": "is not an MTLBuffer of the emulated device; "
    "is it the data pointer of a CPU tensor?",
    "view's data pointer as a buffer": "message -contents: ",
    "view's data pointer in setBuffer": "is byte 8 of MTLBuffer #",
    "freed buffer": "(32 bytes) has been freed",
    "released buffer": "(16 bytes) has been freed",
    "offset beyond the buffer": "offset 20 is beyond the 16 bytes of MTLBuffer",
    "setBufferOffset without a buffer": "no buffer is set at index 7",
    "unknown method of a buffer": "-[MTLBuffer UTF8String]: the emulator's "
    "MTLBuffer has no such method",
    "unknown method of an object": "-[NSConstantString contents]: the object has no such method",
    "unknown method of a class": "+[NSString pipelineNamed:]: the object has no such method",
    "nil pipeline": "setComputePipelineState: got nil",
    "nil function": "newComputePipelineStateWithFunction:error: the function is nil",
    "private contents in newBufferWithBytes": "private storage cannot be filled by the CPU",
    "buffer of no bytes": "a length of 0 bytes is outside 1 .. ",
    "dispatch without a pipeline": "no pipeline is set; call setComputePipelineState: first",
    "1025 threads in a threadgroup": "a threadgroup of 1025 x 1 x 1 threads is outside 1 .. 1024",
    "no threads in a threadgroup": "a threadgroup of 0 x 1 x 1 threads is outside 1 .. 1024",
    "more threads than the pipeline takes": "a threadgroup of 128 x 1 x 1 "
    "threads is outside 1 .. 64, the limit of kernel at_most_64_threads's "
    "pipeline",
    "too much threadgroup memory": "gets 32784 bytes of threadgroup memory "
    "(16384 of them its own), over the limit of 32768",
    "threadgroup memory not a multiple of 16": "the length, 20 bytes, must be a multiple of 16",
    "unbound buffer": "kernel 'scale': no buffer is bound at index 5 (parameter 'factor')",
    "blit beyond the source": "bytes 8 + 16 are beyond the source",
    "blit beyond the destination": "bytes 8 + 16 are beyond the destination",
    "blit of 6 bytes": "size 6 must be multiples of 4",
    "overlapping blit": "source and destination overlap",
    "fill beyond the buffer": "bytes 8 + 16 are beyond MTLBuffer",
    "dispatch_sync on its own queue": 'dispatch_sync on queue "metal gpu '
    'stream" from work that runs on that queue',
    "operator inside dispatch_sync": "aten::add on an mps tensor inside "
    "dispatch_sync on torch's dispatch queue",
    "exception out of dispatch_sync": "a C++ exception left a block given to "
    'queue "metal gpu stream" (the reason)',
    "synchronize while another thread is in the queue": "synchronizing torch's "
    'stream ran outside the dispatch queue "metal gpu stream" on one thread '
    "while another thread was at work in that queue",
    "commit while another thread is in the queue": "committing torch's stream "
    "ran outside the dispatch queue",
    "queue entered while another thread synchronizes": "synchronizing torch's "
    'stream ran outside the dispatch queue "metal gpu stream" on one thread '
    "while this thread started work in that queue",
    "synchronize on two threads": "synchronizing torch's stream ran outside "
    'the dispatch queue "metal gpu stream" on one thread while another thread '
    "did the same",
    "kernel writes past the end": "kernel poke_at wrote past the end of MTLBuffer",
    "host write to recycled memory in flight": "while the device was still at work on its memory",
    "host write to recycled memory that is freed again": "while the device "
    "was still at work on its memory",
    "host write to recycled memory, then a kernel on it": "while the device "
    "was still at work on its memory",
    "host write to recycled memory of an operator": "while the device was "
    "still at work on its memory",
}


def test_every_misuse_has_an_expectation(extension):
    assert sorted(extension.misuses()) == sorted(EXPECTED)


def planted(name):
    """The marks of a case for the table of planted bugs."""
    if "recycled memory" in name:
        return [pytest.mark.planted("write after read on a recycled buffer")]
    if name == "kernel writes past the end":
        return [pytest.mark.planted("out of bounds")]
    if "thread" in name and ("synchroniz" in name or "commit" in name):
        return [pytest.mark.planted("synchronize from two threads")]
    return []


@pytest.mark.parametrize("name", [pytest.param(name, marks=planted(name)) for name in EXPECTED])
def test_misuse(name, in_child):
    child = in_child(f"extension.misuse({name!r})")
    # The kernel itself faults where it follows a pointer that leads nowhere.
    faults = name == "unbound buffer"
    assert child.signal == (signal.SIGSEGV if faults else signal.SIGABRT), child.stderr
    assert len(child.fatal_lines) == 1, child.stderr
    assert EXPECTED[name] in child.fatal_lines[0]


def test_the_same_work_done_right_passes(in_child):
    """The common setting of the cases above is no mistake."""
    child = in_child(
        "x = torch.ones(64, device='mps')\n"
        "y = torch.zeros(64, device='mps')\n"
        "extension.axpy(x, y, 2.0)\n"
        "extension.poke_at(y, 63)\n"
        "extension.hold_queue(1)\n"
        "extension.commit_outside_queue()\n"
        "torch.mps.synchronize()\n"
        "assert extension.read_contents(y) == [2.0] * 63 + [1.0]\n"
    )
    assert child.code == 0, child.stderr
    assert not child.fatal_lines
