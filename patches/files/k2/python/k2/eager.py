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
'''Functions that torch.compile and torch.func cannot trace.'''
import functools
from typing import Callable

import torch


def _no() -> bool:
    return False


# Old releases of torch lack these functions.
_compiler = getattr(torch, 'compiler', None)
is_compiling = getattr(_compiler, 'is_dynamo_compiling', _no)
_is_transformed = getattr(torch._C, '_are_functorch_transforms_active', _no)


def eager(function: Callable) -> Callable:
    '''Decorate a function that passes tensors to `_k2`.

    torch.compile breaks its graph at the function, without a warning.  Under
    torch.func, the function raises a RuntimeError, because the tensors of
    torch.func have no memory.
    '''

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if is_compiling():
            return torch.compiler.disable(wrapper)(*args, **kwargs)
        if _is_transformed():
            raise RuntimeError(
                f'k2 cannot run {function.__qualname__} under torch.func. Use '
                'torch.autograd.grad() in place of torch.func.grad(), and a '
                'batch in place of torch.func.vmap().')
        return function(*args, **kwargs)

    return wrapper
