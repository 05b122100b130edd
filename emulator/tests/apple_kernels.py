"""Runs kernels as Apple compiled them beside our compile of the same text.

The kernels come from wheels for macOS: mlx-metal has a .metallib and the headers of its kernels,
and torch has two .metallibs in libtorch_cpu.dylib and some headers.  The program instantiates
templates of these headers under the names that the kernels have in the .metallib.  Both sides run
in the emulator on the same inputs, in two orders of the threads.  The results must be the same to
the bit, except for the bits of a NaN.

pip downloads the wheels, unless MPS_EMULATOR_WHEELS names a folder that contains the wheels.  Texts
that the wheels lack come from the projects' public repositories, by git.

    python tests/apple_kernels.py [--group NAME] [--only WORDS] [--every N]
"""

import argparse
import dataclasses
import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
from mps_emulator.msl import native, toolchain
from mps_emulator.msl.air import metallib

MLX = "mlx-metal==0.32.4"
TORCH = "torch==2.14.1"
SCHEDULES = ("forward", "reverse")

# {name of a type in the names of mlx's kernels: (its name in Metal, NumPy's dtype)}.  NumPy has no
# bfloat: an array of bfloats has the dtype uint16.
TYPES = {
    "bool_": ("bool", np.bool_),
    "uint8": ("uint8_t", np.uint8),
    "uint16": ("uint16_t", np.uint16),
    "uint32": ("uint32_t", np.uint32),
    "uint64": ("uint64_t", np.uint64),
    "int8": ("int8_t", np.int8),
    "int16": ("int16_t", np.int16),
    "int32": ("int32_t", np.int32),
    "int64": ("int64_t", np.int64),
    "float16": ("half", np.float16),
    "bfloat16": ("bfloat16_t", np.uint16),
    "float32": ("float", np.float32),
}
FLOATS = ("float32", "float16", "bfloat16")
INTEGERS = tuple(name for name in TYPES if "int" in name)
# {type of mlx: its name in torch's kernels}.
TORCH_TYPES = {"float32": "float", "float16": "half", "bfloat16": "bfloat"}


class Unavailable(Exception):
    """A wheel or a text cannot be had here.  The exception's text is the reason."""


@dataclasses.dataclass
class Kernel:
    """A kernel and its arguments.

    text:        an expression for the function, such as `unary_v<float, float, Exp, 1>`.
    buffers:     the arguments, arrays of NumPy.
    floats:      {index of a buffer that the kernel writes: type of mlx, if it is one of FLOATS}.
    grid, threadgroup: sizes in threads.
    """

    text: str
    buffers: list
    floats: dict
    grid: tuple
    threadgroup: tuple


@dataclasses.dataclass
class Group:
    """Kernels of one text.

    wheel:    the requirement of the wheel that has the .metallib.
    includes: the headers that the text includes.
    kernels:  {name: Kernel}.
    head:     a text after the headers.
    sources:  further texts, each a header of the wheel or (repository, tag, path).  Their own
              instances are left out.
    """

    wheel: str
    includes: list
    kernels: dict
    head: str = ""
    sources: tuple = ()


# ---- Arguments


def _random(name):
    return np.random.default_rng(list(name.encode()))


def to_bfloat(x):
    """Returns the bits of the bfloats nearest to floats, an array of uint16."""
    bits = x.astype(np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), rounded)


def values(name, type, count, positive=False, special=True):
    """Returns `count` random values of a type of TYPES."""
    random = _random(name)
    if type == "bool_":
        return random.integers(0, 2, count).astype(np.bool_)
    if type not in FLOATS:
        low = 1 if positive else 0 if type.startswith("u") else -9
        return random.integers(low, 10, count).astype(TYPES[type][1])
    x = random.normal(size=count) * 3
    x[::7] *= 10
    if positive:
        x = abs(x)
    if special:
        few = [
            0.0,
            -0.0,
            1,
            -1,
            0.5,
            1.5,
            2.5,
            -2.5,
            np.inf,
            -np.inf,
            np.nan,
            65504,
            1e-7,
            88,
            -104,
        ]
        x[: len(few)] = few
    return to_bfloat(x) if type == "bfloat16" else x.astype(TYPES[type][1])


def _empty(type, count):
    """Returns an array that no kernel leaves as it is: a bool is 0 or 1, so its byte is 7 here."""
    return np.full(count, 7, np.uint8 if type == "bool_" else TYPES[type][1])


def _number(type, value):
    return np.array([value], type)


def _floats(index, type):
    return {index: type} if type in FLOATS else {}


# ---- mlx

_COUNT = 257


def _mlx(*headers, head=""):
    folder = "mlx/backend/metal/kernels"
    return [f"{folder}/utils.h", *(f"{folder}/{header}" for header in headers)]


def _unary():
    kernels = {}
    for operation in (
        "Abs ArcCos ArcCosh ArcSin ArcSinh ArcTan ArcTanh Ceil Cos Cosh Exp Expm1 Floor Log Log2"
        " Log10 Log1p Negative Sigmoid Erf ErfInv Sign Sin Sinh Square Sqrt Rsqrt Tan Tanh Round"
    ).split():
        of_integers = operation in ("Abs", "Ceil", "Floor", "Negative", "Sign", "Square")
        for type in FLOATS + INTEGERS * of_integers:
            metal = TYPES[type][0]
            name = f"v_{operation}{type}{type}"
            buffers = [values(name, type, _COUNT), _empty(type, _COUNT), _number("u4", _COUNT)]
            text = f"unary_v<{metal}, {metal}, {operation}, 1>"
            kernels[name] = Kernel(text, buffers, _floats(1, type), (_COUNT,), (64,))
    return Group(MLX, _mlx("unary_ops.h", "unary.h"), kernels)


def _binary():
    kernels = {}
    compare = "Equal Greater GreaterEqual Less LessEqual NotEqual".split()
    floats = ["ArcTan2", "LogAddExp"]
    bits = ["BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "RightShift"]
    arithmetic = "Add Divide Maximum Minimum Multiply Subtract Power Remainder".split()
    for operation in arithmetic + compare + floats + bits:
        types = FLOATS + ("int32", "uint8", "int64")
        if operation in ("Maximum", "Minimum"):
            types += ("uint32", "uint64")
        if operation in floats:
            types = FLOATS
        if operation in bits:
            types = ("int32", "uint8", "int64", "uint16")
        for type in types:
            result = "bool_" if operation in compare else type
            metal, out = TYPES[type][0], TYPES[result][0]
            name = f"vv_{operation}{type}"
            # A negative exponent of an integer is a loop without an end, and 0 is no divisor.
            positive = type not in FLOATS
            buffers = [
                values(name + "a", type, _COUNT, positive),
                values(name + "b", type, _COUNT, positive)[::-1].copy(),
                _empty(result, _COUNT),
                _number("u4", _COUNT),
            ]
            text = f"binary_vv<{metal}, {out}, {operation}, 1>"
            kernels[name] = Kernel(text, buffers, _floats(2, result), (_COUNT,), (64,))
    return Group(MLX, _mlx("binary_ops.h", "binary.h"), kernels)


def _softmax():
    kernels = {}
    rows, size = 3, 500
    for type in FLOATS:
        for accumulator in ("", "float"):
            if type == "float32" and accumulator:
                continue
            for kind, function in (("block", "softmax_single_row"), ("looped", "softmax_looped")):
                precise = "precise_" if accumulator else ""
                name = f"{kind}_softmax_{precise}{type}"
                arguments = ", ".join(filter(None, [TYPES[type][0], accumulator]))
                buffers = [
                    values(name, type, rows * size, special=False),
                    _empty(type, rows * size),
                    _number("i4", size),
                ]
                threads = 128 if kind == "block" else 64
                text = f"{function}<{arguments}>"
                kernels[name] = Kernel(
                    text, buffers, _floats(1, type), (rows * threads,), (threads,)
                )
    return Group(MLX, _mlx("softmax.h"), kernels)


def _sort():
    kernels = {}
    rows, size = 2, 500
    for type in TYPES:
        if type == "bool_":
            continue
        for is_argument in (False, True):
            out = "uint32" if is_argument else type
            name = f"c{'arg' if is_argument else ''}_block_sort_{type}_{out}_bn128_tn4"
            metal = f"{TYPES[type][0]}, {TYPES[out][0]}, {str(is_argument).lower()}"
            text = f"block_sort<{metal}, 128, 4>"
            buffers = [values(name, type, rows * size), _empty(out, rows * size)]
            buffers += [_number("i4", n) for n in (size, 1, 1, size, size)]
            kernels[name] = Kernel(text, buffers, _floats(1, out), (128, rows, 1), (128, 1, 1))
    return Group(MLX, _mlx("sort.h"), kernels)


def _scan():
    kernels = {}
    rows, size = 2, 900
    for operation, function in (
        ("sum", "CumSum"),
        ("prod", "CumProd"),
        ("max", "CumMax"),
        ("min", "CumMin"),
        ("logaddexp", "CumLogaddexp"),
    ):
        for type in FLOATS if operation == "logaddexp" else FLOATS + INTEGERS:
            for inclusive in (True, False):
                for reverse in (False, True):
                    kind = (
                        ("reverse_" if reverse else "") + ("in" if inclusive else "ex") + "clusive"
                    )
                    name = f"contig_scan_{kind}_{operation}_{type}_{type}"
                    metal = TYPES[type][0]
                    reads = 2 if type.endswith("64") else 4
                    flags = f"{reads}, {str(inclusive).lower()}, {str(reverse).lower()}"
                    text = f"contiguous_scan<{metal}, {metal}, {function}<{metal}>, {flags}>"
                    buffers = [
                        values(name, type, rows * size, special=False),
                        _empty(type, rows * size),
                        _number("u8", size),
                    ]
                    if operation == "prod" and type in FLOATS:
                        signs = np.sign(_random(name).normal(size=rows * size)).astype(np.float32)
                        buffers[0] = (
                            to_bfloat(signs) if type == "bfloat16" else signs.astype(TYPES[type][1])
                        )
                    kernels[name] = Kernel(
                        text, buffers, _floats(1, type), (128, rows, 1), (128, 1, 1)
                    )
    return Group(MLX, _mlx("binary_ops.h", "scan.h"), kernels)


def _strided_scan():
    kernels = {}
    rows, size, stride = 2, 70, 41
    for operation, function in (("sum", "CumSum"), ("prod", "CumProd"), ("max", "CumMax")):
        for type in ("float32", "float16", "int32", "uint32", "int64"):
            for inclusive in (True, False):
                for reverse in (False, True):
                    kind = ("reverse_" if reverse else "") + ("in" if inclusive else "ex")
                    name = f"strided_scan_{kind}clusive_{operation}_{type}_{type}"
                    metal = TYPES[type][0]
                    reads = 2 if type.endswith("64") else 4
                    flags = f"{reads}, {str(inclusive).lower()}, {str(reverse).lower()}"
                    source = values(name, type, rows * size * stride, special=False)
                    if operation == "prod" and type in FLOATS:
                        source = np.sign(source)
                    blocks, threads = (stride + 31) // 32, 32 // reads * 32
                    numbers = [_number("u8", n) for n in (size, stride, blocks)]
                    kernels[name] = Kernel(
                        f"strided_scan<{metal}, {metal}, {function}<{metal}>, {flags}>",
                        [source, _empty(type, source.size), *numbers],
                        _floats(1, type),
                        (threads, rows * blocks, 1),
                        (threads, 1, 1),
                    )
    return Group(MLX, _mlx("binary_ops.h", "scan.h"), kernels)


def _reduce():
    kernels = {}
    for operation, function in (("sum", "Sum"), ("prod", "Prod"), ("min", "Min"), ("max", "Max")):
        for type in FLOATS + INTEGERS:
            out = type
            if operation in ("sum", "prod"):
                out = {"uint8": "int32", "int8": "int32", "int16": "int32", "uint16": "uint32"}.get(
                    type, type
                )
            metal, result = TYPES[type][0], TYPES[out][0]
            rows, size = 4, 900
            name = f"all_reduce_{operation}{type}"
            source = values(name, type, rows * size, special=False)
            kernels[name] = Kernel(
                f"all_reduce<{metal}, {result}, {function}<{result}>>",
                [source, _empty(out, rows), _number("u8", rows * size), _number("u8", size)],
                _floats(1, out),
                (64, rows, 1),
                (64, 1, 1),
            )
            name = f"row_reduce_simple_{operation}{type}"
            kernels[name] = Kernel(
                f"row_reduce_simple<{metal}, {result}, {function}<{result}>>",
                [source, _empty(out, rows), _number("u8", size), _number("i8", rows)],
                _floats(1, out),
                (64, 1, 1),
                (64, 1, 1),
            )
    return Group(MLX, _mlx("atomic.h", "reduction/ops.h", "reduce.h"), kernels)


def _arg_reduce():
    kernels = {}
    rows, size = 3, 500
    for operation, function in (("argmin", "ArgMin"), ("argmax", "ArgMax")):
        for type in TYPES:
            name = f"{operation}_{type}"
            metal = TYPES[type][0]
            buffers = [
                values(name, type, rows * size, special=False),
                _empty("uint32", rows),
                np.array([rows], np.int32),
                np.array([size], np.int64),
                np.array([1], np.int64),
                _number("u8", 1),
                _number("i8", 1),
                _number("u8", size),
            ]
            text = f"arg_reduce_general<{metal}, {function}<{metal}>>"
            kernels[name] = Kernel(text, buffers, {}, (64, rows, 1), (64, 1, 1))
    path = "mlx/backend/metal/kernels/arg_reduce.metal"
    source = ("https://github.com/ml-explore/mlx.git", "v0.32.1", path)
    return Group(MLX, [], kernels, sources=(source,))


# ---- torch

# {name of torch's kernel: name of the function in c10/metal/special_math.h}.
_SPECIAL = {
    name: name
    for name in (
        "bessel_j0_forward bessel_y0_forward digamma entr erf erfc erfcx erfinv i0 i0e i1 i1e"
        " modified_bessel_i0_forward modified_bessel_i1_forward modified_bessel_k0_forward"
        " modified_bessel_k1_forward scaled_modified_bessel_k0_forward"
        " scaled_modified_bessel_k1_forward sinc spherical_bessel_j0 trigamma"
    ).split()
}


# torch converts the arguments of these functions to float.
_OF_FLOATS = ("digamma", "trigamma")


def _special_math():
    head = ""
    for name, function in _SPECIAL.items():
        x = "static_cast<float>(x)" if name in _OF_FLOATS else "x"
        head += (
            f"struct {name}_functor {{ template <typename T> T operator()(const T x) {{"
            f" return static_cast<T>(c10::metal::{function}({x})); }} }};\n"
        )
    kernels = {}
    for operation in _SPECIAL:
        for type, metal in TORCH_TYPES.items():
            name = f"{operation}_dense_{metal}_{metal}"
            buffers = [_empty(type, _COUNT), values(name, type, _COUNT), _number("u4", _COUNT)]
            text = f"c10::metal::unary_dense<{metal}, {operation}_functor>"
            # A thread computes four elements.
            kernels[name] = Kernel(text, buffers, _floats(0, type), ((_COUNT + 3) // 4,), (32,))
    return Group(TORCH, ["c10/metal/special_math.h", "c10/metal/indexing.h"], kernels, head=head)


def _sort_block():
    kernels = {}
    rows = 2
    for type, metal in (*TORCH_TYPES.items(), ("int32", "int"), ("int64", "long")):
        for threads, size in ((32, 100), (128, 500)):
            for stable in (False, True):
                name = f"sort_block_{metal}_tptg{threads}{'_stable' * stable}"
                buffers = [values(name, type, rows * size), _empty(type, rows * size)]
                buffers += [_empty("int64", rows * size), _number("i4", size)]
                buffers += [np.array([1, size]), np.array([stable])]
                text = f"sort_block<{metal}, {threads}, 4, {str(stable).lower()}>"
                grid = ((threads, rows, 1), (threads, 1, 1))
                kernels[name] = Kernel(text, buffers, _floats(1, type), *grid)
    return Group(TORCH, _SORT_HEADERS, kernels, sources=_SORT_SOURCES)


def _radix_count():
    kernels = {}
    rows, blocks = 2, 2
    for type, metal, threads, each, bits in (
        ("float32", "float", 512, 4, 8),
        ("float16", "half", 1024, 4, 8),
        ("bfloat16", "bfloat", 1024, 4, 8),
        ("int32", "int", 512, 4, 8),
        ("uint8", "uchar", 512, 8, 4),
    ):
        name = f"radix_count_{metal}_{bits}bit"
        size = threads * each + 100
        buffers = [values(name, type, rows * size), _empty("uint32", rows * blocks << bits)]
        buffers += [np.array([size, blocks, 0, 0], np.int32), np.array([False])]
        text = f"radix_count<{metal}, {threads}, {each}, {bits}>"
        grid = ((threads * blocks, rows, 1), (threads, 1, 1))
        kernels[name] = Kernel(text, buffers, {}, *grid)
    return Group(TORCH, _SORT_HEADERS, kernels, sources=_SORT_SOURCES)


_SORT_HEADERS = ["c10/metal/common.h", "c10/metal/indexing.h", "c10/metal/utils.h"]
_SORT_SOURCES = tuple(f"ATen/native/mps/kernels/{name}.h" for name in ("SortMerge", "SortRadix"))
_TIMES, _BATCH, _LABELS = 20, 3, 11
_TARGETS = [5, 0, 3]
_INPUTS = [20, 12, 9]


def _ctc():
    """The kernels of torch's ctc_loss; the arguments are those of ATen/native/mps/LossOps.mm."""
    kernels = {}
    states = 2 * max(_TARGETS) + 1
    threads = min(1024, states)
    for type, metal in TORCH_TYPES.items():
        for target in ("int", "long"):
            for index, dtype in (("int32_t", np.int32), ("int64_t", np.int64)):
                names = f"_{metal}_{target}_{index}"
                x = _random(names).normal(size=(_TIMES, _BATCH, _LABELS))
                x -= np.log(np.exp(x).sum(2, keepdims=True))
                cast = to_bfloat if type == "bfloat16" else lambda a, t=type: a.astype(TYPES[t][1])
                log_probs = cast(x.reshape(-1))
                labels = _random(names).integers(1, _LABELS, sum(_TARGETS))
                targets = labels.astype(np.int32 if target == "int" else np.int64)
                lengths = [np.array(given, dtype) for given in (_INPUTS, _TARGETS)]
                offsets = np.cumsum([0, *_TARGETS[:-1]]).astype(dtype)
                strides = [_BATCH * _LABELS, _LABELS, 1]
                alpha = [_TIMES * states, states, 1]
                sizes = [0, _TIMES, max(_TARGETS), _BATCH, 1, *strides, *alpha]
                parameters = np.array(sizes, dtype)
                shared = [log_probs, targets, *lengths, offsets]
                count = _BATCH * _TIMES * states
                grid = ((_BATCH * threads,), (threads,))
                kernels["ctc_loss" + names] = Kernel(
                    f"ctc_loss<{metal}, {target}, {index}>",
                    [_empty(type, _BATCH), _empty(type, count), *shared, parameters],
                    _floats(0, type) | _floats(1, type),
                    *grid,
                )
                kernels["ctc_loss_backward_log_beta" + names] = Kernel(
                    f"ctc_loss_backward_log_beta<{metal}, {target}, {index}, true>".replace(
                        ", true", ""
                    ),
                    [_empty(type, count), *shared, parameters],
                    _floats(0, type),
                    *grid,
                )
                middle = [cast(-abs(_random(names + "m").normal(size=count)) * 9) for _ in "ab"]
                sizes = [0, _TIMES, max(_TARGETS), _LABELS, 1, *strides, *alpha, *strides, 1, 0]
                kernels["ctc_loss_backward_collect" + names] = Kernel(
                    f"ctc_loss_backward_collect<{metal}, {target}, {index}>",
                    [
                        cast(np.full(log_probs.size, -np.inf)),
                        cast(np.ones(_BATCH)),
                        *middle,
                        log_probs,
                        targets,
                        *lengths,
                        cast(np.array([9.0, 8.0, 7.0])),
                        offsets,
                        np.array(sizes, dtype),
                    ],
                    _floats(0, type),
                    (_TIMES, _BATCH),
                    (_TIMES, 1),
                )
    path = "aten/src/ATen/native/mps/kernels/LossCTC.metal"
    source = ("https://github.com/pytorch/pytorch.git", "v2.14.1", path)
    return Group(TORCH, [], kernels, sources=(source,))


GROUPS = {
    "unary": _unary,
    "binary": _binary,
    "softmax": _softmax,
    "sort": _sort,
    "scan": _scan,
    "strided_scan": _strided_scan,
    "reduce": _reduce,
    "arg_reduce": _arg_reduce,
    "special_math": _special_math,
    "sort_block": _sort_block,
    "radix_count": _radix_count,
    "ctc": _ctc,
}


# ---- Wheels and texts


# The folder is deleted when the process ends.
_TEMPORARY = tempfile.TemporaryDirectory(prefix="apple-kernels-")


def _folder():
    return pathlib.Path(_TEMPORARY.name)


@functools.cache
def wheel(requirement):
    """Returns the path of a wheel for macOS.  Raises Unavailable."""
    package, _, version = requirement.partition("==")
    given = os.environ.get("MPS_EMULATOR_WHEELS")
    folder = pathlib.Path(given or _folder())
    if not given:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--platform=macosx_14_0_arm64", f"--dest={folder}"]
        done = subprocess.run([*command, requirement], capture_output=True, text=True)
        if done.returncode != 0:
            raise Unavailable(f"pip cannot download {requirement}: {done.stderr.strip()[-300:]}")
    found = sorted(folder.glob(f"{package.replace('-', '_')}-{version}-*macosx*.whl"))
    if not found:
        raise Unavailable(f"{folder} has no wheel of {requirement} for macOS")
    return found[-1]


@functools.cache
def libraries(requirement):
    """Returns the list of metallib.Metallibs of a wheel."""
    with zipfile.ZipFile(wheel(requirement)) as archive:
        name = next(
            n for n in archive.namelist() if n.endswith((".metallib", "libtorch_cpu.dylib"))
        )
        return metallib.find(archive.read(name))


@functools.cache
def headers(requirement):
    """Returns a folder with the headers of a wheel."""
    folder = _folder() / requirement
    with zipfile.ZipFile(wheel(requirement)) as archive:
        names = [n for n in archive.namelist() if "/include/" in n and n.endswith(".h")]
        archive.extractall(folder, names)
    return next(folder.iterdir()) / "include"


@functools.cache
def _checkout(repository, tag, path):
    """Returns a file of a repository.  Raises Unavailable."""
    folder = _folder() / pathlib.Path(repository).stem
    commands = []
    if not folder.exists():
        clone = ["git", "clone", "--quiet", "--depth=1", "--filter=blob:none", "--no-checkout"]
        commands.append([*clone, f"--branch={tag}", repository, folder])
    commands.append(["git", "-C", folder, "checkout", "--quiet", "HEAD", "--", path])
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            reason = done.stderr.strip().splitlines()[-1:]
            raise Unavailable(f"{path} of {repository} at {tag}: {''.join(reason)}")
    return folder / path


# ---- Both compiles


def text_of(group, names):
    """Returns the text of a group's kernels, with its headers in place."""
    lines = ["#include <metal_stdlib>", "using namespace metal;"]
    lines += [f'#include "{header}"' for header in group.includes]
    for source in group.sources:
        path = headers(group.wheel) / source if isinstance(source, str) else _checkout(*source)
        # Only the instances below are compiled, under the names that they have in the .metallib.
        instance = r"^\s*(instantiate|INSTANTIATE)_\w+\(.*?\);?\s*(?://.*)?$"
        lines.append(re.sub(instance, "", path.read_text(), flags=re.M))
    lines.append(group.head)
    for name in names:
        text = group.kernels[name].text
        lines.append(f'template [[host_name("{name}")]] [[kernel]] decltype({text}) {text};')
    with tempfile.NamedTemporaryFile("w", suffix=".metal") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        clang = toolchain.find_clang()
        command = toolchain.preprocess_command(clang, file.name, [str(headers(group.wheel))])
        status, printed = toolchain.run(command)
    assert status == 0, printed
    return printed


def run(library, name, kernel):
    """Returns the buffers after a run of a kernel."""
    buffers = [buffer.copy() for buffer in kernel.buffers]
    library.run(name, buffers, kernel.grid, kernel.threadgroup)
    return buffers


def differences(apple, ours, kernel):
    """Returns the number of elements that differ."""
    count = 0
    for index, (a, b) in enumerate(zip(apple, ours)):
        different = a.view(f"u{a.itemsize}") != b.view(f"u{b.itemsize}")
        if type := kernel.floats.get(index):
            different &= ~(_is_nan(a, type) & _is_nan(b, type))
        count += int(different.sum())
    return count


def _is_nan(array, type):
    if type == "bfloat16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return np.isnan(array)


def compare(metal, group, names):
    """Yields (name, schedule, number of different elements) for kernels of a group.

    Raises Unavailable, and native.CompileError.
    """
    text = text_of(group, names)
    container = libraries(group.wheel)[0]
    missing = [name for name in names if name not in container.kernels]
    assert not missing, f"the .metallib lacks {missing}"
    apple = metal.load(container.content, names)
    ours = metal.compile(text, fast_math=False)
    for name in names:
        kernel = group.kernels[name]
        for schedule in SCHEDULES:
            os.environ["MPS_EMULATOR_SCHEDULE"] = schedule
            results = [run(library, name, kernel) for library in (apple, ours)]
            written = any(
                (before != after).any() for before, after in zip(kernel.buffers, results[0])
            )
            assert written, f"{name} wrote nothing"
            yield name, schedule, differences(*results, kernel)
    os.environ.pop("MPS_EMULATOR_SCHEDULE", None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--group", choices=GROUPS, action="append")
    parser.add_argument("--only", default="", help="a regular expression for the names of kernels")
    parser.add_argument("--every", type=int, default=1, help="run only every Nth kernel")
    options = parser.parse_args()
    os.environ.setdefault("MPS_EMULATOR_PYTHON", sys.executable)
    metal = native.Metal()
    same, different = 0, 0
    for title in options.group or GROUPS:
        group = GROUPS[title]()
        names = [name for name in group.kernels if re.search(options.only, name)][:: options.every]
        try:
            found = list(compare(metal, group, names)) if names else []
        except Unavailable as reason:
            print(f"{title}: skipped: {reason}")
            continue
        wrong = {name for name, _, count in found if count}
        for name, schedule, count in found:
            if count:
                print(f"{title}: {name}, {schedule}: {count} elements differ")
        print(f"{title}: emulated, {len(names) - len(wrong)} of {len(names)} kernels the same")
        same += len(names) - len(wrong)
        different += len(wrong)
    print(f"emulated: {same} kernels the same to the bit as Apple compiled them, {different} not")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
