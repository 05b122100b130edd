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
'''The devices that k2 supports.'''
from typing import Union

import torch
from _k2.version import with_cuda, with_mps


def as_device(device: Union[str, torch.device]) -> torch.device:
    '''Return the value that ``tensor.device`` has for a tensor on `device`.

    Args:
      device:
        A device of type cpu, cuda or mps, or its name, e.g., 'cuda:0'.
    '''
    if isinstance(device, str):
        device = torch.device(device)
    assert device.type in ('cpu', 'cuda', 'mps'), (
        f'k2 supports no device {device}')
    if device.type == 'cuda' and with_mps and not with_cuda:
        raise RuntimeError("This k2 has no CUDA. Call .to('mps') for the GPU "
                           'of a Mac')
    # A tensor on mps has the device mps:0, which does not equal mps.
    return torch.device('mps', 0) if device.type == 'mps' else device
