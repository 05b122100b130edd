"""Runs the checks of k2_mps_tests/kernels, and tests the program that runs them."""

import collections
import itertools
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from k2_mps_tests.cuda import swoosh_bandwidth
from k2_mps_tests.kernels import on_mps, prepare, runner, sources
from k2_mps_tests.kernels.case import UNTOUCHED, Buffer, Case
from k2_mps_tests.running import ran

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}


def test_all_kernels(capsys):
    status = on_mps.run()
    said = capsys.readouterr().out
    assert status == 0, said
    launched = {case.kernel for name in sources.names() for case in sources.cases(name)}
    assert set(re.findall(r"^(\w+): \d+ of \d+ cases$", said, re.MULTILINE)) == launched


@pytest.mark.skipif(shutil.which("llvm-as-14") is None, reason="llvm-as-14 is not installed")
def test_all_kernels_of_metallibs(tmp_path, capsys):
    sources.write_metallibs(tmp_path, sources.names())
    assert on_mps.run(runs=1, metallibs=tmp_path) == 0, capsys.readouterr().out


@pytest.mark.parametrize("header", sorted(path.name for path in sources.KERNELS.glob("*.h")))
def test_a_header_includes_what_it_uses(header, tmp_path):
    source = tmp_path / "alone.metal"
    source.write_text(
        "#include <metal_stdlib>\nusing namespace metal;\n"
        f'#include "k2/csrc/mps/kernels/{header}"\n'
        "kernel void nothing(device int *a [[buffer(0)]]) { a[0] = 0; }\n"
    )
    torch.mps.compile_shader(sources.with_headers(source))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the emulator")
@pytest.mark.parametrize("name", sources.names())
def test_no_kernel_has_a_race(name):
    # The race checker finds each race, whatever the order in which threads run.  So one run of each
    # case is enough.
    status, said = program(name, "--runs", 1, MPS_EMULATOR_CHECK_RACES="1")
    assert status == 0, said


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the emulator")
def test_no_result_depends_on_the_schedule():
    status, said = program(MPS_EMULATOR_SCHEDULE="random:1")
    assert status == 0, said


# The files whose kernels compute in pairs of floats.
PAIRS = [name for name in sources.names() if "struct TwoFloat " in sources.text(name)]
CONTRACTION = "#pragma METAL fp contract"
# {setting of contraction: the forms of the product that become an fma}
CONTRACTIONS = {"off": (), "on": ("x[i] * x[i]",), "fast": ("x[i] * x[i]", "square")}


@pytest.mark.parametrize("name", PAIRS)
def test_neither_contraction_nor_fast_math_changes_a_bit_of_pairs(monkeypatch, name):
    """Pragmas in the kernels require IEEE's rules, so PYTORCH_MPS_FAST_MATH changes nothing."""
    # Contraction changes the result of 1 - x^2, because the product is then not rounded.
    control = """
        kernel void contracted(device float *x, uint i
                               [[thread_position_in_grid]]) {
          const float square = x[i] * x[i];
          x[i] = 1.0f - %s;
        }"""
    text = sources.text(name)
    assert text.count(CONTRACTION) == 1
    libraries = {}
    for how, fused in CONTRACTIONS.items():
        pragma = f"{CONTRACTION}({how})\n"
        libraries[how] = torch.mps.compile_shader(text.replace(f"{CONTRACTION}(off)\n", pragma))
        for square in "square", "x[i] * x[i]":
            x = torch.tensor([1 + 2.0**-20], device="mps")
            torch.mps.compile_shader(pragma + control % square).contracted(x)
            assert (x.item() != 1 - (1 + 2.0**-19)) == (square in fused)
    for fast_math in "0", "1":
        monkeypatch.setenv("PYTORCH_MPS_FAST_MATH", fast_math)
        libraries[f"fast math {fast_math}"] = torch.mps.compile_shader(text)
    for case in sources.cases(name):
        if "_float" in case.kernel:  # Kernels with such names compute without pairs of floats.
            continue
        contents = {name: buffer.content for name, buffer in case.all_buffers().items()}
        results = {
            how: [array.tobytes() for array in on_mps.launch(library, case, contents).values()]
            for how, library in libraries.items()
        }
        for how, result in results.items():
            assert result == next(iter(results.values())), (how, case.kernel, case.name)


@pytest.mark.parametrize(
    "wrong, message", [("* 1.0001f", "elements differ"), ("* float(clock())", None)]
)
def test_a_wrong_kernel_is_noticed(monkeypatch, capsys, wrong, message):
    right = "FastLogAdd(from_above, from_left)"
    name = "mutual_information"
    text = sources.text(name)
    assert text.count(right) == 1
    text = text.replace(right, right + wrong)
    monkeypatch.setattr(sources, "names", lambda: [name])
    monkeypatch.setattr(sources, "text", lambda name: text)
    if message is None:  # The kernel does not compile.
        with pytest.raises(SyntaxError, match="clock"):
            on_mps.run()
        return
    assert on_mps.run() == runner.WRONG
    assert message in capsys.readouterr().out


def test_a_kernel_without_a_check_is_noticed(monkeypatch):
    text = sources.text("mutual_information")
    more = text + "\nkernel void another(device float *x) { x[0] = 1.0f; }\n"
    monkeypatch.setattr(sources, "names", lambda: ["mutual_information"])
    monkeypatch.setattr(sources, "text", lambda name: more)
    with pytest.raises(LookupError, match="does not launch another$"):
        on_mps.run()
    monkeypatch.setattr(sources, "text", lambda name: text.replace('ward, "",', 'ward, "_x",'))
    with pytest.raises(
        LookupError, match="does not launch mutual_information_backward_x, .*_forward_x_tall$"
    ):
        on_mps.run()
    with pytest.raises(LookupError, match="no kernel, b$"):
        sources.require_all(
            "mutual_information", [Case("", "a", 1, 1, {}), Case("", "b", 1, 1, {})], ["a"]
        )
    monkeypatch.setattr(sources, "names", lambda: ["another"])
    with pytest.raises(LookupError, match="another.metal has no check"):
        on_mps.run()


@pytest.mark.parametrize("header, name", sources.enumerations_of_arguments())
def test_the_host_says_which_arguments_the_kernels_write(header, name):
    """The host passes `device` arguments, which kernels write, with Out() of metal.h.

    The host passes `device const` and `constant` arguments with In().
    """
    numbers = set(sources.enumeration(header, name).__members__)
    declared, given = set(), set()
    for path in sources.KERNELS.iterdir():
        declared |= {
            ("Out" if space == "device" else "In", number)
            for space, number in _DECLARED.findall(path.read_text())
        }
    for path in (*sources.KERNELS.parent.glob("*.cu"), *sources.KERNELS.parent.glob("*.h")):
        given |= set(_GIVEN.findall(path.read_text()))
    assert {pair for pair in declared if pair[1] in numbers} == {
        pair for pair in given if pair[1] in numbers
    }
    assert {number for _, number in declared} >= numbers


@pytest.mark.parametrize("name", sources.names())
def test_the_declared_arguments_of_each_kernel_are_found(name):
    """The suite parity compares them with the arguments that the host passes."""
    found = sources.writable_arguments(name)
    for case in sources.cases(name):
        assert len(found[case.kernel]) == len(case.buffers), case.kernel


# _DECLARED finds arguments that kernels declare.  _GIVEN finds arguments that the host passes.
_DECLARED = re.compile(
    r"\b(device(?: const)?|constant) [\w<>, ]+ ?[*&]\w+[\s\\]+\[\[buffer\((\w+)\)\]\]"
)
_GIVEN = re.compile(r"\b(In|Out)\(\s*(k\w+),")


def test_a_case_without_an_argument_of_its_kernel_is_noticed():
    """On mps, the kernel would get an unrelated tensor for the missing argument."""
    case = Case("small", "k", 1, 32, {0: Buffer(np.zeros(1))})
    with pytest.raises(LookupError, match=r"'small' of k gives .*\[0\], .* takes \[0, 2\]"):
        prepare.arguments_of_launches(case, [0, 2])


def test_a_further_launch_replaces_some_arguments():
    first, second, both = (Buffer(np.zeros(1)) for _ in range(3))
    case = Case("", "k", 1, 32, {0: both, 2: first}, [(4, {2: second})])
    assert list(case.all_buffers()) == ["0", "2", "2 of launch 1"]
    assert prepare.arguments_of_launches(case, [2, 0]) == [
        (1, ["2", "0"]),
        (4, ["2 of launch 1", "0"]),
    ]


# The headers that kernels share with the host.
SHARED = [
    path.name
    for path in sorted(sources.KERNELS.glob("*.h"))
    if re.search(r"enum \w+Buffer {", path.read_text())
]


@pytest.mark.parametrize("header", SHARED)
def test_numpy_lays_out_structs_as_clang_does(header, tmp_path):
    names = re.findall(r"^struct (\w+) {", (sources.KERNELS / header).read_text(), re.MULTILINE)
    assert names
    lines = [f'#include "{sources.KERNELS / header}"']
    for name in names:
        layout = sources.layout(header, name)
        lines.append(f"static_assert(sizeof({name}) == {layout.itemsize});")
        for field, (_, offset) in layout.fields.items():
            lines.append(f"static_assert(__builtin_offsetof({name}, {field}) == {offset});")
    source = tmp_path / "layout.cc"
    source.write_text("\n".join(lines))
    clang = sources.program("clang++-19", "clang++")
    ran(clang, "-std=c++17", "-fsyntax-only", f"-I{sources.ROOT}", source, check=True)


PAIR = np.dtype([("low", np.int32), ("scale", np.float32)])


def test_a_struct_has_its_fields_at_their_places():
    buffer = Buffer.struct(PAIR, scale=0.5, low=7)
    assert buffer.content.tobytes() == np.int32(7).tobytes() + np.float32(0.5).tobytes()


@pytest.mark.parametrize(
    "fields, message",
    [({"low": 1}, "needs a value for scale"), ({"low": 1, "scale": 1, "high": 1}, "no field high")],
    ids=["missing", "unknown"],
)
def test_a_struct_with_other_fields_than_its_header_is_refused(fields, message):
    with pytest.raises(TypeError, match=message):
        Buffer.struct(PAIR, **fields)


# Fields that have equal values in all cases of a file, (file, fields).  In the cases of `pruned`,
# where the same functions read them, the fields differ.
EQUAL_FIELDS = [
    # Streams have one graph.
    ("pruned_stream", {"shared_graph", "streaming"}),
    # A chunk has one window, and its pruning begins after the search has ended.
    ("pruned_stream", {"first_seq", "first_live", "window"}),
]


@pytest.mark.parametrize("name", sources.names())
def test_two_fields_of_a_struct_differ_in_some_case(name):
    """Otherwise a kernel could read one field in place of the other, and pass its check."""
    structs = collections.defaultdict(list)
    for case in sources.cases(name):
        for buffer in case.all_buffers().values():
            if buffer.content.dtype.names:
                structs[buffer.content.dtype].append(buffer.content)
    for layout, contents in structs.items():
        every = np.concatenate(contents)
        for first, second in itertools.combinations(layout.names, 2):
            if layout[first] != layout[second]:
                continue
            excepted = any(file == name and {first, second} <= x for file, x in EQUAL_FIELDS)
            assert excepted == (every[first] == every[second]).all(), (first, second)


@pytest.mark.parametrize(
    "name, kernel, struct, first, second",
    [
        ("ctc", "ctc_sums", "CtcParams", "stride", "num_columns"),
        ("ctc", "ctc_sums", "CtcParams", "rows_of_best_block", "rows_of_block"),
        ("ctc_best", "ctc_best", "CtcParams", "stride", "num_columns"),
        ("ctc_best", "ctc_best", "CtcParams", "rows_of_best_block", "rows_of_block"),
        ("intersect_dense", "", "IntersectDenseParams", "stride", "num_columns"),
        ("lattice", "count_lattice", "LatticeParams", "stride", "num_columns"),
        ("pruned", "search_pruned", "PrunedParams", "stride", "num_columns"),
        ("pruned_stream", "search_stream", "PrunedParams", "stride", "num_columns"),
    ],
)
def test_a_kernel_that_swaps_two_fields_is_noticed(name, kernel, struct, first, second):
    text = sources.text(name)
    begin = text.index(f"struct {struct} {{")
    end = text.index("};", begin)
    other = {first: second, second: first}
    body = re.sub(r"\b(\w+);", lambda field: other.get(field[1], field[1]) + ";", text[begin:end])
    library = torch.mps.compile_shader(text[:begin] + body + text[end:])

    def is_right(case):
        def launch(contents):
            return on_mps.launch(library, case, contents)

        return runner.check(launch, case.all_buffers(), runs=1) == []

    # A wrong kernel that writes gradients could write beyond its memory, so no such kernel runs.
    cases = [case for case in sources.cases(name) if case.kernel.startswith(kernel)]
    assert not all(is_right(case) for case in cases)


@pytest.mark.parametrize("name", sources.names())
def test_no_struct_has_a_reference_as_a_member(name):
    """No published Metal code has such a member.  Metal's compiler may refuse it."""
    assert _reference_members(sources.text(name)) == []


def _reference_members(text):
    bodies = re.findall(r"^struct \w+ \{$(.*?)^\};$", text, re.MULTILINE | re.DOTALL)
    return [line for body in bodies for line in re.findall(r"^  \w[^()]*&\w+;$", body, re.M)]


def test_a_reference_as_a_member_is_noticed():
    member = "  constant Params &params;"
    text = "struct Rows {\n%s\n  void Take(thread int &x) const {}\n};\n"
    assert _reference_members(text % member) == [member]
    assert _reference_members(text % "  constant Params *params;") == []


def compared(buffer, result):
    return runner.differences({"kX": buffer}, {"kX": np.array(result, np.float32)})


def test_elements_beyond_their_tolerance_are_differences():
    zeros = np.zeros(3, np.float32)
    assert compared(Buffer(zeros), [0, 0, 0]) == []
    assert compared(Buffer(zeros), [0, -0.0, 0]) == ["kX has changed"]
    expected = np.array([1.0, -np.inf, np.nan])
    right = Buffer(zeros, expected, 0.5)
    assert compared(right, [1.25, -np.inf, np.nan]) == []
    for result in (
        [1.75, -np.inf, np.nan],
        [1, np.inf, np.nan],
        [1, -1e30, np.nan],
        [1, -np.inf, 0],
        [np.nan, -np.inf, np.nan],
        [np.inf, -np.inf, np.nan],
    ):
        assert "1 of 3 elements" in compared(right, result)[0]
    either = Buffer(zeros, expected, np.array([0.5, 0.0, np.inf]))
    assert compared(either, [1, -np.inf, 5]) == []
    assert compared(Buffer.scratch(zeros), [1, np.nan, np.inf]) == []


@pytest.mark.parametrize("sums", [[[3, 1.0, 0]], [[2, 2.0, 0]], [[2, 1.5, 0.5]]])
def test_path_sums_of_any_exponent_are_compared_by_their_scores(sums):
    expected = Buffer.path_sums(np.log([8.0]), 1e-12, floats=3)
    assert compared(expected, sums) == []


@pytest.mark.parametrize("sums", [[[2, 1.0]], [[3, 1.001]], [[-np.inf, 1.0]], [[77, 77]]])
def test_a_wrong_path_sum_is_noticed(sums):
    expected = Buffer.path_sums(np.log([8.0]), 1e-6, floats=2)
    found = compared(expected, sums)
    assert "1 of 1 elements differ" in found[0]


def test_a_write_to_a_path_sum_that_must_not_change_is_noticed():
    expected = Buffer.path_sums(np.array([np.nan]), 1.0, floats=2)
    untouched, written = np.full((1, 2), UNTOUCHED, np.float32), np.ones((1, 2), np.float32)
    assert compared(expected, untouched) == []
    assert compared(expected, written)


def test_bits_that_change_between_runs_are_noticed():
    count = iter(range(10))

    def launch(contents):
        return {name: content + next(count) * 1e-3 for name, content in contents.items()}

    zeros = np.zeros(2)
    found = runner.check(launch, {"kX": (zeros, zeros, 0.1)})
    assert found == ["kX has other bits after another run"]


def test_a_run_without_cases_fails():
    assert runner.report([], lambda text: None) == runner.WRONG


def program(*arguments, **variables):
    command = (sys.executable, "-m", "k2_mps_tests.kernels", *arguments)
    done = ran(*command, env={**os.environ, **NO_GPU, **variables})
    return done.returncode, done.stdout + done.stderr


def test_without_a_gpu_the_program_prints_one_line():
    """Without a GPU, the program prints one line and ends with the exit status NO_GPU."""
    status, said = program("--device", "cuda")
    assert status == runner.NO_GPU, said
    assert said.startswith("no GPU: ") and said.count("\n") == 1


# This source stands in for libdevice.10.bc, and defines the functions that the kernels call.  The
# test compiles the kernels but does not run them.
LIBDEVICE = """
float __nv_expf(float x) { return x; }
float __nv_logf(float x) { return x; }
float __nv_tanhf(float x) { return x; }
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the emulator")
def test_a_prepared_folder_has_all_that_its_program_needs(tmp_path):
    """run.py works in any folder, because its own folder has everything that run.py needs."""
    libdevice = tmp_path / "libdevice.10.bc"
    options = "-x c - --target=nvptx64-nvidia-cuda -O1 -emit-llvm -c -o".split()
    subprocess.run(["clang++-19", *options, libdevice], input=LIBDEVICE, text=True, check=True)
    folder = tmp_path / "made"
    status, said = program("--prepare", folder, "--libdevice", libdevice)
    assert status == 0, said
    manifest = json.loads((folder / "cases.json").read_text())
    assert said == f"{folder}: {sum(len(source['cases']) for source in manifest)} cases\n"
    for source in manifest:
        ptx = (folder / source["ptx"]).read_text()
        kernels = {case["kernel"] for case in source["cases"]}
        for kernel in kernels:
            assert f".entry {kernel}(" in ptx
        # The PTX defines all functions, so the driver links nothing.
        assert ".extern" not in ptx
        for case in source["cases"]:
            arrays = np.load(folder / case["file"])
            assert f"content_{len(case['buffers']) - 1}" in arrays
            assert any(name.startswith("expected_") for name in arrays)
    command = (sys.executable, "-E", "-s", folder / "run.py")
    done = ran(*command, cwd="/", env={**os.environ, **NO_GPU})
    assert done.returncode == runner.NO_GPU, done.stdout + done.stderr
    done = ran(sys.executable, swoosh_bandwidth.__file__, folder, 1, env={**os.environ, **NO_GPU})
    assert done.returncode == 0 and done.stdout.startswith("no GPU"), done.stdout + done.stderr


def test_the_program_checks_only_the_named_files():
    status, said = program("two_float")
    # A case has a name with "ctc", and the program names the slowest case.
    kernels = set(re.findall(r"^(\w+): \d+ of \d+ cases$", said, re.MULTILINE))
    assert status == 0 and kernels == {"two_float", "path_sums"}, said
    status, said = program("two_floats")
    assert status == 4 and "no file of kernels is called two_floats" in said
    status, said = program("two_float", "--device", "cuda")
    assert status == 2 and "only for checks on mps" in said


def test_without_libdevice_no_folder_is_made(tmp_path):
    status, said = program("--prepare", tmp_path / "a", "--libdevice", tmp_path / "none")
    assert status == 4 and "libdevice.10.bc is not found" in said
    assert not (tmp_path / "a").exists()
