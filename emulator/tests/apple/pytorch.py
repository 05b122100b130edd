"""The kernels of PyTorch."""

import numpy as np

from apple.kernel import COUNT, Group, Kernel, as_type, empty, generator, if_float, number, values

TORCH = "torch==2.14.1"
# {type of mlx: its name in torch's kernels}.
TORCH_TYPES = {"float32": "float", "float16": "half", "bfloat16": "bfloat"}
# Kernels of torch with the names of functions in c10/metal/special_math.h.
_SPECIAL = (
    "bessel_j0_forward bessel_y0_forward digamma entr erf erfc erfcx erfinv i0 i0e i1 i1e"
    " modified_bessel_i0_forward modified_bessel_i1_forward modified_bessel_k0_forward"
    " modified_bessel_k1_forward scaled_modified_bessel_k0_forward"
    " scaled_modified_bessel_k1_forward sinc spherical_bessel_j0 trigamma"
).split()
# torch converts the arguments of these functions to float.
_FLOAT_ONLY = ("digamma", "trigamma")


def _special_math():
    head = ""
    for name in _SPECIAL:
        x = "static_cast<float>(x)" if name in _FLOAT_ONLY else "x"
        head += (
            f"struct {name}_functor {{ template <typename T> T operator()(const T x) {{"
            f" return static_cast<T>(c10::metal::{name}({x})); }} }};\n"
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
# The shape of the batch for ctc_loss, and the lengths of its sequences.
_TIMES, _BATCH, _LABELS = 20, 3, 11
_INPUTS = [20, 12, 9]
_TARGETS = [5, 0, 3]
# The states of the longest sequence: each of its targets, and the blanks around each target.
_STATES = 2 * max(_TARGETS) + 1


def _ctc():
    """Returns the kernels of torch's ctc_loss, whose arguments LossOps.mm of torch also gives."""
    kernels = {}
    for type in TORCH_TYPES:
        for target in ("int", "long"):
            for index in ("int32_t", "int64_t"):
                kernels |= _ctc_of_types(type, target, index)
    path = "aten/src/ATen/native/mps/kernels/LossCTC.metal"
    source = ("https://github.com/pytorch/pytorch.git", "v2.14.1", path)
    return Group(TORCH, [], kernels, sources=(source,))


def _ctc_of_types(type, target, index):
    """Returns the three kernels of ctc_loss for three types: of log-probs, targets and lengths."""
    metal = TORCH_TYPES[type]
    types = f"<{metal}, {target}, {index}>"
    suffix = f"_{metal}_{target}_{index}"
    integer = {"int32_t": np.int32, "int64_t": np.int64}[index]
    batch = _ctc_batch(suffix, type, target, integer)
    return {
        "ctc_loss" + suffix: _ctc_loss(types, type, integer, batch),
        "ctc_loss_backward_log_beta" + suffix: _ctc_log_beta(types, type, integer, batch),
        "ctc_loss_backward_collect" + suffix: _ctc_collect(types, type, integer, batch, suffix),
    }


_LOG_PROBS_STRIDES = [_BATCH * _LABELS, _LABELS, 1]
_TABLE_STRIDES = [_TIMES * _STATES, _STATES, 1]
_TABLE_SIZE = _BATCH * _TIMES * _STATES
# The grid and the threadgroup of the two kernels that fill a table.
_TABLE_GRID = ((_BATCH * _STATES,), (_STATES,))


def _ctc_batch(suffix, type, target, integer):
    """Returns the arrays of a batch: log-probs, targets, the lengths of both, offsets of targets.

    Args:
      suffix: the numbers depend on this text.
    """
    x = generator(suffix).normal(size=(_TIMES, _BATCH, _LABELS))
    x -= np.log(np.exp(x).sum(2, keepdims=True))
    log_probs = as_type(x.reshape(-1), type)
    targets = generator(suffix).integers(1, _LABELS, sum(_TARGETS))
    targets = targets.astype(np.int32 if target == "int" else np.int64)
    lengths = [np.array(_INPUTS, integer), np.array(_TARGETS, integer)]
    offsets = np.cumsum([0, *_TARGETS[:-1]]).astype(integer)
    return [log_probs, targets, *lengths, offsets]


def _table_sizes(integer):
    sizes = [0, _TIMES, max(_TARGETS), _BATCH, 1, *_LOG_PROBS_STRIDES, *_TABLE_STRIDES]
    return np.array(sizes, integer)


def _ctc_loss(types, type, integer, batch):
    return Kernel(
        f"ctc_loss{types}",
        [empty(type, _BATCH), empty(type, _TABLE_SIZE), *batch, _table_sizes(integer)],
        if_float(0, type) | if_float(1, type),
        *_TABLE_GRID,
    )


def _ctc_log_beta(types, type, integer, batch):
    return Kernel(
        f"ctc_loss_backward_log_beta{types}",
        [empty(type, _TABLE_SIZE), *batch, _table_sizes(integer)],
        if_float(0, type),
        *_TABLE_GRID,
    )


def _ctc_collect(types, type, integer, batch, suffix):
    log_probs, targets, *lengths, offsets = batch
    table = as_type(-abs(generator(suffix + "m").normal(size=_TABLE_SIZE)) * 9, type)
    sizes = [0, _TIMES, max(_TARGETS), _LABELS, 1]
    sizes += [*_LOG_PROBS_STRIDES, *_TABLE_STRIDES, *_LOG_PROBS_STRIDES, 1, 0]
    return Kernel(
        f"ctc_loss_backward_collect{types}",
        [
            as_type(np.full(log_probs.size, -np.inf), type),
            as_type(np.ones(_BATCH), type),
            table,
            table,
            log_probs,
            targets,
            *lengths,
            as_type(np.array([9.0, 8.0, 7.0]), type),
            offsets,
            np.array(sizes, integer),
        ],
        if_float(0, type),
        (_TIMES, _BATCH),
        (_TIMES, 1),
    )


GROUPS = {
    "special_math": _special_math,
    "sort_block": _sort_block,
    "radix_count": _radix_count,
    "ctc": _ctc,
}
