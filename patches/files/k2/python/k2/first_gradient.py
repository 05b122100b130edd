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
'''Gradients that autograd cannot differentiate.'''
import functools
from typing import Callable

import torch


def first_gradient_only(backward: Callable) -> Callable:
    '''Decorate the backward() of an autograd function that calls `_k2`.

    With create_graph=True, the decorated function raises a RuntimeError.
    ``torch.autograd.function.once_differentiable`` would not suffice, because
    it raises only when the result is differentiated with respect to the
    incoming gradient.  It would not raise for second gradients with respect to
    the arguments of forward(), although these gradients would lack a term.
    '''

    @functools.wraps(backward)
    def wrapper(ctx, *out_grads):
        if torch.is_grad_enabled():
            raise RuntimeError(
                'k2 cannot differentiate twice, because autograd cannot '
                f'differentiate {backward.__qualname__}. Leave out '
                'create_graph=True.')
        return backward(ctx, *out_grads)

    return wrapper
