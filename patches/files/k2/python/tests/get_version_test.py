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
#  ctest --verbose -R get_version_test_py

import importlib.util
import os
import unittest
from pathlib import Path
from unittest import mock

import torch

ROOT = Path(__file__).resolve().parents[3]


@unittest.skipUnless((ROOT / 'get_version.py').is_file(),
                     'this is not in a checkout of k2')
class TestGetVersion(unittest.TestCase):

    def setUp(self):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(ROOT)  # get_version.py reads CMakeLists.txt in this folder
        spec = importlib.util.spec_from_file_location('get_version',
                                                      'get_version.py')
        self.get_version = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.get_version)

    def check(self, options, devices):
        # With this environment, get_version.py finds no nvcc, and no variable
        # that requests another kind of wheel.
        env = {'PATH': '', 'K2_CMAKE_ARGS': options}
        with mock.patch.dict(os.environ, env, clear=True):
            version = self.get_version.get_package_version()
        torch_version = torch.__version__.partition('+')[0]
        assert version.endswith(f'+{devices}.torch{torch_version}'), version

    def test_a_wheel_with_mps_says_so(self):
        self.check('-DCMAKE_BUILD_TYPE=Release -DK2_WITH_MPS=ON', 'mps.cpu')

    def test_a_wheel_without_mps_does_not(self):
        self.check('', 'cpu')
        self.check('-DK2_WITH_MPS=OFF', 'cpu')


if __name__ == '__main__':
    unittest.main()
