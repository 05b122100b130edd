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
'''Pickles of k2's objects, for files and for other processes.

multiprocessing shares the memory of tensors in a pickle.  Sharing fails if two
tensors have the same memory, or if torch's allocator did not make the memory.
Both cases occur with tensors that k2 returns.  So k2 copies the values to the
CPU, and puts the copies into the pickle.
'''
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any, List, Tuple, Union

import torch
from _k2.ragged import RaggedShape, RaggedTensor, create_ragged_shape2


class _Device(torch.storage.TypedStorage):
    '''Represents a device in a pickle.

    torch.save() writes this storage and its device, and torch.load() moves the
    storage to map_location, if that is given.  Other pickles contain only the
    device's name.  (torch plans to have only one class of storages.  That class
    must then be the base class here.)
    '''

    def __new__(cls, device: torch.device) -> '_Device':
        # torch's __new__ does not return an object of the subclass.
        ans = object.__new__(cls)
        ans._untyped_storage = torch.empty(
            1, dtype=torch.uint8, device=device).untyped_storage()
        ans.dtype = torch.uint8
        return ans

    def __init__(self, device: torch.device) -> None:
        pass

    def __reduce__(self) -> Tuple:
        return str, (str(self._untyped_storage.device),)

    def __deepcopy__(self, memo: dict) -> '_Device':
        return self


def freeze(state: Any, device: torch.device) -> Tuple:
    '''Return arguments for thaw().  A __reduce__() puts them into a pickle.

    Args:
      state:
        An object on the CPU that can be pickled.
      device:
        The device to which thaw() moves the object.
    '''
    return pickle.dumps(state), _Device(device)


def thaw(state: bytes, device: Union[str, torch.storage.TypedStorage]
         ) -> Tuple[Any, torch.device]:
    '''Return the arguments that freeze() received.'''
    if not isinstance(device, str):
        device = device._untyped_storage.device
    return pickle.loads(state), torch.device(device)


def _row_splits(shape: RaggedShape) -> List[torch.Tensor]:
    shape = shape.to('cpu')
    return [shape.row_splits(i).clone() for i in range(1, shape.num_axes)]


def _shape(row_splits: List[torch.Tensor]) -> RaggedShape:
    ans = create_ragged_shape2(row_splits[0])
    for each in row_splits[1:]:
        ans = ans.compose(create_ragged_shape2(each))
    return ans


def _reduce_shape(self: RaggedShape) -> Tuple:
    return _restore_shape, freeze(_row_splits(self), torch.device(self.device))


def _restore_shape(*frozen) -> RaggedShape:
    row_splits, device = thaw(*frozen)
    return _shape(row_splits).to(device)


def _reduce_tensor(self: RaggedTensor) -> Tuple:
    state = (_row_splits(self.shape), self.values.detach().cpu().clone(),
             self.requires_grad)
    return _restore_tensor, freeze(state, self.device)


def _restore_tensor(*frozen) -> RaggedTensor:
    (row_splits, values, requires_grad), device = thaw(*frozen)
    ans = RaggedTensor(_shape(row_splits), values).to(device)
    return ans.requires_grad_(True) if requires_grad else ans


RaggedShape.__reduce__ = _reduce_shape
# Only pickles for multiprocessing use _reduce_tensor().  torch.save() writes
# the tensors of a RaggedTensor, so that torch.load() can move them, and can
# read them with weights_only=True.
ForkingPickler.register(RaggedTensor, _reduce_tensor)
