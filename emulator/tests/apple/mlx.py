"""The kernels of mlx."""

import numpy as np

from apple.kernel import (
    COUNT,
    FLOATS,
    INTEGERS,
    TYPES,
    Group,
    Kernel,
    empty,
    generator,
    if_float,
    number,
    to_bfloat,
    values,
)

MLX = "mlx-metal==0.32.4"


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
            buffers = [values(name, type, COUNT), empty(type, COUNT), number("u4", COUNT)]
            text = f"unary_v<{metal}, {metal}, {operation}, 1>"
            kernels[name] = Kernel(text, buffers, if_float(1, type), (COUNT,), (64,))
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
                values(name + "a", type, COUNT, positive),
                values(name + "b", type, COUNT, positive)[::-1].copy(),
                empty(result, COUNT),
                number("u4", COUNT),
            ]
            text = f"binary_vv<{metal}, {out}, {operation}, 1>"
            kernels[name] = Kernel(text, buffers, if_float(2, result), (COUNT,), (64,))
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
                    empty(type, rows * size),
                    number("i4", size),
                ]
                threads = 128 if kind == "block" else 64
                text = f"{function}<{arguments}>"
                kernels[name] = Kernel(
                    text, buffers, if_float(1, type), (rows * threads,), (threads,)
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
            buffers = [values(name, type, rows * size), empty(out, rows * size)]
            buffers += [number("i4", n) for n in (size, 1, 1, size, size)]
            kernels[name] = Kernel(text, buffers, if_float(1, out), (128, rows, 1), (128, 1, 1))
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
                        empty(type, rows * size),
                        number("u8", size),
                    ]
                    if operation == "prod" and type in FLOATS:
                        signs = np.sign(generator(name).normal(size=rows * size)).astype(np.float32)
                        buffers[0] = (
                            to_bfloat(signs) if type == "bfloat16" else signs.astype(TYPES[type][1])
                        )
                    kernels[name] = Kernel(
                        text, buffers, if_float(1, type), (128, rows, 1), (128, 1, 1)
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
                    numbers = [number("u8", n) for n in (size, stride, blocks)]
                    kernels[name] = Kernel(
                        f"strided_scan<{metal}, {metal}, {function}<{metal}>, {flags}>",
                        [source, empty(type, source.size), *numbers],
                        if_float(1, type),
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
