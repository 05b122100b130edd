"""The weekly search for mutants runs tests that exist."""

import pytest

from k2_mps_tests.mutation import areas
from k2_mps_tests.tooling import support

ROOT = support.TOOLS.parent
TESTS = {
    areas.PARITY: (areas.OF_PYTHON, areas.OF_BINDINGS),
    f"{areas.K2_MAC}/tests": (areas.OF_K2_MAC,),
    areas.TOOLING: (areas.OF_TOOL,),
}


@pytest.mark.parametrize("folder", TESTS)
def test_the_tests_that_may_notice_a_mutant_exist(folder):
    named = {name for table in TESTS[folder] for names in table.values() for name in names}
    missing = [name for name in named if not (ROOT / folder / f"test_{name}.py").is_file()]
    assert missing == []
