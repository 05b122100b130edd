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
'''k2 on torch's ``mps`` device.

FSAs, ragged tensors and inputs of losses move to mps as they do to CUDA::

    fsa = fsa.to('mps')

Programs see one difference: tensors on mps cannot be float64.
``use_double_scores=True`` still computes in double precision, but k2 returns
the result as ``torch.float32``.
k2 raises a ``TypeError`` for a ragged tensor of ``torch.float64`` on mps.
'''
import importlib
import os
from typing import Any

import torch
import _k2

# The module of each public name that is not defined here.
_MODULES = {
    'public_scores': '.scores',
}


class _Module:
    '''A module of this package, which is loaded when it is first used.'''

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


def __getattr__(name: str) -> Any:
    # `import k2` loads no module that is used on mps only.
    if name in _MODULES:
        module = importlib.import_module(_MODULES[name], __name__)
        value = getattr(module, name)
    elif os.path.isfile(os.path.join(__path__[0], f'{name}.py')):
        value = _Module(f'{__name__}.{name}')
    else:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return globals().setdefault(name, value)


def is_available() -> bool:
    '''Return whether k2 can use the device mps here.'''
    return _k2.version.with_mps and torch.backends.mps.is_available()


__all__ = [*_MODULES, 'is_available']
