"""Tests kernels of a .metallib: the container, the functions of AIR, and the rules of Metal."""

import air
import numpy as np
import pytest
from metal import CompileError, Fatal, floats, uint
from mps_emulator.msl.air import metallib, module, threadgroup_variables
from mps_emulator.msl.air.constant_memory import move_constants
from mps_emulator.msl.errors import ToolError
from mps_emulator.msl.toolchain import find_clang


def kernel(body, declarations="", types=("ptr addrspace(1)", "i32"), arguments=""):
    """Returns the text of a kernel `k` with a buffer of floats %x and the thread's index %i."""
    metadata = (
        '!3 = !{i32 0, !"air.buffer", !"air.location_index", i32 0, i32 1, !"air.read_write",'
        ' !"air.address_space", i32 1, !"air.arg_type_size", i32 4, !"air.arg_type_align_size",'
        ' i32 4, !"air.arg_type_name", !"float", !"air.arg_name", !"x"}\n'
        f'!4 = !{{i32 1, !"air.{arguments or "thread_position_in_grid"}", !"air.arg_type_name",'
        ' !"uint", !"air.arg_name", !"i"}\n'
    )
    return (
        f"{declarations}\ndefine void @k({types[0]} %x, {types[1]} %i) {{\n{body}\nret void\n}}\n"
        f"!air.kernel = !{{!0}}\n!0 = !{{ptr @k, !1, !2}}\n!1 = !{{}}\n!2 = !{{!3, !4}}\n{metadata}"
    )


POINTER = "%p = getelementptr float, ptr addrspace(1) %x, i32 %i\n"
LOAD = POINTER + "%v = load float, ptr addrspace(1) %p\n"
STORE = "\nstore float %r, ptr addrspace(1) %p"


def run(metal, text, x, threads, group):
    metal.load(air.metallib({"k": text}), ["k"]).run("k", [x], threads, group)


# ---- The container


def test_the_container_is_read():
    content = air.metallib({"scale": air.SCALE, "k": kernel(LOAD + "%r = fneg float %v" + STORE)})
    library = metallib.Metallib(content)
    assert library.kernels == ["scale", "k"] and library.air_version("k") == (2, 6)
    assert bytes(library.bitcode("k"))[:2] == b"BC" and library.content == content
    inside = metallib.find(b"MTLB, but no container" + content + b"MTLB")
    assert [found.kernels for found in inside] == [["scale", "k"]]
    assert inside[0].content == content


def test_a_damaged_container_is_an_error():
    content = air.metallib({"scale": air.SCALE})
    for damaged in (b"", b"MTLX" + content[4:], content[:60], content[:100]):
        with pytest.raises(ToolError):
            metallib.Metallib(damaged)


def test_the_text_tells_arguments_and_functions():
    read = module.Module(module.disassemble(air.bitcode(air.SCALE), find_clang()))
    assert [(a.kind, a.type) for a in read.arguments] == [
        ("buffer", "ptr addrspace(1)"),
        ("buffer", "ptr addrspace(2)"),
        ("thread_position_in_grid", "i32"),
    ]
    assert read.arguments[1].fields["location_index"] == 1
    assert read.arguments[1].fields["buffer_size"] == 4
    [declared] = read.declarations()
    assert (declared.name, declared.result, declared.parameters) == (
        "air.fabs.f32",
        "float",
        ["float"],
    )
    assert "nounwind" in declared.attributes


# ---- Functions


def test_a_kernel_runs(metal):
    x, s = floats(1, -2, 3), floats(2)
    metal.load(air.metallib({"scale": air.SCALE}), ["scale"]).run("scale", [x, s], 3, 2)
    assert x.tolist() == [2, 4, 6]


def test_the_cache_may_be_on_another_file_system(metal, tmp_path, monkeypatch):
    monkeypatch.setenv("MPS_EMULATOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", "/dev/shm")  # this is memory, and so never on a disk
    x = floats(0)
    # This process must not have loaded the library before.
    run(metal, kernel(POINTER + "store float 7.0, ptr addrspace(1) %p"), x, 1, 1)
    assert x.tolist() == [7] and list(tmp_path.glob("air-*.bc"))


def test_a_function_of_vectors_works_for_each_component(metal):
    text = kernel(
        POINTER.replace("float,", "<2 x float>,") + "%v = load <2 x float>, ptr addrspace(1) %p\n"
        "%r = tail call <2 x float> @air.fmax.v2f32(<2 x float> %v, <2 x float> zeroinitializer)\n"
        "store <2 x float> %r, ptr addrspace(1) %p",
        "declare <2 x float> @air.fmax.v2f32(<2 x float>, <2 x float>)",
    )
    x = floats(1, -1, -2, 2)
    run(metal, text, x, 2, 2)
    assert x.tolist() == [1, 0, 0, 2]


def test_a_simdgroup_function_waits_for_the_other_lanes(metal, schedule):
    text = kernel(
        LOAD + "%r = tail call float @air.simd_sum.f32(float %v)" + STORE,
        "declare float @air.simd_sum.f32(float)",
    )
    for order in ("forward", "reverse"):
        schedule(order)
        x = np.arange(64, dtype=np.float32)
        run(metal, text, x, 64, 64)
        assert x.tolist() == [496.0] * 32 + [1520.0] * 32


def test_atomic_operations(metal):
    text = kernel(
        "%old = call i32 @air.atomic.global.add.u.i32(ptr addrspace(1) %x, i32 %i, i32 0, i32 2,"
        " i1 true)",
        "declare i32 @air.atomic.global.add.u.i32(ptr addrspace(1), i32, i32, i32, i1)",
    )
    x = uint(5)
    run(metal, text, x, 10, 5)
    assert x.tolist() == [50]


def test_a_vector_of_the_threads_place(metal):
    text = kernel(
        "%a = extractelement <2 x i16> %i, i64 0\n%b = extractelement <2 x i16> %i, i64 1\n"
        "%c = mul i16 %b, 3\n%n = add i16 %a, %c\n%f = uitofp i16 %n to float\n"
        "%p = getelementptr float, ptr addrspace(1) %x, i16 %n\n"
        "store float %f, ptr addrspace(1) %p",
        types=("ptr addrspace(1)", "<2 x i16>"),
    )
    x = np.zeros(6, np.float32)
    run(metal, text, x, (3, 2), (2, 2))
    assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_what_the_emulator_lacks_is_named(metal):
    text = kernel(
        LOAD + "%r = call float @air.what.f32(float %v)" + STORE,
        "declare float @air.what.f32(float)",
    )
    with pytest.raises(CompileError, match=r"the emulator lacks functions of AIR: air\.what\.f32"):
        metal.load(air.metallib({"k": text}), ["k"])
    text = kernel("", arguments="amplification_id")
    with pytest.raises(CompileError, match="arguments of the kind amplification_id"):
        metal.load(air.metallib({"k": text}), ["k"])
    with pytest.raises(CompileError, match="has no kernel 'other'"):
        metal.load(air.metallib({"scale": air.SCALE}), ["other"])


# ---- Pointers to constant memory


@pytest.mark.parametrize(
    "lines",
    [
        # The pointer of the loop is computed from itself.
        [
            "%q = phi ptr addrspace(2) [ %c, %a ], [ %n, %b ]",
            "%n = getelementptr float, ptr addrspace(2) %q, i32 1",
            "%v = load float, ptr addrspace(2) %n",
        ],
        ["%q = phi ptr addrspace(2) [ %c, %a ], [ null, %b ]"],
        [
            "%v = load float, ptr addrspace(2) @t",
            "%e = getelementptr float, ptr addrspace(1) %d, i32 1",
            "%p = phi ptr addrspace(1) [ %d, %a ], [ %e, %b ]",
        ],
        [
            "%s = select i1 %b, ptr addrspace(2) %c, ptr addrspace(2) @t",
            "%f = freeze ptr addrspace(2) %s",
            "%v = load float, ptr addrspace(2) %f",
        ],
        [
            "%v = load float, ptr addrspace(2) getelementptr inbounds"
            " ([2 x float], ptr addrspace(2) @t, i64 0, i64 1)"
        ],
        ["%v = call float @f(ptr addrspace(2) %c, ptr addrspace(1) %d)"],
    ],
)
def test_pointers_to_constant_memory_are_found(lines):
    before = [line.replace("addrspace(2)", "addrspace(1)") for line in lines]
    assert move_constants(before, {"%c", "@t"}, "k") == lines


@pytest.mark.parametrize(
    "line",
    [
        "%q = phi ptr addrspace(1) [ %c, %a ], [ %d, %b ]",
        "%q = select i1 %b, ptr addrspace(1) %c, ptr addrspace(1) %d",
    ],
)
def test_a_pointer_to_device_or_to_constant_memory_is_an_error(line):
    with pytest.raises(ToolError, match="k: a pointer to device or to constant memory: %q"):
        move_constants([line], {"%c"}, "k")


# ---- Threadgroup memory, bounds and races

SHARED = "@shared = internal addrspace(3) global [32 x float] undef, align 4"
# Each thread reads the element of its neighbour.
EXCHANGE = (
    LOAD
    + """
%own = getelementptr [32 x float], ptr addrspace(3) @shared, i64 0, i32 %i
store float %v, ptr addrspace(3) %own
BARRIER
%next = xor i32 %i, 1
%other = getelementptr [32 x float], ptr addrspace(3) @shared, i64 0, i32 %next
%r = load float, ptr addrspace(3) %other
"""
    + STORE
)
BARRIER = "tail call void @air.wg.barrier(i32 2, i32 1) #0"
WITH_BARRIER = (
    SHARED + "\ndeclare void @air.wg.barrier(i32, i32) #0\nattributes #0 = { convergent }"
)


def exchange(barrier=BARRIER):
    return kernel(EXCHANGE.replace("BARRIER", barrier), WITH_BARRIER)


def test_threadgroup_memory(metal, schedule):
    for order in ("forward", "reverse"):
        schedule(order)
        x = np.arange(32, dtype=np.float32)
        run(metal, exchange(), x, 32, 32)
        assert x.tolist() == (np.arange(32) ^ 1).tolist()


def test_constant_addresses_in_threadgroup_memory(metal):
    fifth, sixth = [
        f"getelementptr inbounds ([32 x float], ptr addrspace(3) @shared, i64 0, i64 {index})"
        for index in (5, 6)
    ]
    text = kernel(
        LOAD
        + f"store float %v, ptr addrspace(3) {fifth}\nstore float %v, ptr addrspace(3) {sixth}"
        + f"\n%r = load float, ptr addrspace(3) {fifth}\n%s = load float, ptr addrspace(3) {sixth}"
        "\n%d = fadd float %r, %s\nstore float %d, ptr addrspace(1) %p",
        SHARED,
    )
    x = floats(4)
    run(metal, text, x, 1, 1)
    assert x.tolist() == [8]


def test_threadgroup_memory_is_poison_before_a_write(metal):
    text = kernel(POINTER + "%r = load float, ptr addrspace(3) @shared" + STORE, SHARED)
    x = floats(0)
    run(metal, text, x, 1, 1)
    assert x.view(np.uint8).tolist() == [0xC7] * 4


@pytest.mark.parametrize(
    "type, size",
    [
        ("[32 x float]", 128),
        ("<3 x half>", 8),
        ("{ i8, [2 x float] }", 12),
        ("<{ i8, [2 x float] }>", 9),
        ("[2 x { i32, i8 }]", 16),
    ],
)
def test_the_size_of_threadgroup_memory(type, size):
    text = kernel("", f"@shared = internal addrspace(3) global {type} undef, align 16")
    read = module.Module(module.disassemble(air.bitcode(text), find_clang()))
    assert threadgroup_variables.size(read) == size


@pytest.fixture
def check_races(monkeypatch):
    monkeypatch.setenv("MPS_EMULATOR_CHECK_RACES", "1")


def test_a_missing_barrier_is_a_race(metal, check_races):
    x = np.arange(32, dtype=np.float32)
    run(metal, exchange(), x, 32, 32)
    assert x[0] == 1
    with pytest.raises(Fatal, match="threadgroup memory"):
        run(metal, exchange(barrier=""), x, 32, 32)


def test_an_access_outside_of_a_buffer(metal, check_races):
    text = kernel(
        "%n = add i32 %i, 1\n%p = getelementptr float, ptr addrspace(1) %x, i32 %n\n"
        "store float 0.0, ptr addrspace(1) %p"
    )
    with pytest.raises(Fatal, match="buffer"):
        run(metal, text, floats(1, 2, 3, 4), 4, 4)
