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
#  ctest --verbose -R interrupt_test_py

import signal
import subprocess
import sys
import time
import unittest

import k2

# Each state is in infinitely many subsets of the determinized FSA, see
# https://github.com/k2-fsa/k2/issues/1040
ENDLESS = '''0 1 5 0
1 1 5 0
1 2 1 0
1 3 1 0
2 2 1 0
2 4 5 0
3 3 1 0
3 5 2 0
4 4 5 0
4 5 2 0
5 5 2 0
5 6 3 0
6 6 3 0
6 7 5 0
7 7 5 0
7 8 -1 0
8'''


@unittest.skipUnless(hasattr(signal, 'SIGALRM'), 'there is no SIGALRM')
class TestInterrupt(unittest.TestCase):

    def check(self, function):
        '''Interrupt a function after half a second, as Ctrl-C does.'''
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        self.addCleanup(signal.alarm, 0)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            function()
        assert time.monotonic() - begin < 10

    def test_determinize(self):
        fsa = k2.Fsa.from_str(ENDLESS)
        self.check(lambda: k2.determinize(fsa))

    def test_intersect(self):
        # The result has 4,000 * 4,000 states.
        line = '\n'.join(f'{i} {i} 1 0\n{i} {i + 1} 1 0' for i in range(4000))
        fsa = k2.arc_sort(k2.Fsa.from_str(line + '\n4000 4001 -1 0\n4001'))
        for treat_epsilons_specially in (False, True):
            self.check(lambda: k2.intersect(fsa, fsa,
                                            treat_epsilons_specially))

    def test_import_by_another_thread(self):
        code = f'''
import signal, threading
thread = threading.Thread(target=lambda: __import__('k2'))
thread.start()
thread.join()
import k2
fsa = k2.Fsa.from_str({ENDLESS!r})
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    k2.determinize(fsa)
except KeyboardInterrupt:
    print('interrupted')
'''
        done = subprocess.run([sys.executable, '-c', code], timeout=300,
                              stdout=subprocess.PIPE, universal_newlines=True)
        assert done.stdout == 'interrupted\n', done


if __name__ == '__main__':
    unittest.main()
