"""The weekly search for mutants runs tests that exist, and that run the changed file."""

import re

import pytest

from k2_mps_tests.mutation import areas
from k2_mps_tests.tooling import support

ROOT = support.TOOLS.parent
TESTS = {
    areas.PARITY: (areas.PYTHON_TESTS, areas.BINDINGS_TESTS),
    f"{areas.K2_MAC}/tests": (areas.K2_MAC_TESTS,),
    areas.TOOLING: (areas.TOOL_TESTS,),
}


def _text(path):
    """Returns the text of a test, and of the tables of calls that the test reads."""
    text = (ROOT / path).read_text(encoding="utf-8")
    tables = re.findall(r'table\("(\w+\.toml)"\)', text)
    return "".join(
        [text, *((ROOT / areas.PARITY / name).read_text(encoding="utf-8") for name in tables)]
    )


def _rows(folder):
    """Yields (changed file, path of a test, names by which the test reaches the changed file)."""
    for table in TESTS[folder]:
        for file, chosen in table.items():
            for test in chosen.tests:
                yield file, f"{folder}/test_{test}.py", chosen.through


@pytest.mark.parametrize("file, path, through", list(_rows(areas.PARITY)))
def test_a_parity_test_calls_what_runs_the_changed_file(file, path, through):
    assert through  # an empty expression would match every text
    names = "|".join(map(re.escape, through))
    assert re.search(rf"({names})\b", _text(path))


@pytest.mark.parametrize("file, path, through", list(_rows(f"{areas.K2_MAC}/tests")))
def test_a_test_of_k2_mac_imports_or_runs_what_needs_the_changed_file(file, path, through):
    names = "|".join(through or [file])
    run, imported = rf"\bk2_mac\.({names})\b", rf"\bfrom k2_mac import .*\b({names})\b"
    assert re.search(f"{run}|{imported}", _text(path))


@pytest.mark.parametrize("package, path, through", list(_rows(areas.TOOLING)))
def test_a_test_of_the_tool_imports_the_changed_package_or_runs_its_command(package, path, through):
    assert through  # an empty expression would match every text
    commands = "|".join(through)
    # A command is the first word of a string, or a method of the sandbox.
    run = rf"[\"']({commands})[ \"']|\b({commands})\("
    assert re.search(rf"\bfrom k2mps\.{package}\b|{run}", _text(path))


@pytest.mark.parametrize("folder", TESTS)
def test_the_tests_that_may_notice_a_mutant_exist(folder):
    missing = [path for _, path, _ in _rows(folder) if not (ROOT / path).is_file()]
    assert missing == []


@pytest.mark.parametrize("path", sorted({path for folder in TESTS for _, path, _ in _rows(folder)}))
def test_no_named_test_skips_all_its_tests(path):
    """A test may still skip itself on macOS, where nobody searches for mutants."""
    assert not re.search(r"^pytestmark = .*\bskip", _text(path), re.MULTILINE)


@pytest.mark.parametrize(
    "table, folder, pattern",
    [
        (areas.PYTHON_TESTS, "patches/files/k2/python/k2/mps", "*.py"),
        (areas.BINDINGS_TESTS, "patches/files/k2/python/csrc/torch", "mps_*.h"),
        (areas.K2_MAC_TESTS, areas.K2_MAC, "*.py"),
    ],
)
def test_each_file_has_its_tests(table, folder, pattern):
    files = {path.stem for path in (ROOT / folder).glob(pattern)} - {"__init__"}
    assert files <= table.keys()


def test_each_package_of_the_tool_has_its_tests():
    packages = {path.parent.name for path in (ROOT / areas.TOOL).glob("*/__init__.py")}
    assert packages == areas.TOOL_TESTS.keys()
