"""Tests torch.mps.compile_shader() and other functions of torch.mps.

The expected results come from torch's documentation and from torch's own tests of Metal libraries.
"""

import pathlib
import signal
import subprocess
import sys

import air
import mps_emulator
import pytest
import torch

MPS = torch.device("mps")


def compile_shader(body, signature="device float *x", **builtins):
    names = "".join(
        f", {kind} {name} [[{attribute}]]" for name, (kind, attribute) in builtins.items()
    )
    return torch.mps.compile_shader(
        "#include <metal_stdlib>\nusing namespace metal;\n"
        f"kernel void run({signature}{names}) {{\n{body}\n}}\n"
    )


INDEX = ("uint", "thread_position_in_grid")


def test_a_call_of_a_kernel_does_not_wait():
    library = compile_shader("x[i] += 1;", i=INDEX)
    x = torch.zeros(8, device=MPS)
    torch.mps.synchronize()
    library.run(x)
    with mps_emulator.counters() as counted:
        library.run(x)
        library.run(x)
    assert counted.waits_with_work == 0
    assert x.sum().item() == 24


@pytest.fixture
def add():
    """A library whose kernel `run` stores y + z in x."""
    return compile_shader(
        "x[i] = y[i] + z;", "device float *x, device const float *y, constant float &z", i=INDEX
    )


def test_an_argument_may_be_a_view(add):
    x = torch.zeros(10, device=MPS)
    y = torch.arange(10, dtype=torch.float32, device=MPS)
    add.run(x[2:6], y[5:], torch.tensor(0.5))
    assert x.cpu().tolist() == [0, 0, 5.5, 6.5, 7.5, 8.5, 0, 0, 0, 0]


def test_a_scalar_of_the_cpu_becomes_a_float(add):
    x = torch.zeros(2, device=MPS)
    y = torch.arange(10, dtype=torch.float32, device=MPS)
    add.run(x, y, torch.tensor(0.25, dtype=torch.float64))
    assert x.cpu().tolist() == [0.25, 1.25]


def test_an_int_has_64_bits():
    library = compile_shader(
        "x[0] = a; x[1] = b[1];", "device long *x, constant long &a, constant long *b"
    )
    x = torch.zeros(2, dtype=torch.int64, device=MPS)
    library.run(x, 1 << 40, [1, -(1 << 41)], threads=1)
    assert x.cpu().tolist() == [1 << 40, -(1 << 41)]


def test_a_float_has_32_bits():
    library = compile_shader(
        "x[0] = c * 4; x[1] = d[2] * 4;", "device float *x, constant float &c, constant float *d"
    )
    x = torch.zeros(2, device=MPS)
    library.run(x, 0.75, (1.0, 2.0, 2.5), threads=1)
    assert x.cpu().tolist() == [3, 10]


@pytest.mark.parametrize(
    "cast, kind, given, expected",
    [
        ("int32", "int", -7, -7),
        ("int16", "short", 70000, 70000 - 65536),
        ("int8", "char", -3, -3),
        ("uint8", "uchar", 300, 44),
        ("fp16", "half", 1.5, 1.5),
        ("bf16", "bfloat", 2.5, 2.5),
        ("int32", "int", 2.75, 2),
    ],
)
def test_casts(cast, kind, given, expected):
    library = compile_shader(
        "x[0] = float(a); x[1] = float(b[1]);",
        f"device float *x, constant {kind} &a, constant {kind} *b",
    )
    x = torch.zeros(2, device=MPS)
    library.run(x, given, [given, given], threads=1, arg_casts=cast)
    assert x.cpu().tolist() == [expected] * 2
    x.zero_()
    library.run(x, given, [given] * 2, threads=1, arg_casts={1: cast, 2: cast})
    assert x.cpu().tolist() == [expected] * 2


@pytest.mark.parametrize(
    "threads, group_size, values",
    [
        ((6, 4, 2), (3, 2, 1), [321.0] * 48),
        ((6, 4), [2, 4], [241.0] * 24 + [0.0] * 24),
        (7, None, [117.0 + 594.0] * 7 + [0.0] * 41),
    ],
    ids=["three dimensions", "two dimensions", "one dimension"],
)
def test_threads_per_threadgroup(threads, group_size, values):
    library = compile_shader(
        "x[i.x + 6 * (i.y + 4 * i.z)] = float(g.x * 100 + g.y * 10 + g.z);",
        i=("uint3", "thread_position_in_grid"),
        g=("uint3", "threads_per_threadgroup"),
    )
    x = torch.zeros(6 * 4 * 2, device=MPS)
    library.run(x, threads=threads, group_size=group_size)
    assert x.cpu().tolist() == values


def test_a_tensor_without_elements():
    compile_shader("x[i] = 1;", i=("uint", "thread_position_in_grid")).run(
        torch.ones(0, device=MPS)
    )
    torch.mps.synchronize()


def test_properties():
    library = compile_shader(
        "threadgroup float s[100]; s[i] = x[i];\n"
        "threadgroup_barrier(mem_flags::mem_threadgroup); x[i] = s[99 - i];",
        i=INDEX,
    )
    assert dir(library) == ["run"]
    kernel = library.run
    assert kernel.max_threads_per_threadgroup == 1024
    assert kernel.thread_execution_width == 32
    assert kernel.static_thread_group_memory_length == 400
    x = torch.arange(100, dtype=torch.float32, device=MPS)
    del library  # the kernel has a reference to the library
    kernel(x)
    assert x.cpu().tolist() == list(range(99, -1, -1))


def test_refused_sources():
    with pytest.raises(SyntaxError, match="program_source:1:1: error:"):
        torch.mps.compile_shader("Syntax error")
    with pytest.raises(SyntaxError, match="'double' is not supported"):
        torch.mps.compile_shader("kernel void f(device double *x) {}")


def test_refused_calls():
    library = compile_shader("x[0] = 1.0h;", "device half *x")
    x = torch.rand(3, device=MPS)
    for arguments, options in (
        ((torch.rand(3),), {}),
        ((12,), {}),
        (("text",), {"threads": 1}),
        (([],), {"threads": 1}),
        ((x,), {"threads": ()}),
        ((x,), {"threads": (1, 1), "group_size": 1}),
        ((x, 1), {"arg_casts": "float8"}),
        ((x,), {"arg_casts": 3}),
    ):
        with pytest.raises(RuntimeError):
            library.run(*arguments, **options)
    with pytest.raises(RuntimeError, match="function state object for: other"):
        library.other(x)
    most = library.run.max_threads_per_threadgroup
    with pytest.raises(ValueError, match="exceeds 1024 limit"):
        library.run(x, group_size=most + 5)
    with pytest.raises(ValueError):
        library.run(x, threads=(3, most), group_size=(3, most))


HEADERS = sorted(
    path.name for path in (pathlib.Path(torch.__file__).parent / "include/c10/metal").glob("*.h")
)


@pytest.mark.parametrize("header", HEADERS)
def test_a_kernel_may_include_a_header_of_torchs_kernels(header):
    library = torch.mps.compile_shader(
        f"#include <c10/metal/{header}>\nkernel void run(device float *x) {{ x[0] = 1; }}"
    )
    x = torch.zeros(1, device=MPS)
    library.run(x)
    assert x.item() == 1


def test_a_function_of_torchs_kernels():
    library = torch.mps.compile_shader(
        "#include <c10/metal/special_math.h>\n"
        "kernel void run(device float *x, uint i [[thread_position_in_grid]])"
        " { x[i] = c10::metal::sinc(x[i]); }"
    )
    x = torch.linspace(-2, 2, 9)
    y = x.to(MPS)
    library.run(y)
    # The multiplication with pi and the CPU's sine each have an error of one unit in the last
    # place.
    torch.testing.assert_close(y.cpu(), torch.sinc(x), rtol=0, atol=1e-6)


def test_errors_that_kernels_report():
    """torch raises an error with the message that a kernel writes to torch's error buffer."""
    library = torch.mps.compile_shader(
        "#include <c10/metal/error.h>\n"
        "kernel void run(device int *x, device c10::metal::ErrorMessages *e,"
        " uint i [[thread_position_in_grid]]) {\n"
        "  if (x[i] >= 0) return;\n"
        "  metal::atomic_store_explicit(&e->count, 1u,"
        " metal::memory_order_relaxed); e->msg[0].message[0] = '<';"
        " e->msg[0].message[1] = '0'; e->msg[0].message[2] = 0;\n}"
    )
    x = torch.tensor([1, 2], dtype=torch.int32, device=MPS)
    library.run(x, error_buf_idx=1)
    torch.mps.synchronize()
    library.run(-x, error_buf_idx=1)
    with pytest.raises(torch.AcceleratorError, match="<0"):
        torch.mps.synchronize()


def test_compiled_library(tmp_path):
    (tmp_path / "kernels.metallib").write_bytes(air.metallib({"scale": air.SCALE}))
    library = torch.mps.load_metallib(tmp_path / "kernels.metallib")
    assert dir(library) == ["scale"]
    x = torch.arange(5, dtype=torch.float32, device=MPS)
    library.scale(x, 3.0)
    assert x.tolist() == [0, 3, 6, 9, 12]
    with pytest.raises(RuntimeError, match="Failed to create function state object for: other"):
        library.other(x)


def test_what_is_no_compiled_library_is_refused(tmp_path):
    for source in (b"MTLB", b"x" * 100, tmp_path / "kernels.metallib"):
        with pytest.raises(RuntimeError, match="Failed to create metal library"):
            torch.mps.load_metallib(source)


def test_a_kernel_of_a_compiled_library_that_cannot_run_is_fatal(tmp_path):
    content = air.metallib({"scale": air.SCALE.replace("air.fabs", "air.what")})
    (tmp_path / "kernels.metallib").write_bytes(content)
    program = "import sys, torch; torch.mps.load_metallib(sys.argv[1]).scale"
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "kernels.metallib"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGABRT
    assert "kernel 'scale'" in done.stderr
    assert "the emulator lacks functions of AIR: air.what.f32" in done.stderr


def test_profiler():
    with torch.mps.profiler.profile("interval, event", True):
        assert (torch.ones(3, device=MPS) + 1).sum().item() == 6
    torch.mps.profiler.start(mode="event")
    torch.mps.profiler.stop()
    with pytest.raises(RuntimeError, match="Invalid Signpost trace mode: all"):
        torch.mps.profiler.start(mode="all")
    assert not torch.mps.profiler.is_metal_capture_enabled()
    assert not torch.mps.profiler.is_capturing_metal()
    with pytest.raises(RuntimeError, match="captures no trace"):
        with torch.mps.profiler.metal_capture("trace"):
            pass


def test_host_alias():
    x = torch.arange(6, dtype=torch.int32, device=MPS)
    torch.mps.synchronize()
    storage = torch.mps._host_alias_storage(x.untyped_storage())
    alias = torch.empty(0, dtype=torch.int32).set_(storage)[:6]
    assert alias.tolist() == [0, 1, 2, 3, 4, 5]
    alias[2] = 20
    assert (x + 1).cpu().tolist() == [1, 2, 21, 4, 5, 6]
    del x  # the alias has a reference to the memory
    other = torch.full((6,), 7, dtype=torch.int32, device=MPS)
    torch.mps.synchronize()
    torch.mps._host_alias_storage(other.untyped_storage())  # would get the memory
    assert alias.tolist() == [0, 1, 20, 3, 4, 5]
    with pytest.raises(RuntimeError, match="not allocated by the MPSAlloc"):
        torch.mps._host_alias_storage(torch.ones(2).untyped_storage())


def test_nothing_of_torch_mps_is_missing():
    """torch._C has each mps function that torch's type stubs declare."""
    declared = [
        line.split("(")[0].removeprefix("def ")
        for line in open(torch.__path__[0] + "/_C/__init__.pyi")
        if line.startswith("def _mps_")
    ]
    assert len(declared) > 20
    assert [n for n in declared if not hasattr(torch._C, n)] == []


@pytest.mark.skipif(not hasattr(torch.mps, "Stream"), reason="the function is new in torch 2.15")
def test_a_wait_for_events_of_tensors():
    x = torch.ones(4, device=MPS)
    torch.mps.synchronize()
    wait = torch._C._mps_allocator_waitForEvents
    assert not wait([x.untyped_storage().data_ptr()])
    x.add_(1)
    assert wait([x.untyped_storage().data_ptr()])
    assert not wait([x.untyped_storage().data_ptr()])
    assert not wait([])


SAFE, FAST = "safe", "fast"


@pytest.mark.parametrize(
    "variable, pragmas, mode",
    [
        ("0", "", SAFE),
        ("1", "", FAST),
        ("1", "#pragma METAL fp math_mode(safe)", SAFE),
        ("0", "#pragma METAL fp math_mode(fast)", FAST),
        ("1", "#pragma METAL fp math_mode(relaxed)", SAFE),
    ],
)
def test_a_math_mode_may_ignore_the_rules_of_ieee(monkeypatch, variable, pragmas, mode):
    """In the fast mode, this kernel does not follow the rules of IEEE.

    The relaxed mode may rearrange sums, but clang does not rearrange the sum of this kernel.
    """
    monkeypatch.setenv("PYTORCH_MPS_FAST_MATH", variable)
    library = torch.mps.compile_shader(
        f"""#include <metal_stdlib>
        {pragmas}
        kernel void run(device float *x) {{
          const float sum = x[0] + x[1];
          x[2] = x[1] - (sum - x[0]);
          x[3] = x[3] == INFINITY;
        }}"""
    )
    x = torch.tensor([1, 2.0**-26, -1, float("inf")], device=MPS)
    library.run(x, threads=1)
    assert x[2:].tolist() == ([2.0**-26, 1] if mode == SAFE else [0, 0])


@pytest.mark.parametrize("contraction, fused", [("off", False), ("on", False), ("fast", True)])
def test_a_pragma_chooses_the_contraction(contraction, fused):
    library = torch.mps.compile_shader(
        f"""#pragma METAL fp contract({contraction})
        kernel void run(device float *x) {{
          const float square = x[0] * x[0];
          x[0] = 1.0f - square;
        }}"""
    )
    x = torch.tensor([1 + 2.0**-20], device=MPS)
    library.run(x, threads=1)
    assert (x.item() != 1 - (1 + 2.0**-19)) == fused
