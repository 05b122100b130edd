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
'''Gradients of scores on mps: sums of the values that have the same index.'''
from typing import Any
from typing import Optional
from typing import Sequence
from typing import Tuple

import torch
import _k2

# The host writes this many bytes of zeros in less time than a wait for the GPU
# takes.
_MAX_BYTES = 1 << 20


def index_sums(index: torch.Tensor, values: torch.Tensor,
               shape: Sequence[int]) -> torch.Tensor:
    '''Return, for each index, the sum of the values that have this index.

    The result is first filled with zeros.  Then the host adds each value to an
    element of the result.  The GPU writes the zeros of a large result.  The
    host itself writes the zeros of a small result, so that it need not wait for
    the GPU.

    Args:
      index:
        A 1-D tensor of torch.int32 on mps: for each value, its index on axis 0
        of the result, or -1 to leave the value out.
      values:
        A tensor on mps.
      shape:
        The shape of the result.
    '''
    shape = torch.Size(shape)
    if len(shape) > 2 or values.dtype in (torch.float16, torch.bfloat16):
        # torch adds the values with index -1 to a row that is left out.
        more = values.new_zeros((shape[0] + 1, *shape[1:]))
        return more.index_add_(0, index + 1, values)[1:]
    if values.dtype == torch.float32 and 4 * shape.numel() <= _MAX_BYTES:
        ans = _k2.mps_zeros(shape)
    else:
        ans = torch.zeros(shape, dtype=values.dtype, device=values.device)
    _k2.index_add(index, values, ans)
    return ans


def intersect_gradients(ctx: Any, out_fsa_grad: torch.Tensor
                        ) -> Tuple[Optional[torch.Tensor], ...]:
    '''Return the gradients of both inputs of a dense intersection; None for
    an input that needs none.

    Args:
      ctx:
        The context of the intersection's autograd function.
      out_fsa_grad:
        The gradient of the scores of the lattice.
    '''
    maps = ctx.arc_map_a, ctx.arc_map_b
    return tuple(
        index_sums(arc_map, out_fsa_grad, (scores.numel(),)).view(scores.shape)
        if scores.requires_grad else None
        for arc_map, scores in zip(maps, ctx.saved_tensors))
