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
'''Errors of one line that say what is on the wrong device, and what to call.

k2's own checks in C++ remain; their message is a stack.
'''
import torch


def check_graph_and_dense(graph, dense) -> None:
    '''Raise unless a decoding graph and a DenseFsaVec are on one device.

    Args:
      graph:
        A k2.Fsa.
      dense:
        A k2.DenseFsaVec.
    '''
    if graph.device == dense.device:
        return
    move = f"make it of log_probs.to('{graph.device}')"
    if graph.device.type == 'cpu':
        move = f"call graph.to('{dense.device}')"
    raise RuntimeError(
        f'The decoding graph is on {graph.device} and the DenseFsaVec is on '
        f'{dense.device}: {move}.')


def check_dense_input(log_probs: torch.Tensor,
                      supervision_segments: torch.Tensor) -> None:
    '''Raise if a DenseFsaVec does not take the dtype or the device.

    Args:
      log_probs, supervision_segments:
        As for k2.DenseFsaVec.
    '''
    assert log_probs.dtype == torch.float32, (
        f'log_probs is {log_probs.dtype} on {log_probs.device}, and k2 takes '
        'torch.float32: call log_probs.float().')
    assert supervision_segments.device.type == 'cpu', (
        f'supervision_segments is on {supervision_segments.device} with '
        f'log_probs on {log_probs.device}, and k2 reads it on the cpu: call '
        'supervision_segments.cpu().')
    assert supervision_segments.dtype == torch.int32, (
        f'supervision_segments is {supervision_segments.dtype}, and k2 takes '
        'torch.int32: call supervision_segments.int().')
