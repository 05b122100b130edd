# Copyright      2026  The k2-mps authors
#
# See ../../../LICENSE for clarification regarding multiple authors
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
'''Log-probs for the RNN-T losses whose joiner is an addition.

k2 normalizes these log-probs by matrix products of exponentials.  The
exponentials underflow if logits are large or in half precision.
'''
import functools
import math
from typing import Callable
from typing import Tuple

import torch

from .eager import eager

# The lower limit to which k2 clamps logs: the log of float64's smallest normal
# number.
_LEAST = math.log(torch.finfo(torch.float64).tiny)


def in_full_precision(function: Callable) -> Callable:
    '''Decorate a function whose first two arguments are lm and am.

    The function gets lm and am as torch.float32 if they are in half precision.
    The function runs without autocast, which would compute matrix products in
    half precision.
    '''

    @functools.wraps(function)
    def wrapper(lm, am, *args, **kwargs):
        lm, am = [
            x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
            for x in (lm, am)
        ]
        with torch.autocast(am.device.type, enabled=False):
            return function(lm, am, *args, **kwargs)

    return wrapper


@eager
def _is_low(sums: torch.Tensor) -> bool:
    '''Return whether a sum may be inexact because some of its terms
    underflowed.

    On CUDA, the host would have to wait for the result, so the answer is False
    there, and low sums stay inexact.
    '''
    if sums.is_cuda or sums.numel() == 0:
        return False
    return bool(sums.min() < _lowest(sums.dtype))


def _lowest(dtype: torch.dtype) -> float:
    '''Return the least sum that is exact enough: 1e-25 for torch.float32.

    A term that underflowed is less than the smallest normal number, which is
    1e-13 times this sum.
    '''
    return torch.finfo(dtype).tiny * 1e13


def log_products(products: torch.Tensor, lm: torch.Tensor, am: torch.Tensor
                 ) -> torch.Tensor:
    '''Return the log of the matrix product of exp(lm) and exp(am).

    Args:
      products:
        The product, of shape [B][S+1][T].
      lm, am:
        The logarithms of the factors, of shapes [B][S+1][C] and [B][T][C].
        Each element is at most 0.
    '''
    if not _is_low(products):
        return (products + torch.finfo(products.dtype).tiny).log()
    low = products < _lowest(products.dtype)
    b, s, t = low.nonzero(as_tuple=True)
    exact = (lm[b, s] + am[b, t]).clamp(min=_LEAST).logsumexp(dim=1)
    return products.masked_fill(low, 1).log().index_put((b, s, t), exact)


def average_lm(lm: torch.Tensor, am: torch.Tensor, lm_probs: torch.Tensor,
               am_probs: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    '''Compute the probability of each symbol by lm alone, and average it over
    all sequences and positions.

    Args:
      lm, am:
        Logits of at most 0, of shapes [B][S+1][C] and [B][T][C].
      lm_probs, am_probs:
        The exponentials of lm and am.
    Returns:
      The log of the average, of shape [1][1][C]; and the log of the sum,
      over the symbols, of am_probs * average, of shape [B][T][1].
    '''
    B, T, C = am.shape
    average = (lm_probs / lm_probs.sum(dim=2, keepdim=True)).mean(
        dim=(0, 1), keepdim=True)
    if not _is_low(average):
        average = average + torch.finfo(average.dtype).tiny
        sums = torch.mv(am_probs.reshape(-1, C), average.reshape(C))
        return average.log(), sums.reshape(B, T, 1).log()
    log_probs = lm.log_softmax(dim=2).clamp(min=_LEAST)
    average = log_probs.logsumexp(dim=(0, 1), keepdim=True) - math.log(
        lm.shape[0] * lm.shape[1])
    return average, (am + average).logsumexp(dim=2, keepdim=True)
