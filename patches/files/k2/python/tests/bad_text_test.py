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
#  ctest --verbose -R bad_text_test_py

import locale
import unittest

import k2


class TestBadText(unittest.TestCase):

    def check(self, reason, text, **options):
        with self.assertRaises(ValueError) as raised:
            k2.Fsa.from_str(text, **options)
        self.assertIn(reason, str(raised.exception))
        self.assertNotIn('\n', str(raised.exception))

    def test_the_error_explains_the_bad_line(self):
        for reason, text in (
            ("line 2, '1 hello -1 0': expected src-state",
             '0 1 1 0\n1 hello -1 0\n2'),
            ("line 1, '0 1 2147483648 1': expected src-state",
             '0 1 2147483648 1\n1'),
            ("line 1, '2147483647 1 1 0': there is no such state",
             '2147483647 1 1 0\n1'),
            ("line 2, '2147483647': expected a state",
             '0 1 1 0\n2147483647'),
            ("line 2, '1 -2 -1 0': there is no such state",
             '0 1 1 0\n1 -2 -1 0\n2'),
            ("line 3, '0 1 2 0': arcs are not ordered",
             '0 1 1 0\n1 2 -1 0\n0 1 2 0\n2'),
            ("line 2, '1 2 -1 0 x': expected a score after 0 aux_labels",
             '0 1 1 0\n1 2 -1 0 x\n2'),
            ("line 5, '1': final state has already been read",
             '0 1 1 0\n1 2 -1 0\n2\n\n1'),
            ("line 3, '1 2 3': labels are not negative, except that arcs to "
             'the final state, 2, have the label -1',
             '0 1 1 0\n\n1 2 3 0\n2'),
            ("line 1, '0 1 -1': labels are", '0 1 -1 0\n1 2 -1 0\n2'),
            ("line 1, '0 1 -2': labels are", '0 1 -2 0\n1 2 -1 0\n2'),
        ):
            self.check(reason, text)
        self.check('Expected an integer for aux_labels', '0 1 -1 0.5\n1',
                   acceptor=False)
        self.check("expected 0'th ragged label", '0 1 -1 0.5\n1',
                   ragged_label_names=['a'])

    def test_openfst(self):
        for reason, text in (
            ("line 2, '1 hello 1': expected src-state",
             '0 1 1 0\n1 hello 1\n2'),
            ("line 1, '0 2147483647 3 1': there is no such state",
             '0 2147483647 3 1\n1'),
            ("line 1, '0 -1 3 1': there is no such state", '0 -1 3 1\n1'),
            ("line 1, '0 1 2 3 4': expected a cost after 0 aux_labels",
             '0 1 2 3 4\n1'),
            ("line 2, '1 2 -1 1': expected a label",
             '0 1 1 1\n1 2 -1 1\n2'),
        ):
            self.check(reason, text, openfst=True)

    def test_the_error_does_not_have_all_arcs(self):
        fsa = k2.linear_fsa([1] * 10000)
        labels = fsa.labels.clone()
        labels[5000] = -7
        with self.assertRaisesRegex(ValueError, 'Fsa is not valid') as raised:
            fsa.labels = labels
            fsa.properties
        assert len(str(raised.exception)) < 1000, raised.exception

    def test_a_huge_number_of_labels(self):
        with self.assertRaisesRegex(AssertionError, ': 2147483648$'):
            k2.Fsa.from_str('0 1 -1 0.5\n1', num_aux_labels=2**31)

    def test_a_name_that_an_fsa_cannot_set(self):
        with self.assertRaisesRegex(ValueError, 'arcs of .* cannot be set'):
            k2.Fsa.from_str('0 1 -1 5 0\n1', aux_label_names=['arcs'])

    def test_lines_without_a_score(self):
        for end in ('', ' '):
            fsa = k2.Fsa.from_str(f'0 1 1{end}\n1 2 -1{end}\n2{end}')
            self.assertEqual(fsa.scores.tolist(), [0, 0])
            fsa = k2.Fsa.from_str(f'0 1 1 3 0.5\n1 2 -1 -1{end}\n2',
                                  acceptor=False)
            self.assertEqual(fsa.scores.tolist(), [0.5, 0])
            self.assertEqual(fsa.aux_labels.tolist(), [3, -1])
            fsa = k2.Fsa.from_openfst(f'0 1 4{end}\n0 1 3 0.5\n1 2.5')
            self.assertEqual(fsa.labels.tolist(), [4, 3, -1])
            self.assertEqual(fsa.scores.tolist(), [0, -0.5, -2.5])
            fsa = k2.Fsa.from_openfst(f'0 1 4 6{end}\n1', acceptor=False)
            self.assertEqual(fsa.aux_labels.tolist(), [6, -1])
        # The line has no auxiliary label.
        self.check("line 1, '0 1 4': Expected an integer for aux_labels",
                   '0 1 4\n1', acceptor=False)
        self.check("line 1, '0 1 4': expected a cost after 1 aux_labels",
                   '0 1 4\n1', acceptor=False, openfst=True)

    def test_infinite_scores(self):
        for text in ('inf', 'Infinity', 'INF'):
            fsa = k2.Fsa.from_str(f'0 1 1 -{text}\n0 1 2 1e-2\n1 2 -1 0\n2')
            self.assertEqual(fsa.scores.tolist()[0], float('-inf'))
            fsa = k2.Fsa.from_openfst(f'0 1 1 {text}\n0 1 2 0.5\n1\n2 {text}')
            self.assertEqual(fsa.scores.tolist()[:2], [float('-inf'), -0.5])
            # State 2 is not final.
            self.assertEqual(fsa.num_arcs, 3)
            # No state is final.
            fsa = k2.Fsa.from_openfst(f'0 1 1 0\n1 {text}')
            self.assertEqual((fsa.shape, fsa.num_arcs), ((3, None), 1))

    def test_scores_that_are_no_decimal_numbers(self):
        for score in ('nan', '0x10', '1e400', '1,5', '1.5x', 'info', '-', '.'):
            self.check(f"line 1, '0 1 1 {score}': expected a score after 0",
                       f'0 1 1 {score}\n1')

    def test_a_locale_with_a_decimal_comma(self):
        before = locale.setlocale(locale.LC_NUMERIC)
        try:
            locale.setlocale(locale.LC_NUMERIC, 'de_DE.UTF-8')
        except locale.Error as error:
            self.skipTest(f'de_DE.UTF-8: {error}')
        self.addCleanup(locale.setlocale, locale.LC_NUMERIC, before)
        fsa = k2.Fsa.from_str('0 1 -1 0.5\n1')
        self.assertEqual(fsa.scores.tolist(), [0.5])


if __name__ == '__main__':
    unittest.main()
