"""The emulator refuses what torch's mps kernels refuse on a Mac, with torch's message.

The messages are those in the libtorch_cpu.dylib of torch 2.13 for macOS.
"""

import pytest
import torch
import torch.nn.functional as F


def ones(*sizes, dtype=torch.float32):
    return torch.ones(sizes, dtype=dtype, device="mps")


def eye(dtype):
    return torch.eye(3, dtype=dtype, device="mps")


REFUSED = {
    "Adaptive pool MPS: input sizes must be divisible by output sizes": lambda: F.adaptive_avg_pool2d(
        ones(1, 1, 7, 7), 3
    ),
    "Adaptive pool MPS: output sizes must be divisible by input sizes": lambda: F.adaptive_avg_pool2d(
        ones(1, 1, 3, 3), 7
    ),
    "Adaptive pool MPS: Input height and width must both be greater than": lambda: F.adaptive_avg_pool2d(
        ones(1, 1, 4, 3), (2, 6)
    ),
    "ConvTranspose 3D with BF16 or FP16 types is not supported on MPS": lambda: F.conv_transpose3d(
        ones(1, 2, 3, 3, 3, dtype=torch.half), ones(2, 2, 2, 2, 2, dtype=torch.half)
    ),
    "Convolution is supported only for Floating types": lambda: F.conv2d(
        ones(1, 1, 3, 3, dtype=torch.long), ones(1, 1, 2, 2, dtype=torch.long)
    ),
    "MPS device does not support linear for non-float inputs": lambda: F.linear(
        ones(2, 3, dtype=torch.int), ones(4, 3)
    ),
    "MPS device does not support linear for non-float weights": lambda: F.linear(
        ones(2, 3), ones(4, 3, dtype=torch.int8)
    ),
    "MPS device does not support linear for non-float bias": lambda: F.linear(
        ones(2, 3), ones(4, 3), ones(4, dtype=torch.int)
    ),
    "MPS device does not support addr for non-float input": lambda: torch.addr(
        ones(2, 3, dtype=torch.int), ones(2), ones(3)
    ),
    "MPS device does not support addbmm or baddbmm for this input type": lambda: torch.baddbmm(
        *[ones(2, 2, 2, dtype=torch.bool)] * 3
    ),
    "MPS supports tensors with dimensions <= 16, but got 17.": lambda: ones(*[1] * 17),
    "LSTM with projections is not currently supported with MPS.": lambda: torch.nn.LSTM(
        4, 4, proj_size=2
    ).to("mps")(ones(3, 1, 4)),
    "Long batch norm is not supported with MPS": lambda: F.batch_norm(
        ones(2, 3, dtype=torch.long), None, None, training=True
    ),
    "Batch norm for complex is not supported for MPS": lambda: F.batch_norm(
        ones(2, 3, dtype=torch.cfloat), None, None, training=True
    ),
    "log_softmax for bool is not supported for MPS": lambda: F.log_softmax(
        ones(3, dtype=torch.bool), 0
    ),
    "log_softmax for complex is not supported for MPS": lambda: F.log_softmax(
        ones(3, dtype=torch.cfloat), 0
    ),
    "softmax with half to float conversion is not supported on MPS": lambda: torch._softmax(
        ones(3, dtype=torch.half), 0, True
    ),
    "linalg.lu_factor(): MPS doesn't support complex types.": lambda: torch.linalg.lu_factor(
        eye(torch.cfloat)
    ),
    "linalg.lu_factor(): MPS only supports floats.": lambda: torch.linalg.solve(
        eye(torch.cfloat), eye(torch.cfloat)
    ),
    "linalg.solve.triangular(); Only float is supported!": lambda: torch.linalg.solve_triangular(
        eye(torch.cfloat), eye(torch.cfloat), upper=True
    ),
    "normal_kernel_mps not implemented for 'Int'": lambda: ones(3, dtype=torch.int).normal_(),
    "Failed to create function state object for: renorm_float2": lambda: torch.renorm(
        eye(torch.cfloat), 2, 0, 1
    ),
    "cholesky_inverse: MPS only supports float type!": lambda: torch.cholesky_inverse(
        eye(torch.cfloat)
    ),
    "linalg_qr: MPS currently supports float32 only": lambda: torch.linalg.qr(eye(torch.cfloat)),
    "linalg_inv: not supported for complex types yet!": lambda: torch.linalg.inv(eye(torch.cfloat)),
    "index_reduce for MPS does not support torch.long dtype": lambda: ones(
        3, dtype=torch.long
    ).index_reduce(0, torch.tensor([0, 1], device="mps"), ones(2, dtype=torch.long), "amax"),
    "scaled_dot_product_attention for MPS does not support dropout.": lambda: F.scaled_dot_product_attention(
        *[ones(1, 1, 4, 8)] * 3, dropout_p=0.5
    ),
    "Failed to create function state object for: upsample_bilinear2d_aa_uchar": lambda: F.interpolate(
        ones(1, 1, 4, 4, dtype=torch.uint8), scale_factor=0.5, mode="bilinear", antialias=True
    ),
    "bincount is not supported for Bool": lambda: torch.bincount(ones(3, dtype=torch.bool)),
    "huber_loss for complex is not supported for MPS": lambda: F.huber_loss(
        ones(3, dtype=torch.cfloat), ones(3, dtype=torch.cfloat)
    ),
    "input(device='cpu') and weight(device=mps:0')  must be on the same device": lambda: F.conv2d(
        torch.ones(1, 3, 8, 8), ones(1, 3, 3, 3)
    ),
    "and weight type (torch.FloatTensor) should be the same": lambda: F.conv2d(
        ones(1, 3, 8, 8), torch.ones(1, 3, 3, 3)
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals_of_a_mac(message):
    with pytest.raises(RuntimeError) as caught:
        REFUSED[message]()
    assert message in str(caught.value)


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
