"""The emulator refuses what torch's mps kernels refuse on a Mac, with torch's message.

The messages are those in torch's libtorch_cpu.dylib for macOS, in the releases that FROM and
UNTIL name.
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

# The first minor release of torch 2 whose library lacks the message.
UNTIL = {
    "linalg.lu_factor(): MPS only supports floats.": 14,
    "linalg_qr: MPS currently supports float32 only": 14,
    "Mish for complex is not supported for MPS": 14,
    "mse_loss_out_mps: only defined for floating types": 14,
    "Long batch norm is not supported with MPS": 14,
    "Batch norm for complex is not supported for MPS": 14,
    "linalg.lu_factor(): MPS doesn't support complex types.": 15,
    "softmax only supported for floating types": 15,
    "linalg.solve.triangular(); Only float is supported!": 15,
    "nlld_loss for complex is not supported for MPS": 15,
    "relu is not supported for complex types": 15,
    "upsample for MPS does not support complex inputs": 15,
    "log_softmax for bool is not supported for MPS": 15,
    "log_softmax for complex is not supported for MPS": 15,
    "histogram is only supported for float32": 15,
    "Not implemented for long": 15,
    "linalg.lu_solve(): MPS only supports float32.": 15,
}

# The first minor release whose library has the message; the others are in 2.13.
FROM = {
    "igamma_mps not implemented for Long": 14,
    "igammac_mps not implemented for Long": 14,
    "kthvalue_mps not implemented for Bool": 14,
    "median_mps not implemented for Bool": 14,
    "batch_norm is not implemented for Long on MPS": 14,
    "\"cummax\" not implemented for 'ComplexFloat'": 14,
    "\"cummin\" not implemented for 'ComplexFloat'": 14,
    "\"logaddexp2_mps\" not implemented for 'ComplexFloat'": 14,
    "geqrf: MPS currently supports float32 only": 14,
    "linalg.cross: not implemented for 'Bool'": 14,
    "linalg.lu_solve(): MPS only supports float32.": 14,
    "Adaptive max pooling for complex is not supported for MPS": 14,
    "nll_loss is not implemented for ComplexFloat on MPS": 15,
    "softplus not implemented for Long": 15,
    "addcmul_mps not implemented for 'Bool'": 15,
    "bernoulli is not implemented for complex types on MPS": 15,
    "\"histc_mps\" not implemented for 'Bool'": 15,
    "\"histogram_mps\" not implemented for 'Long'": 15,
    "log_softmax with half to float conversion is not supported on MPS": 15,
    "log_softmax not implemented on MPS for Bool": 15,
    "softmax not implemented on MPS for Bool": 15,
}

# A part of the message; below it, the call that is refused.
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
MPS device does not support addr for non-float input
    torch.addr(ones(2, 3, dtype=torch.int), ones(2), ones(3))
MPS device does not support addbmm or baddbmm for this input type
    torch.baddbmm(*[ones(2, 2, 2, dtype=torch.bool)] * 3)
MPS supports tensors with dimensions <= 16, but got 17.
    ones(*[1] * 17)
LSTM with projections is not currently supported with MPS.
    torch.nn.LSTM(4, 4, proj_size=2).to('mps')(ones(3, 1, 4))
Long batch norm is not supported with MPS
    F.batch_norm(ones(2, 3, dtype=torch.long), None, None, training=True)
Batch norm for complex is not supported for MPS
    F.batch_norm(ones(2, 3, dtype=torch.cfloat), None, None, training=True)
log_softmax for bool is not supported for MPS
    F.log_softmax(ones(3, dtype=torch.bool), 0)
log_softmax for complex is not supported for MPS
    F.log_softmax(ones(3, dtype=torch.cfloat), 0)
softmax with half to float conversion is not supported on MPS
    torch._softmax(ones(3, dtype=torch.half), 0, True)
linalg.lu_factor(): MPS doesn't support complex types.
    torch.linalg.lu_factor(eye(torch.cfloat))
linalg.lu_factor(): MPS only supports floats.
    torch.linalg.solve(eye(torch.cfloat), eye(torch.cfloat))
linalg.solve.triangular(); Only float is supported!
    torch.linalg.solve_triangular(eye(torch.cfloat), eye(torch.cfloat), upper=True)
normal_kernel_mps not implemented for 'Int'
    ones(3, dtype=torch.int).normal_()
Failed to create function state object for: renorm_float2
    torch.renorm(eye(torch.cfloat), 2, 0, 1)
cholesky_inverse: MPS only supports float type!
    torch.cholesky_inverse(eye(torch.cfloat))
linalg_qr: MPS currently supports float32 only
    torch.linalg.qr(eye(torch.cfloat))
linalg_inv: not supported for complex types yet!
    torch.linalg.inv(eye(torch.cfloat))
index_reduce for MPS does not support torch.long dtype
    ones(2, dtype=torch.long).index_reduce(0, ones(2).long(), ones(2, dtype=torch.long), 'amax')
scaled_dot_product_attention for MPS does not support dropout.
    F.scaled_dot_product_attention(*[ones(1, 1, 4, 8)] * 3, dropout_p=0.5)
_upsample_bilineard2d_aa_out_mps only supports floating-point dtypes
    F.interpolate(ones(1, 1, 4, 4, dtype=torch.uint8), (2, 2), mode='bilinear', antialias=True)
bincount is not supported for Bool
    torch.bincount(ones(3, dtype=torch.bool))
huber_loss for complex is not supported for MPS
    F.huber_loss(ones(3, dtype=torch.cfloat), ones(3, dtype=torch.cfloat))
nextafter_mps not implemented for non-floating types
    torch.nextafter(*[ones(2, dtype=torch.long)] * 2)
xlog1py_mps not implemented for non-floating types
    torch.special.xlog1py(*[ones(2, dtype=torch.cfloat)] * 2)
gcd_mps not implemented for Float
    torch.gcd(ones(2), ones(2))
lcm_mps not implemented for Float
    torch.lcm(ones(2), ones(2))
bitwise_left_shift not implemented for Float
    torch.bitwise_left_shift(ones(2), ones(2))
bitwise_right_shift not implemented for Bool
    torch.bitwise_right_shift(*[ones(2, dtype=torch.bool)] * 2)
Mish for complex is not supported for MPS
    F.mish(ones(2, dtype=torch.cfloat))
relu is not supported for complex types
    F.relu(ones(2, dtype=torch.cfloat))
random_mps handles only integral, floating-point and boolean types
    ones(2, dtype=torch.cfloat).random_()
native_dropout_mps: input must be a floating-point or complex tensor, got Long
    torch.native_dropout(ones(2, dtype=torch.long), 0.5, True)
frac_out_mps is only implemented for floating types
    torch.frac(ones(2, dtype=torch.long))
nlld_loss for complex is not supported for MPS
    F.nll_loss(ones(2, 3, dtype=torch.cfloat), ones(2, dtype=torch.long))
Max pooling for complex is not supported for MPS
    F.max_pool2d(ones(1, 1, 4, 4, dtype=torch.cfloat), 2, return_indices=True)
Not implemented for complex
    F.avg_pool2d(ones(1, 1, 4, 4, dtype=torch.cfloat), 2)
Not implemented for long
    F.softplus(ones(2, dtype=torch.long))
Not implemented for long on MPS
    F.layer_norm(ones(2, 3, dtype=torch.long), (3,))
softmax only supported for floating types
    F.softmax(ones(2, dtype=torch.bool), 0)
scaled_dot_product_attention for MPS does not support dtype Int
    F.scaled_dot_product_attention(*[ones(1, 1, 4, 8, dtype=torch.int)] * 3)
histogram is only supported for float32
    torch.histogram(ones(3, dtype=torch.half), 3)
expected input and grid to have the same type, but got Float and Half
    F.grid_sample(ones(1, 1, 4, 4), ones(1, 2, 2, 2, dtype=torch.half))
expected mask dtype to be Bool but got Int
    ones(3).masked_fill(ones(3, dtype=torch.int), 1)
masked_scatter: expected BoolTensor or ByteTensor for mask
    ones(3).masked_scatter(ones(3, dtype=torch.int), ones(3))
mse_loss_out_mps: only defined for floating types
    F.mse_loss(*[ones(2, dtype=torch.cfloat)] * 2)
MPS doesn't know how to do square_i64
    F.smooth_l1_loss(*[ones(2, dtype=torch.long)] * 2)
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
igammac_mps not implemented for Long
    torch.igammac(*[ones(2, dtype=torch.long)] * 2)
kthvalue_mps not implemented for Bool
    torch.kthvalue(ones(3, dtype=torch.bool), 1)
median_mps not implemented for Bool
    torch.median(ones(3, dtype=torch.bool))
batch_norm is not implemented for Long on MPS
    F.batch_norm(ones(2, 3, dtype=torch.long), None, None, training=True)
"cummax" not implemented for 'ComplexFloat'
    torch.cummax(ones(3, dtype=torch.cfloat), 0)
"cummin" not implemented for 'ComplexFloat'
    torch.cummin(ones(3, dtype=torch.cfloat), 0)
"logaddexp2_mps" not implemented for 'ComplexFloat'
    torch.logaddexp2(*[ones(2, dtype=torch.cfloat)] * 2)
geqrf: MPS currently supports float32 only
    torch.geqrf(eye(torch.cfloat))
linalg.cross: not implemented for 'Bool'
    torch.linalg.cross(*[ones(3, dtype=torch.bool)] * 2)
linalg.lu_solve(): MPS only supports float32.
    torch.linalg.lu_solve(eye(torch.cfloat), ones(3, dtype=torch.int), eye(torch.cfloat))
Adaptive max pooling for complex is not supported for MPS
    F.adaptive_max_pool2d(ones(1, 1, 4, 4, dtype=torch.cfloat), 2)
nll_loss is not implemented for ComplexFloat on MPS
    F.nll_loss(ones(2, 3, dtype=torch.cfloat), ones(2, dtype=torch.long))
softplus not implemented for Long
    F.softplus(ones(2, dtype=torch.long))
addcmul_mps not implemented for 'Bool'
    torch.addcmul(*[ones(2, dtype=torch.bool)] * 3)
bernoulli is not implemented for complex types on MPS
    ones(3, dtype=torch.cfloat).bernoulli_(0.5)
"histc_mps" not implemented for 'Bool'
    torch.histc(ones(3, dtype=torch.bool))
"histogram_mps" not implemented for 'Long'
    torch.histogram(ones(3, dtype=torch.long), 3)
log_softmax with half to float conversion is not supported on MPS
    torch._log_softmax(ones(3, dtype=torch.half), 0, True)
log_softmax not implemented on MPS for Bool
    F.log_softmax(ones(3, dtype=torch.bool), 0)
softmax not implemented on MPS for Bool
    F.softmax(ones(2, dtype=torch.bool), 0)
"""


@pytest.mark.parametrize("message, call", re.findall(r"^(\S.*)\n +(.+)$", REFUSED, re.MULTILINE))
def test_refusals_of_a_mac(message, call):
    if FROM.get(message, 0) <= MINOR < UNTIL.get(message, MINOR + 1):
        with pytest.raises((RuntimeError, TypeError), match=re.escape(message)):
            eval(call)
        return
    try:
        eval(call)
    except (RuntimeError, TypeError) as error:  # another one may be there
        assert message not in str(error)


def test_what_stands_beside_them_is_accepted():
    F.adaptive_avg_pool2d(ones(1, 1, 6, 6), 3)
    F.adaptive_avg_pool2d(ones(1, 1, 3, 3), 6)
    F.conv_transpose3d(ones(1, 2, 3, 3, 3), ones(2, 2, 2, 2, 2))
    torch.baddbmm(*[ones(2, 2, 2, dtype=torch.cfloat)] * 3)
    ones(*[1] * 16)
    torch.nn.LSTM(4, 4).to("mps")(ones(3, 1, 4))
    query = ones(1, 1, 4, 8).requires_grad_()
    F.scaled_dot_product_attention(query, query, query, dropout_p=0.5)


def test_no_operand_of_cat_is_its_result():
    x = torch.zeros(0, device="mps")
    with pytest.raises(RuntimeError, match="unsupported operation"):
        torch.cat((x, ones(4, 6)), out=x)
