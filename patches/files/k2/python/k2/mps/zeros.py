# Copyright      2026  The k2-mps authors
#
# See ../../../../LICENSE for clarification regarding multiple authors
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
'''Tensors of zeros that the host goes on with.'''
import torch
import _k2

# A fill by the GPU has to be waited for, which takes a host longer than to
# write this many bytes itself.
_MAX_BYTES = 1 << 20


def zero(*size, dtype: torch.dtype, device: torch.device,
         requires_grad: bool = False) -> torch.Tensor:
    '''Return a tensor of zeros, for k2 to write to next.

    Args:
      size, dtype, device, requires_grad:
        As for ``torch.zeros``.
    Returns:
      What ``torch.zeros`` returns.  A small tensor on mps is written by the
      host, which then has nothing to wait for.
    '''
    if device.type == 'mps' and dtype == torch.float32:
        shape = size if isinstance(size[0], int) else tuple(size[0])
        if 4 * torch.Size(shape).numel() <= _MAX_BYTES:
            return _k2.mps_zeros(shape).requires_grad_(requires_grad)
    return torch.zeros(*size, dtype=dtype, device=device,
                       requires_grad=requires_grad)
