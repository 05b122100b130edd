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
#  ctest --verbose -R symbol_separators_test_py

import os
import tempfile
import unittest

import k2


class TestSymbolSeparators(unittest.TestCase):
    '''Only spaces and tabs separate fields.  Other white space is part of a
    symbol.'''

    def test_spaces_of_unicode(self):
        symbols = ['\u3000', '\u00a0', 'a\u00a0b', '\u2028', '\u0085',
                   '\x1c', '\ufeff', '\u2581']
        text = '<eps> 0\n' + ''.join(
            f'{symbol} {i}\n' for i, symbol in enumerate(symbols, 1))
        table = k2.SymbolTable.from_str(text)
        self.assertEqual(table.symbols, sorted(['<eps>'] + symbols))
        with tempfile.TemporaryDirectory() as folder:
            name = os.path.join(folder, 'symbols')
            table.to_file(name)
            self.assertEqual(k2.SymbolTable.from_file(name), table)

    def test_separators(self):
        table = k2.SymbolTable.from_str(
            '\n <eps>\t0 \r\n\ta \t 1\t\n\nb  2\n')
        self.assertEqual([table.get(i) for i in range(3)], ['<eps>', 'a', 'b'])


if __name__ == '__main__':
    unittest.main()
