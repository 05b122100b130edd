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
'''Calls that Metal's kernels do not take, whatever the estimated times are.'''
from typing import Dict

# For each operation, the reason why the kernels do not take its last call.  All
# threads share the reasons, because k2.mps.explain() reports the last call of
# the process.
_reasons: Dict[str, str] = {}


def note(operation: str, reason: str = '') -> None:
    '''Keep the reason why the kernels do not take a call, '' if they take
    it.'''
    _reasons[operation] = reason


def reason_of(operation: str) -> str:
    '''Return what note() kept of the last call; empty if there is none.'''
    return _reasons.get(operation, '')
