#!/usr/bin/env python3
#
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


# To run this single test, use
#
#  ctest --verbose -R mps_edited_fsa_test_py

import os
import unittest
from unittest import mock

import k2
import torch

import edited_fsa_test


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
class TestMpsEditedFsa(edited_fsa_test.TestEditedFsa):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('mps', 0)]

    def run(self, result=None):
        # Without a value, the host does these small problems.
        for computes in ('host', 'metal'):
            with mock.patch.dict(os.environ, {'K2_MPS_FORCE': computes}):
                super().run(result)


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
class TestMpsEditedDenseFsaVec(edited_fsa_test.TestEditedDenseFsaVec):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('mps', 0)]


if __name__ == '__main__':
    unittest.main()
