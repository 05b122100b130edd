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
'''Tensors of an Fsa under torch.inference_mode().

Tensors that are made in inference mode have no version, and autograd does not
accept them later.  But an Fsa that is used in inference mode may be used with
autograd later, with the same tensors in its cache and its attributes.
'''
import functools
from typing import Callable

import torch


# Old releases of torch have no inference mode.
_EXISTS = hasattr(torch, 'is_inference_mode_enabled')


def outside_inference_mode(function: Callable) -> Callable:
    '''Decorate a function that makes tensors which an Fsa keeps.  These tensors
    must have no gradient.'''

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if not (_EXISTS and torch.is_inference_mode_enabled()):
            return function(*args, **kwargs)
        # inference_mode(False) alone would turn autograd on.
        with torch.inference_mode(False), torch.no_grad():
            return function(*args, **kwargs)

    return wrapper


@outside_inference_mode
def to_keep(value: torch.Tensor) -> torch.Tensor:
    '''Return `value`, or a copy of it if it was made in inference mode.'''
    return value.clone() if _EXISTS and value.is_inference() else value
