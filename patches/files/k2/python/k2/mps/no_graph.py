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
'''Keeps torch.compile from compiling functions on mps.'''
import functools
from typing import Callable

import torch

from ..eager import is_compiling


def no_graph(function: Callable) -> Callable:
    '''Decorate a function that calls torch's operators.

    If an argument is a tensor on mps, torch.compile does not compile the
    function, but calls it between two compiled graphs.  Up to torch 2.14, if
    two values in a compiled graph have the same mask, the graph can use one of
    the values in place of the other.
    '''

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if is_compiling():
            for x in (*args, *kwargs.values()):
                if isinstance(x, torch.Tensor) and x.device.type == 'mps':
                    return torch.compiler.disable(function)(*args, **kwargs)
        return function(*args, **kwargs)

    return wrapper
