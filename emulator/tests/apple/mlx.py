"""The kernels of mlx."""

import itertools

import numpy as np

from apple.kernel import (
    COUNT,
    FLOATS,
    INTEGERS,
    TYPES,
    Group,
    Kernel,
    as_type,
    empty,
    generator,
    if_float,
    number,
    values,
)

MLX = "mlx-metal==0.32.4"


def _headers(*headers):
    """Returns the paths of headers of mlx's kernels, after the header that all kernels need."""
    folder = "mlx/backend/metal/kernels"
    return [f"{folder}/utils.h", *(f"{folder}/{header}" for header in headers)]


def _unary():
    kernels = {}
    for operation in (
        "Abs ArcCos ArcCosh ArcSin ArcSinh ArcTan ArcTanh Ceil Cos Cosh Exp Expm1 Floor Log Log2"
        " Log10 Log1p Negative Sigmoid Erf ErfInv Sign Sin Sinh Square Sqrt Rsqrt Tan Tanh Round"
    ).split():
        types = FLOATS
        if operation in ("Abs", "Ceil", "Floor", "Negative", "Sign", "Square"):
            types += INTEGERS
        for type in types:
            metal = TYPES[type][0]
            name = f"v_{operation}{type}{type}"
            buffers = [values(name, type, COUNT), empty(type, COUNT), number("u4", COUNT)]
            text = f"unary_v<{metal}, {metal}, {operation}, 1>"
            kernels[name] = Kernel(text, buffers, if_float(1, type), (COUNT,), (64,))
    return Group(MLX, _headers("unary_ops.h", "unary.h"), kernels)


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
                values(name + "a", type, COUNT, positive),
                values(name + "b", type, COUNT, positive)[::-1].copy(),
                empty(result, COUNT),
                number("u4", COUNT),
            ]
            text = f"binary_vv<{metal}, {out}, {operation}, 1>"
            kernels[name] = Kernel(text, buffers, if_float(2, result), (COUNT,), (64,))
    return Group(MLX, _headers("binary_ops.h", "binary.h"), kernels)


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
                arguments = f"{TYPES[type][0]}, {accumulator}" if accumulator else TYPES[type][0]
                buffers = [
                    values(name, type, rows * size, special=False),
                    empty(type, rows * size),
                    number("i4", size),
                ]
                threads = 128 if kind == "block" else 64
                text = f"{function}<{arguments}>"
                kernels[name] = Kernel(
                    text, buffers, if_float(1, type), (rows * threads,), (threads,)
                )
    return Group(MLX, _headers("softmax.h"), kernels)


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
            buffers = [values(name, type, rows * size), empty(out, rows * size)]
            buffers += [number("i4", n) for n in (size, 1, 1, size, size)]
            kernels[name] = Kernel(text, buffers, if_float(1, out), (128, rows, 1), (128, 1, 1))
    return Group(MLX, _headers("sort.h"), kernels)


def _scan_kinds():
    """Yields (name, arguments of the template) for each kind of a scan."""
    for inclusive, reverse in itertools.product((True, False), (False, True)):
        direction = "reverse_" if reverse else ""
        kind = "inclusive" if inclusive else "exclusive"
        yield direction + kind, f"{str(inclusive).lower()}, {str(reverse).lower()}"


def _reads(type):
    """Returns the number of elements that a thread of a scan reads at once."""
    return 2 if type.endswith("64") else 4


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
        types = FLOATS if operation == "logaddexp" else FLOATS + INTEGERS
        for type, (kind, flags) in itertools.product(types, _scan_kinds()):
            name = f"contig_scan_{kind}_{operation}_{type}_{type}"
            metal = TYPES[type][0]
            arguments = f"{metal}, {metal}, {function}<{metal}>, {_reads(type)}, {flags}"
            if operation == "prod" and type in FLOATS:
                # A product of 900 other numbers would leave the range of the type.
                source = as_type(np.sign(generator(name).normal(size=rows * size)), type)
            else:
                source = values(name, type, rows * size, special=False)
            kernels[name] = Kernel(
                f"contiguous_scan<{arguments}>",
                [source, empty(type, rows * size), number("u8", size)],
                if_float(1, type),
                (128, rows, 1),
                (128, 1, 1),
            )
    return Group(MLX, _headers("binary_ops.h", "scan.h"), kernels)


def _strided_scan():
    kernels = {}
    rows, size, stride = 2, 70, 41
    blocks = (stride + 31) // 32
    types = ("float32", "float16", "int32", "uint32", "int64")
    for operation, function in (("sum", "CumSum"), ("prod", "CumProd"), ("max", "CumMax")):
        for type, (kind, flags) in itertools.product(types, _scan_kinds()):
            name = f"strided_scan_{kind}_{operation}_{type}_{type}"
            metal = TYPES[type][0]
            arguments = f"{metal}, {metal}, {function}<{metal}>, {_reads(type)}, {flags}"
            source = values(name, type, rows * size * stride, special=False)
            if operation == "prod" and type in FLOATS:
                # A product of 70 other numbers could leave the range of a half.
                source = np.sign(source)
            threads = 32 // _reads(type) * 32
            kernels[name] = Kernel(
                f"strided_scan<{arguments}>",
                [source, empty(type, source.size)]
                + [number("u8", n) for n in (size, stride, blocks)],
                if_float(1, type),
                (threads, rows * blocks, 1),
                (threads, 1, 1),
            )
    return Group(MLX, _headers("binary_ops.h", "scan.h"), kernels)


# {type of small integers: type in which mlx adds and multiplies them}.
_SUMS = {"uint8": "int32", "int8": "int32", "int16": "int32", "uint16": "uint32"}


def _reduce():
    kernels = {}
    for operation, function in (("sum", "Sum"), ("prod", "Prod"), ("min", "Min"), ("max", "Max")):
        for type in FLOATS + INTEGERS:
            out = _SUMS.get(type, type) if operation in ("sum", "prod") else type
            metal, result = TYPES[type][0], TYPES[out][0]
            rows, size = 4, 900
            name = f"all_reduce_{operation}{type}"
            source = values(name, type, rows * size, special=False)
            kernels[name] = Kernel(
                f"all_reduce<{metal}, {result}, {function}<{result}>>",
                [source, empty(out, rows), number("u8", rows * size), number("u8", size)],
                if_float(1, out),
                (64, rows, 1),
                (64, 1, 1),
            )
            name = f"row_reduce_simple_{operation}{type}"
            kernels[name] = Kernel(
                f"row_reduce_simple<{metal}, {result}, {function}<{result}>>",
                [source, empty(out, rows), number("u8", size), number("i8", rows)],
                if_float(1, out),
                (64, 1, 1),
                (64, 1, 1),
            )
    return Group(MLX, _headers("atomic.h", "reduction/ops.h", "reduce.h"), kernels)


def _arg_reduce():
    kernels = {}
    rows, size = 3, 500
    for operation, function in (("argmin", "ArgMin"), ("argmax", "ArgMax")):
        for type in TYPES:
            name = f"{operation}_{type}"
            metal = TYPES[type][0]
            buffers = [
                values(name, type, rows * size, special=False),
                empty("uint32", rows),
                np.array([rows], np.int32),
                np.array([size], np.int64),
                np.array([1], np.int64),
                number("u8", 1),
                number("i8", 1),
                number("u8", size),
            ]
            text = f"arg_reduce_general<{metal}, {function}<{metal}>>"
            kernels[name] = Kernel(text, buffers, {}, (64, rows, 1), (64, 1, 1))
    path = "mlx/backend/metal/kernels/arg_reduce.metal"
    source = ("https://github.com/ml-explore/mlx.git", "v0.32.1", path)
    return Group(MLX, [], kernels, sources=(source,))


GROUPS = {
    "unary": _unary,
    "binary": _binary,
    "softmax": _softmax,
    "sort": _sort,
    "scan": _scan,
    "strided_scan": _strided_scan,
    "reduce": _reduce,
    "arg_reduce": _arg_reduce,
}
