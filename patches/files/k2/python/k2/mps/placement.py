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
'''Where an operation on mps runs, in Metal or on the host, and why.'''
import json
import os
import platform
import sys
import warnings
from pathlib import Path
from typing import Any, Dict, List, Optional

import _k2

from . import not_taken


def path_of_costs() -> Optional[Path]:
    '''Return the path of the file with the costs that were measured here.

    Returns:
      The value of the environment variable K2_MPS_COSTS, or None if the
      variable is empty.  If the variable is not set, the path of a file in the
      user's cache folder.
    '''
    given = os.environ.get('K2_MPS_COSTS')
    if given is not None:
        return Path(given) if given else None
    if sys.platform == 'darwin':
        caches = Path.home() / 'Library' / 'Caches'
    else:
        caches = Path(os.environ.get('XDG_CACHE_HOME')
                      or Path.home() / '.cache')
    return caches / 'k2' / 'mps-costs.json'


def saved_costs() -> Dict[str, Any]:
    '''Return this machine's entry in the file path_of_costs().

    Returns:
      A dict with three keys.  'device' is the GPU's name, 'date' is the date of
      the measurement, and 'costs' maps the name of each operation to its costs.
      The dict is empty if this machine was not measured.
    '''
    path = path_of_costs()
    if path is None or not path.is_file():
        return {}
    return json.loads(path.read_text()).get(platform.node(), {})


def use_saved_costs() -> None:
    '''Replace k2's costs by the costs that were measured on this machine, if
    there are any.  Warn if the file is not valid.'''
    if not placements():
        return
    try:
        saved = saved_costs()
        for operation, costs in saved.get('costs', {}).items():
            _k2.mps_set_costs(operation, costs['host'], costs['step'],
                              costs['call'])
    except Exception as error:  # noqa: a bad file must not stop `import k2`
        warnings.warn(f'k2 cannot read the costs in {path_of_costs()}: '
                      f'{error}.  Delete the file, or measure again.')


def placements() -> List:
    '''Return a ``_k2.MpsPlacement`` for each operation that both Metal and the
    host can do; an empty list if k2 was built without mps.'''
    if not hasattr(_k2, 'mps_placements'):
        return []
    return _k2.mps_placements()


def _explain(placement) -> str:
    reason = not_taken.reason_of(placement.operation)
    if reason:
        return f'{placement.operation}: not by Metal: {reason}'
    if placement.num_calls == 0:
        return f'{placement.operation}: not called yet'
    who = 'Metal' if placement.last_is_metal else 'the host'
    costs = placement.costs
    host = costs.host * placement.last_work / 1e6
    metal = (costs.step * placement.last_steps + costs.call) / 1e6
    estimate = (f'{metal:.3g} ms by Metal for {placement.last_steps:g} '
                f'{placement.steps}, {host:.3g} ms by the host for '
                f'{placement.last_work:g} {placement.work}')
    forced = ', as K2_MPS_FORCE says' if placement.last_is_forced else ''
    return f'{placement.operation}: {who}{forced}; estimated times: {estimate}'


def explain() -> str:
    '''Return where the last call of each operation on mps ran, and why.

    k2 estimates whether the host or Metal is faster for a call, and uses the
    faster one.  The host is faster for small problems, Metal for large ones.
    The value ``host`` or ``metal`` of the environment variable K2_MPS_FORCE
    overrides the estimate.

    Returns:
      A text: a line for each operation, and a line with the source of the
      estimates.
    '''
    operations = placements()
    if not operations:
        return 'This k2 was built without mps.'
    lines = [_explain(placement) for placement in operations]
    if any(placement.is_calibrated for placement in operations):
        saved = saved_costs()
        lines.append('The estimates are from measurements of this machine'
                     f' ({saved.get("device")}, {saved.get("date")}).')
    else:
        lines.append('The estimates are not from this machine: the host\'s are '
                     'from an x86-64, and Metal\'s from a model of an M1.')
    return '\n'.join(lines)
