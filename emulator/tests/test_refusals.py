"""Tests that the emulator refuses, with torch's message, what torch's mps kernels refuse on a Mac.

The messages were read from torch's libtorch_cpu.dylib for macOS.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F


def ones(*sizes, dtype=torch.float32):
    return torch.ones(sizes, dtype=dtype, device="mps")


def eye(dtype):
    return torch.eye(3, dtype=dtype, device="mps")


MINOR = int(torch.__version__.split(".")[1])


class Refused(NamedTuple):
    """A call that is refused."""

    message: str  # a part of the message
    call: Callable[[], object]
    since: int = 13  # the minor version of the first release of torch 2 that has the message
    until: int = 99  # the minor version of the first later release that lacks the message


# The lists have only some of the messages about dtypes, because oracle.py tests which dtypes torch
# refuses.  They have all messages that are not about dtypes.

DEVICES = [
    Refused(
        "Tensor for argument input is on cpu but expected on mps",
        lambda: F.linear(torch.ones(2, 2), ones(2, 2)),
    ),
    Refused(
        "Tensor for argument weight is on cpu but expected on mps",
        lambda: F.linear(ones(2, 2), torch.ones(2, 2)),
    ),
    Refused(
        "Tensor for argument bias is on cpu but expected on mps",
        lambda: F.linear(ones(2, 2), ones(2, 2), torch.ones(2)),
    ),
    Refused(
        "input(device='cpu') and weight(device=mps:0')  must be on the same device",
        lambda: F.conv2d(torch.ones(1, 3, 8, 8), ones(1, 3, 3, 3)),
    ),
    Refused(
        "and weight type (torch.FloatTensor) should be the same",
        lambda: F.conv2d(ones(1, 3, 8, 8), torch.ones(1, 3, 3, 3)),
    ),
    Refused(
        "Expected a 'mps' device type for generator but found 'cpu'",
        lambda: torch.rand(3, device="mps", generator=torch.Generator()),
    ),
]

SHAPES = [
    Refused("MPS supports tensors with dimensions <= 16, but got 17.", lambda: ones(*[1] * 17)),
    Refused(
        "Adaptive pool MPS: input sizes must be divisible by output sizes",
        lambda: F.adaptive_avg_pool2d(ones(1, 1, 7, 7), 3),
    ),
    Refused(
        "Adaptive pool MPS: output sizes must be divisible by input sizes",
        lambda: F.adaptive_avg_pool2d(ones(1, 1, 3, 3), 7),
    ),
    Refused(
        "Adaptive pool MPS: Input height and width must both be greater than",
        lambda: F.adaptive_avg_pool2d(ones(1, 1, 4, 3), (2, 6)),
    ),
    Refused(
        "_weight_int4pack_mm_mps : expect B to be 4d tensor of int32.",
        lambda: torch._weight_int4pack_mm(
            ones(2, 32), ones(1, 2, 16, dtype=torch.int), 32, ones(1, 8, 2)
        ),
    ),
]

OPTIONS = [
    Refused(
        "LSTM with projections is not currently supported with MPS.",
        lambda: torch.nn.LSTM(4, 4, proj_size=2).to("mps")(ones(3, 1, 4)),
    ),
    Refused(
        "scaled_dot_product_attention for MPS does not support dropout.",
        lambda: F.scaled_dot_product_attention(*[ones(1, 1, 4, 8)] * 3, dropout_p=0.5),
    ),
    Refused(
        "linalg.lu_factor(): MPS doesn't allow pivot == False.",
        lambda: torch.linalg.lu_factor(ones(2, 2), pivot=False),
    ),
    Refused(
        "softmax with half to float conversion is not supported on MPS",
        lambda: torch._softmax(ones(3, dtype=torch.half), 0, True),
    ),
    Refused(
        "log_softmax with half to float conversion is not supported on MPS",
        lambda: torch._log_softmax(ones(3, dtype=torch.half), 0, True),
        since=15,
    ),
]

TWO_DTYPES = [
    Refused(
        "expected input and grid to have the same type, but got Float and Half",
        lambda: F.grid_sample(
            ones(1, 1, 4, 4), ones(1, 2, 2, 2, dtype=torch.half), align_corners=False
        ),
    ),
    Refused(
        "expected mat1 and mat2 to have the same dtype, but got: float != c10::Half",
        lambda: torch.mm(ones(2, 2), ones(2, 2, dtype=torch.half)),
    ),
    Refused(
        "Expected arguments of same type but got Float and Half",
        lambda: torch.bmm(ones(2, 2, 2), ones(2, 2, 2, dtype=torch.half)),
    ),
]

ONE_DTYPE = [
    # Matrices and linear algebra.
    Refused(
        "MPS device does not support linear for non-float inputs",
        lambda: F.linear(ones(2, 3, dtype=torch.int), ones(4, 3)),
    ),
    Refused(
        "MPS device does not support linear for non-float weights",
        lambda: F.linear(ones(2, 3), ones(4, 3, dtype=torch.int8)),
    ),
    Refused(
        "MPS device does not support linear for non-float bias",
        lambda: F.linear(ones(2, 3), ones(4, 3), ones(4, dtype=torch.int)),
    ),
    Refused(
        "linalg.lu_factor(): MPS doesn't support complex types.",
        lambda: torch.linalg.lu_factor(eye(torch.cfloat)),
        until=15,
    ),
    # Networks.
    Refused(
        "Convolution is supported only for Floating types",
        lambda: F.conv2d(ones(1, 1, 3, 3, dtype=torch.long), ones(1, 1, 2, 2, dtype=torch.long)),
    ),
    Refused(
        "ConvTranspose 3D with BF16 or FP16 types is not supported on MPS",
        lambda: F.conv_transpose3d(
            ones(1, 2, 3, 3, 3, dtype=torch.half), ones(2, 2, 2, 2, 2, dtype=torch.half)
        ),
    ),
    Refused(
        "scaled_dot_product_attention for MPS does not support dtype Int",
        lambda: F.scaled_dot_product_attention(*[ones(1, 1, 4, 8, dtype=torch.int)] * 3),
    ),
    Refused(
        "native_dropout_mps: input must be a floating-point or complex tensor, got Long",
        lambda: torch.native_dropout(ones(2, dtype=torch.long), 0.5, True),
    ),
    # Functions of each element.
    Refused(
        "nextafter_mps not implemented for non-floating types",
        lambda: torch.nextafter(*[ones(2, dtype=torch.long)] * 2),
    ),
    Refused("gcd_mps not implemented for Float", lambda: torch.gcd(ones(2), ones(2))),
    Refused(
        "igamma_mps not implemented for Long",
        lambda: torch.igamma(*[ones(2, dtype=torch.long)] * 2),
        since=14,
    ),
    Refused(
        "Failed to create function state object for: renorm_float2",
        lambda: torch.renorm(eye(torch.cfloat), 2, 0, 1),
    ),
    # Counts, masks and random numbers.
    Refused(
        "bincount is not supported for Bool", lambda: torch.bincount(ones(3, dtype=torch.bool))
    ),
    Refused(
        "\"histc_mps\" not implemented for 'Bool'",
        lambda: torch.histc(ones(3, dtype=torch.bool)),
        since=15,
    ),
    Refused(
        "expected mask dtype to be Bool but got Int",
        lambda: ones(3).masked_fill(ones(3, dtype=torch.int), 1),
    ),
    Refused(
        "normal_kernel_mps not implemented for 'Int'", lambda: ones(3, dtype=torch.int).normal_()
    ),
]


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(refused, id=refused.message)
        for refused in [*DEVICES, *SHAPES, *OPTIONS, *TWO_DTYPES, *ONE_DTYPE]
    ],
)
def test_refusals_of_a_mac(refused):
    if refused.since <= MINOR < refused.until:
        with pytest.raises((RuntimeError, TypeError), match=re.escape(refused.message)):
            refused.call()
        return
    try:
        refused.call()
    except (RuntimeError, TypeError) as error:  # an error with another message is allowed
        assert refused.message not in str(error)


def test_calls_like_the_refused_ones_are_accepted():
    F.adaptive_avg_pool2d(ones(1, 1, 6, 6), 3)
    F.adaptive_avg_pool2d(ones(1, 1, 3, 3), 6)
    torch.baddbmm(*[ones(2, 2, 2, dtype=torch.cfloat)] * 3)
    ones(*[1] * 16)
    query = ones(1, 1, 4, 8).requires_grad_()
    F.scaled_dot_product_attention(query, query, query, dropout_p=0.5)


def test_cat_refuses_an_operand_as_its_result():
    x = torch.zeros(0, device="mps")
    with pytest.raises(RuntimeError, match="unsupported operation"):
        torch.cat((x, ones(4, 6)), out=x)
