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
'''Algorithms that k2 has only for the CPU, called with objects on mps.'''
from typing import Any
from typing import Callable

import torch


def _move(value: Any, device: torch.device) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_move(v, device) for v in value)
    # An Fsa, a RaggedTensor, a RaggedShape, or a Tensor.
    return value.to(device) if hasattr(value, 'to') else value


def on_cpu(function: Callable, *args: Any) -> Any:
    '''Call a function with copies of its arguments on the CPU.

    Args:
      function:
        Takes and returns FSAs, ragged tensors, tensors, lists and tuples of
        these objects, and objects that have no device.
      args:
        The function's arguments, at least one of which is on mps.
    Returns:
      The function's results, copied to mps.  Autograd records the copies of
      FSAs and tensors, so gradients flow back to the arguments.
    '''
    ans = function(*_move(args, torch.device('cpu')))
    return _move(ans, torch.device('mps', 0))
