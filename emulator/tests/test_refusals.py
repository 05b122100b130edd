"""Tests that the emulator refuses, with torch's message, what torch's mps kernels refuse on a Mac.

The messages were read from torch's libtorch_cpu.dylib for macOS.  FROM and UNTIL give the releases
that have a message, if not all supported releases have the message.
"""

import re

import pytest
import torch
import torch.nn.functional as F


def ones(*sizes, dtype=torch.float32):
    return torch.ones(sizes, dtype=dtype, device="mps")


def eye(dtype):
    return torch.eye(3, dtype=dtype, device="mps")


MINOR = int(torch.__version__.split(".")[1])

# {message: the minor version of the first release of torch 2 that no longer has the message}.
UNTIL = {"linalg.lu_factor(): MPS doesn't support complex types.": 15}

# {message: the minor version of the first release of torch 2 that has the message}.  Torch 2.13 has
# all messages that are not in FROM.
FROM = {
    "igamma_mps not implemented for Long": 14,
    "\"histc_mps\" not implemented for 'Bool'": 15,
    "log_softmax with half to float conversion is not supported on MPS": 15,
}

# Pairs of lines: a part of a message, and a call that is refused with this message.  The table has
# only some of the messages about dtypes, because oracle.py tests which dtypes torch refuses.  The
# table has all messages that are not about dtypes.
REFUSED = """
Adaptive pool MPS: input sizes must be divisible by output sizes
    F.adaptive_avg_pool2d(ones(1, 1, 7, 7), 3)
Adaptive pool MPS: output sizes must be divisible by input sizes
    F.adaptive_avg_pool2d(ones(1, 1, 3, 3), 7)
Adaptive pool MPS: Input height and width must both be greater than
    F.adaptive_avg_pool2d(ones(1, 1, 4, 3), (2, 6))
ConvTranspose 3D with BF16 or FP16 types is not supported on MPS
    F.conv_transpose3d(ones(1, 2, 3, 3, 3, dtype=torch.half), ones(2, 2, 2, 2, 2, dtype=torch.half))
Convolution is supported only for Floating types
    F.conv2d(ones(1, 1, 3, 3, dtype=torch.long), ones(1, 1, 2, 2, dtype=torch.long))
MPS device does not support linear for non-float inputs
    F.linear(ones(2, 3, dtype=torch.int), ones(4, 3))
MPS device does not support linear for non-float weights
    F.linear(ones(2, 3), ones(4, 3, dtype=torch.int8))
MPS device does not support linear for non-float bias
    F.linear(ones(2, 3), ones(4, 3), ones(4, dtype=torch.int))
_weight_int4pack_mm_mps : expect B to be 4d tensor of int32.
    torch._weight_int4pack_mm(ones(2, 32), ones(1, 2, 16, dtype=torch.int), 32, ones(1, 8, 2))
MPS supports tensors with dimensions <= 16, but got 17.
    ones(*[1] * 17)
LSTM with projections is not currently supported with MPS.
    torch.nn.LSTM(4, 4, proj_size=2).to('mps')(ones(3, 1, 4))
softmax with half to float conversion is not supported on MPS
    torch._softmax(ones(3, dtype=torch.half), 0, True)
linalg.lu_factor(): MPS doesn't support complex types.
    torch.linalg.lu_factor(eye(torch.cfloat))
normal_kernel_mps not implemented for 'Int'
    ones(3, dtype=torch.int).normal_()
Failed to create function state object for: renorm_float2
    torch.renorm(eye(torch.cfloat), 2, 0, 1)
scaled_dot_product_attention for MPS does not support dropout.
    F.scaled_dot_product_attention(*[ones(1, 1, 4, 8)] * 3, dropout_p=0.5)
bincount is not supported for Bool
    torch.bincount(ones(3, dtype=torch.bool))
nextafter_mps not implemented for non-floating types
    torch.nextafter(*[ones(2, dtype=torch.long)] * 2)
gcd_mps not implemented for Float
    torch.gcd(ones(2), ones(2))
native_dropout_mps: input must be a floating-point or complex tensor, got Long
    torch.native_dropout(ones(2, dtype=torch.long), 0.5, True)
scaled_dot_product_attention for MPS does not support dtype Int
    F.scaled_dot_product_attention(*[ones(1, 1, 4, 8, dtype=torch.int)] * 3)
expected input and grid to have the same type, but got Float and Half
    F.grid_sample(ones(1, 1, 4, 4), ones(1, 2, 2, 2, dtype=torch.half))
expected mask dtype to be Bool but got Int
    ones(3).masked_fill(ones(3, dtype=torch.int), 1)
linalg.lu_factor(): MPS doesn't allow pivot == False.
    torch.linalg.lu_factor(ones(2, 2), pivot=False)
expected mat1 and mat2 to have the same dtype, but got: float != c10::Half
    torch.mm(ones(2, 2), ones(2, 2, dtype=torch.half))
Expected arguments of same type but got Float and Half
    torch.bmm(ones(2, 2, 2), ones(2, 2, 2, dtype=torch.half))
Tensor for argument input is on cpu but expected on mps
    F.linear(torch.ones(2, 2), ones(2, 2))
Tensor for argument weight is on cpu but expected on mps
    F.linear(ones(2, 2), torch.ones(2, 2))
Tensor for argument bias is on cpu but expected on mps
    F.linear(ones(2, 2), ones(2, 2), torch.ones(2))
Expected a 'mps' device type for generator but found 'cpu'
    torch.rand(3, device='mps', generator=torch.Generator())
input(device='cpu') and weight(device=mps:0')  must be on the same device
    F.conv2d(torch.ones(1, 3, 8, 8), ones(1, 3, 3, 3))
and weight type (torch.FloatTensor) should be the same
    F.conv2d(ones(1, 3, 8, 8), torch.ones(1, 3, 3, 3))
igamma_mps not implemented for Long
    torch.igamma(*[ones(2, dtype=torch.long)] * 2)
"histc_mps" not implemented for 'Bool'
    torch.histc(ones(3, dtype=torch.bool))
log_softmax with half to float conversion is not supported on MPS
    torch._log_softmax(ones(3, dtype=torch.half), 0, True)
"""


@pytest.mark.parametrize("message, call", re.findall(r"^(\S.*)\n +(.+)$", REFUSED, re.MULTILINE))
def test_refusals_of_a_mac(message, call):
    if FROM.get(message, 0) <= MINOR < UNTIL.get(message, MINOR + 1):
        with pytest.raises((RuntimeError, TypeError), match=re.escape(message)):
            eval(call)
        return
    try:
        eval(call)
    except (RuntimeError, TypeError) as error:  # an error with another message is allowed
        assert message not in str(error)


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
