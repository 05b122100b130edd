"""Kernels for the tests.  Each function encodes a kernel on torch's stream and does not wait."""

import functools

import torch

SOURCE = """
kernel void axpy(device float *y, device const float *x, constant float &alpha,
                 uint i [[thread_position_in_grid]]) {
  y[i] += alpha * x[i];
}
kernel void fill_with_index(device int *out, uint i [[thread_position_in_grid]]) {
  out[i] = int(i);
}
kernel void poke_at(device float *out, constant long &index) {
  out[index] = 1.0f;
}
"""


@functools.cache
def _library():
    return torch.mps.compile_shader(SOURCE)


def axpy(x: torch.Tensor, y: torch.Tensor, alpha: float) -> None:
    """Adds alpha * x to y.  x and y are float32 vectors of the same length."""
    _library().axpy(y, x, alpha, group_size=64)


def fill_with_index(out: torch.Tensor) -> None:
    """Sets out[i] = i for all elements of an int32 vector."""
    _library().fill_with_index(out)


def poke_at(out: torch.Tensor, index: int) -> None:
    """Sets out[index] = 1 in a float32 vector, without a check of the index."""
    _library().poke_at(out, index, threads=1)
