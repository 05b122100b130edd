"""The kernels of PyTorch."""

import numpy as np

from apple.kernel import (
    COUNT,
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

TORCH = "torch==2.14.1"
# {type of mlx: its name in torch's kernels}.
TORCH_TYPES = {"float32": "float", "float16": "half", "bfloat16": "bfloat"}
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
            buffers = [empty(type, COUNT), values(name, type, COUNT), number("u4", COUNT)]
            text = f"c10::metal::unary_dense<{metal}, {operation}_functor>"
            # A thread computes four elements.
            kernels[name] = Kernel(text, buffers, if_float(0, type), ((COUNT + 3) // 4,), (32,))
    return Group(TORCH, ["c10/metal/special_math.h", "c10/metal/indexing.h"], kernels, head=head)


def _sort_block():
    kernels = {}
    rows = 2
    for type, metal in (*TORCH_TYPES.items(), ("int32", "int"), ("int64", "long")):
        for threads, size in ((32, 100), (128, 500)):
            for stable in (False, True):
                name = f"sort_block_{metal}_tptg{threads}{'_stable' * stable}"
                buffers = [values(name, type, rows * size), empty(type, rows * size)]
                buffers += [empty("int64", rows * size), number("i4", size)]
                buffers += [np.array([1, size]), np.array([stable])]
                text = f"sort_block<{metal}, {threads}, 4, {str(stable).lower()}>"
                grid = ((threads, rows, 1), (threads, 1, 1))
                kernels[name] = Kernel(text, buffers, if_float(1, type), *grid)
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
        buffers = [values(name, type, rows * size), empty("uint32", rows * blocks << bits)]
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
                x = generator(names).normal(size=(_TIMES, _BATCH, _LABELS))
                x -= np.log(np.exp(x).sum(2, keepdims=True))
                cast = to_bfloat if type == "bfloat16" else lambda a, t=type: a.astype(TYPES[t][1])
                log_probs = cast(x.reshape(-1))
                labels = generator(names).integers(1, _LABELS, sum(_TARGETS))
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
                    [empty(type, _BATCH), empty(type, count), *shared, parameters],
                    if_float(0, type) | if_float(1, type),
                    *grid,
                )
                kernels["ctc_loss_backward_log_beta" + names] = Kernel(
                    f"ctc_loss_backward_log_beta<{metal}, {target}, {index}, true>".replace(
                        ", true", ""
                    ),
                    [empty(type, count), *shared, parameters],
                    if_float(0, type),
                    *grid,
                )
                middle = [cast(-abs(generator(names + "m").normal(size=count)) * 9) for _ in "ab"]
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
                    if_float(0, type),
                    (_TIMES, _BATCH),
                    (_TIMES, 1),
                )
    path = "aten/src/ATen/native/mps/kernels/LossCTC.metal"
    source = ("https://github.com/pytorch/pytorch.git", "v2.14.1", path)
    return Group(TORCH, [], kernels, sources=(source,))


GROUPS = {
    "special_math": _special_math,
    "sort_block": _sort_block,
    "radix_count": _radix_count,
    "ctc": _ctc,
}
