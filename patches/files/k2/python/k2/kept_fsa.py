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
'''The arcs of an Fsa, as a forward pass read them, for the backward pass.

An Fsa writes assigned labels and scores into the memory of its arcs.  A
backward pass that has not run yet may still need what was there.
'''
import weakref
from typing import Tuple

import torch
import _k2
import k2

# What keep() has returned, by id(), as long as a backward pass may need it.
_alive = weakref.WeakValueDictionary()

# For save_for_backward(), if there is no tensor to save.  A backward pass that
# reads it raises torch's error if another one has freed the graph.
NOTHING = torch.empty(0)


def keep(fsas: 'k2.Fsa') -> 'k2.Fsa':
    '''Return an Fsa for a backward pass, without a copy.

    If labels or scores are assigned to `fsas` later, `fsas` gets new arcs, see
    :func:`leave_arcs`, and the returned Fsa keeps the arcs and the cache.

    Args:
      fsas:
        The Fsa that the forward pass reads.
    Returns:
      An Fsa without attributes.  The backward pass must call :func:`kept` with
      it.
    '''
    ans = object.__new__(type(fsas))
    arcs = fsas.arcs
    attributes = fsas.__dict__
    labels, scores = views = attributes['_views']
    labels_version, scores_version = versions = labels._version, scores._version
    ans.__dict__.update({
        'arcs': arcs,
        '_views': views,
        '_versions': versions,
        '_scores_version': scores_version,
        '_tensor_attr': {'labels': labels, 'scores': scores},
        '_non_tensor_attr': {'labels_version': labels_version},
        '_cache': attributes['_cache'],
        '_properties': attributes['_properties']})
    _alive[id(ans)] = ans
    return ans


def kept(fsas: 'k2.Fsa', needs_labels: bool = False) -> 'k2.Fsa':
    '''Return what :func:`keep` returned.

    Args:
      needs_labels:
        Whether the backward pass reads the labels.
    Raises:
      RuntimeError: an operation in place has changed the scores of the arcs,
      or the labels that the backward pass reads.
    '''
    labels, scores = (before != tensor._version for before, tensor in zip(
        fsas._versions, fsas._views))
    if scores or (labels and needs_labels):
        name = 'scores' if scores else 'labels'
        raise RuntimeError(
            'One of the variables needed for gradient computation has been '
            f'modified by an inplace operation: the {name} of an Fsa. Assign '
            f'another tensor instead: fsa.{name} = x')
    return fsas


def leave_arcs(fsas: 'k2.Fsa', name: str) -> None:
    '''Give `fsas` a copy of its arcs if a backward pass needs the arcs.

    Args:
      name:
        What the caller is about to write into the arcs: 'labels' or 'scores'.
    '''
    if not _alive:
        return
    begin, end = _memory(fsas)
    # Other threads may add to _alive, but not to this list.
    alive = [reference() for reference in _alive.valuerefs()]
    memories = [_memory(kept) for kept in alive if kept is not None]
    if not any(first < end and begin < last for first, last in memories):
        return
    if name == 'scores':
        # Raise if the labels have changed in place.  The copy would hide that.
        fsas.properties
    arcs = fsas.__dict__['arcs']
    scores = fsas._tensor_attr['scores']
    is_view = scores.data_ptr() == fsas._views[1].data_ptr()
    fsas.__dict__['arcs'] = _k2.RaggedArc(arcs.shape(), arcs.values().clone())
    fsas.__dict__['_cache'] = dict(fsas.__dict__['_cache'])
    fsas._set_views_of_arcs()
    fsas.labels_version = fsas._tensor_attr['labels']._version
    if scores.requires_grad or not is_view:
        fsas._tensor_attr['scores'] = scores
        fsas.__dict__['_scores_version'] = scores._version


def _memory(fsas: 'k2.Fsa') -> Tuple[int, int]:
    '''Return where the labels begin and end in the memory of the device.'''
    labels: torch.Tensor = fsas._views[0]
    begin = labels.data_ptr()
    return begin, begin + labels.shape[0] * labels.stride(0) * 4


def follow_scores(fsas: 'k2.Fsa') -> None:
    '''Do what an assignment does, because an operation in place has changed
    fsas.scores: write the scores into the arcs, and drop what the cache has of
    the old scores.'''
    attributes = fsas.__dict__
    scores = attributes['_tensor_attr']['scores']
    attributes['_scores_version'] = scores._version
    if scores.data_ptr() == fsas._views[1].data_ptr():
        fsas._invalidate_cache_()
    else:
        fsas.scores = scores
