"""Tests that the emulator reports races of commands and uses of freed objects.

Each case is a function of extension/commands.mm.  A case has a wrong form, which the emulator must
report, and a correct form.
"""

import mps_emulator
import pytest

CHECK = {"MPS_EMULATOR_CHECK_RACES": "1"}
GUARD = {"MPS_EMULATOR_GUARD": "1"}
planted = pytest.mark.planted
RACE = "a race between two command queues on MTLBuffer #"

# {name of a case: (mark, environment variables, parts of the message)}.
CASES = {
    "concurrent dispatches": (
        planted("missing barrier"),
        CHECK,
        [
            "data race between two dispatches of a concurrent encoder on byte "
            "252 of buffer 0 ('x')",
            "kernel 'increment', thread 63",
            "memoryBarrierWithScope:",
        ],
    ),
    "another queue reads what torch wrote": (
        planted("race between queues"),
        CHECK,
        [
            RACE,
            'aten::add_ on queue "torch\'s stream" writes it, '
            'kernel reverse on queue "own" reads it',
        ],
    ),
    "torch reads what another queue writes": (
        planted("race between queues"),
        CHECK,
        [
            RACE,
            'aten::add on queue "torch\'s stream" reads it, '
            'kernel increment on queue "own" writes it',
        ],
    ),
    "torch reuses memory another queue reads": (
        planted("use after free"),
        CHECK,
        [
            "a race between two command queues on the memory of a freed tensor: ",
            'on queue "torch\'s stream" uses it as MTLBuffer #',
            'kernel reverse on queue "own" as MTLBuffer #',
        ],
    ),
    "two queues on halves of a buffer": (
        planted("race between queues"),
        CHECK,
        [
            RACE,
            "(256 bytes), at byte 128: ",
            'kernel increment on queue "own" writes it, '
            'kernel increment on queue "other" writes it',
        ],
    ),
    "torch and a queue on halves of a buffer": (
        planted("race between queues"),
        CHECK,
        [RACE, "(256 bytes), at byte 128: ", 'aten::add_ on queue "torch\'s stream" writes it'],
    ),
    "blits into one half and from the other half": (
        planted("race between queues"),
        CHECK,
        [RACE, "(256 bytes), at byte 128: ", 'blit copy on queue "own" writes it'],
    ),
    "wait for the last queue of a chain": (
        planted("race between queues"),
        CHECK,
        [RACE, 'on queue "torch\'s stream" writes it'],
    ),
    "two encoders on halves without a fence": (
        planted("missing fence"),
        CHECK,
        [
            "a race between two encoders on MTLBuffer #",
            "(256 bytes), at byte 128: ",
            "kernel increment writes it, kernel increment of another encoder writes it",
        ],
    ),
    "two queues and an event": (
        planted("race between queues"),
        CHECK,
        [RACE, 'kernel increment on queue "torch\'s stream" writes it'],
    ),
    "wait for another value of an event": (
        planted("race between queues"),
        CHECK,
        [RACE, 'kernel reverse on queue "own" reads it'],
    ),
    "blit of a buffer that Metal does not track": (
        planted("missing fence"),
        CHECK,
        [
            "a race between two encoders on MTLBuffer #",
            "kernel increment writes it, blit copy of another encoder reads it",
        ],
    ),
    "fence that no encoder has updated": (
        planted("missing fence"),
        CHECK,
        [
            "a race between two encoders on MTLBuffer #",
            "kernel increment writes it, kernel increment of another encoder",
        ],
    ),
    "host writes to a buffer in flight": (
        planted("host write in flight"),
        CHECK,
        [
            "kernel 'reverse': the host wrote to byte 12 of buffer 0 ('x') "
            "after the commit of the command buffer"
        ],
    ),
    "host writes to a byte in flight": (
        planted("host write in flight"),
        CHECK,
        ["kernel 'copy_even_bytes': the host wrote to byte 12 of buffer 0 ('x') after the commit"],
    ),
    "threadgroup memory too short": (
        planted("out of bounds"),
        {},
        [
            "kernel 'through_threadgroup', threadgroup (0, 0, 0): a thread wrote to "
            "byte 64 of the threadgroup memory at index 0, which has 64 bytes"
        ],
    ),
    # In aten/src/ATen/mps/MPSStream.mm of torch 2.13, commandEncoder() makes an encoder at its
    # first call and returns the same encoder later.  endKernelCoalescing() ends this encoder.  Of
    # the functions that programs may call, only get_command_buffer(), commit() and synchronize()
    # call endKernelCoalescing().
    "encoder beside torch's own": (
        planted("encoder beside torch's own"),
        {},
        [
            "compute command encoder: torch's own encoder is open on this "
            "command buffer: aten::add_ ran after"
        ],
    ),
    "buffer released without retained references": (
        planted("use after free"),
        {},
        ["kernel reverse: MTLBuffer #", "was freed before the command ran"],
    ),
    "buffer of an argument buffer without useResource": (
        planted("missing useResource"),
        {},
        ["kernel 'increment_by_address' accessed byte 0 of MTLBuffer #", "Call useResource:usage:"],
    ),
    "write to contents of a freed buffer": (
        planted("use after free"),
        GUARD,
        ["used [buffer contents], at byte +0, of an MTLBuffer that has been"],
    ),
    "write beyond the end of contents": (
        planted("invalid host access"),
        GUARD,
        ["accessed byte +256 of the contents of an MTLBuffer that ends at 256"],
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=mark) for name, (mark, *_) in CASES.items()]
)
def test_the_wrong_form_is_reported(name, in_child):
    _, environment, expected = CASES[name]
    child = in_child(f"extension.between_commands({name!r}, False)", **environment)
    assert child.signal, child.stderr
    assert len(child.fatal_lines) == 1, child.stderr
    for text in expected:
        assert text in child.fatal_lines[0]


@pytest.mark.parametrize("name", [*CASES, "concurrent dispatches on two buffers"])
def test_the_correct_form_passes(name, in_child):
    child = in_child(f"extension.between_commands({name!r}, True)", **CHECK, **GUARD)
    assert child.code == 0, child.stderr
    assert not child.fatal_lines


def test_the_watchdog_ends_a_kernel_that_never_ends(in_child):
    child = in_child(
        "library = torch.mps.compile_shader('''\n"
        "#include <metal_stdlib>\n"
        "using namespace metal;\n"
        "kernel void meet(device atomic_uint *count, uint n\n"
        "    [[threadgroups_per_grid]]) {\n"
        "  atomic_fetch_add_explicit(count, 1u, memory_order_relaxed);\n"
        "  while (atomic_load_explicit(count, memory_order_relaxed) < n) {}\n"
        "}''')\n"
        "library.meet(torch.zeros(1, dtype=torch.int32, device='mps'),\n"
        "             threads=64, group_size=32)\n"
        "torch.mps.synchronize()\n",
        MPS_EMULATOR_WATCHDOG="2",
    )
    [line] = child.fatal_lines
    assert "kernel 'meet', threadgroup (0, 0, 0): the threadgroup has run for 2 s" in line


@pytest.mark.parametrize(
    "statement, expected",
    [
        ("x[i] = y[i + 4];", "accessed memory outside of its buffers"),
        ("x[i] = 7 / y[i];", "divided an integer by zero"),
    ],
)
def test_a_fault_names_its_kernel(in_child, statement, expected):
    child = in_child(
        "library = torch.mps.compile_shader('''\n"
        "kernel void fault(device int *x, device const int *y,\n"
        "                  uint i [[thread_position_in_grid]]) {\n"
        f"  {statement}\n"
        "}''')\n"
        "x = torch.zeros(4, dtype=torch.int32, device='mps')\n"
        "library.fault(x, x.clone())\n"
        "torch.mps.synchronize()\n",
        MPS_EMULATOR_GUARD="1",
    )
    assert child.signal
    [line] = child.fatal_lines
    assert "kernel 'fault'" in line and expected in line


def test_a_variable_limits_the_threads_of_pipelines(in_child):
    child = in_child(
        "library = torch.mps.compile_shader(\n"
        "    'kernel void run(device int *x) { x[0] = 1; }')\n"
        "assert library.run.max_threads_per_threadgroup == 384\n"
        "x = torch.zeros(4, dtype=torch.int32, device='mps')\n"
        "library.run(x, threads=384, group_size=384)\n"
        "try:\n"
        "    library.run(x, threads=385, group_size=385)\n"
        "except ValueError as error:\n"
        "    assert 'exceeds 384 limit' in str(error)\n"
        "else:\n"
        "    raise AssertionError\n",
        MPS_EMULATOR_MAX_THREADS="384",
    )
    assert child.code == 0, child.stderr


@pytest.mark.parametrize("variable", ["MPS_EMULATOR_MAX_THREADS", "MPS_EMULATOR_WATCHDOG"])
def test_a_limit_that_is_no_number_is_refused(in_child, variable):
    child = in_child(
        "library = torch.mps.compile_shader(\n"
        "    'kernel void run(device int *x) { x[0] = 1; }')\n"
        "library.run(torch.zeros(1, dtype=torch.int32, device='mps'))\n"
        "torch.mps.synchronize()\n",
        **{variable: "2s"},
    )
    [line] = child.fatal_lines
    assert f"{variable} is '2s': set it to a number" in line


@pytest.mark.planted("autorelease without a pool")
def test_autoreleased_objects_without_a_pool_are_counted(extension):
    """A queue returns autoreleased command buffers, so only a pool frees the command buffers."""
    with mps_emulator.counters() as counted:
        extension.make_command_buffers(3, False)
    assert counted.autorelease_leaks == 3
    with mps_emulator.counters() as counted:
        extension.make_command_buffers(3, True)
    assert counted.autorelease_leaks == 0
