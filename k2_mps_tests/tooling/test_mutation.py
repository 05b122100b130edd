"""The weekly search for mutants runs tests that exist, and that run the changed file."""

import re
from pathlib import Path

import pytest

from k2_mps_tests.mutation import areas
from k2_mps_tests.tooling import support

ROOT = support.TOOLS.parent
TESTS = {
    areas.PARITY: (areas.OF_PYTHON, areas.OF_BINDINGS),
    f"{areas.K2_MAC}/tests": (areas.OF_K2_MAC,),
    areas.TOOLING: (areas.OF_TOOL,),
}
_SCORES = "get_tot_scores|get_forward_scores|get_backward_scores|get_arc_post"
_OF_PRUNED = "intersect_dense_pruned|get_lattice"
_CTC = r"k2\.ctc_loss|k2\.CtcLoss"
_STREAMS = "OnlineDenseIntersecter"
_PRUNING = "do_rnnt_pruning|get_rnnt_prune_ranges"
# {file of k2.mps: the public names that run the file, as a regular expression}
RUN_PYTHON = {
    "counting": "counters",
    "ctc": _CTC,
    "dense": "DenseFsaVec",
    "double_scores": _SCORES,
    "graph_index": rf"{_CTC}|k2\.intersect_dense",
    "joiner": "joiner_input",
    "lattice": "intersect_dense",
    "not_taken": "explain",
    "placement": "explain|placements",
    "pruned": f"{_OF_PRUNED}|{_STREAMS}",
    "rnnt_boundary": "boundary",
    "rnnt_pruned": "rnnt_loss_pruned",
    "rnnt_pruning": _PRUNING,
    "rnnt_smoothed": "rnnt_loss_smoothed",
    "scores": _SCORES,
    "streams": _STREAMS,
    "sums": "index_sums|index_add|index_select",
}
RUN_BINDINGS = {
    "mps_ctc": _CTC,
    "mps_dense_fsa_vec": "DenseFsaVec",
    "mps_double_scores": _SCORES,
    "mps_graph_index": rf"{_CTC}|k2\.intersect_dense",
    "mps_labels": "labels",
    "mps_lattice": "intersect_dense",
    # Each parity test reads the arguments of the kernels that it launches; see conftest.py.
    "mps_metal": "swoosh_l",
    "mps_placement": "K2_MPS_FORCE",
    "mps_pruned": _OF_PRUNED,
    "mps_pruned_stream": _STREAMS,
    "mps_rnnt_pruned": "rnnt_loss_pruned",
    "mps_rnnt_pruning": _PRUNING,
    "mps_rnnt_smoothed": "rnnt_loss_smoothed",
    "scores": _SCORES,
}
# {file of k2_mac that tests reach by other names than the file's: these names}
RUN_K2_MAC = {
    "check_operations": "check",
    "faults": "faults|check",
    "hook": "hook|run",
    "patched": "patched|run",
    "rewriter": "rules",
    "summary": "run",
    "syntax": "rules",
    "torch_ctc": "install_ctc_loss",
}
# {package of the tool: the commands that run the package}
RUN_TOOL = {
    "series": "lint|export|upstream",
    "stack": "apply|export|fold|new|status",
    "carry": "rebase|upstream",
    "core": "apply|rebase|status",
    "build": "build|doctor",
    "run": "test",
    "wheel": "wheel",
    "cli": "status|fold",
}


def _rows():
    """Yields each test that areas.py names: (the changed file, the test's path, an expression).

    The regular expression matches what the test must have.

    A test of k2 or of k2_mac must have a name that runs the changed file.  A test of the tool must
    import the changed package, or run a command that needs it.
    """
    for table, names in ((areas.OF_PYTHON, RUN_PYTHON), (areas.OF_BINDINGS, RUN_BINDINGS)):
        for file, tests in table.items():
            for test in tests:
                yield file, f"{areas.PARITY}/test_{test}.py", rf"\b({names[file]})\b"
    for file, tests in areas.OF_K2_MAC.items():
        for test in tests:
            name = RUN_K2_MAC.get(file, file)
            yield (
                file,
                f"{areas.K2_MAC}/tests/test_{test}.py",
                rf"\bk2_mac\.({name})\b|\bfrom k2_mac import .*\b({name})\b",
            )
    for package, tests in areas.OF_TOOL.items():
        for test in tests:
            yield (
                package,
                f"{areas.TOOLING}/test_{test}.py",
                rf"\bfrom k2mps\.{package}\b|[\"']({RUN_TOOL[package]})[ \"']"
                rf"|\b({RUN_TOOL[package]})\(",
            )


ROWS = list(_rows())


def _text(path):
    """Returns the text of a test, and of the tables of calls that the test reads."""
    text = (ROOT / path).read_text(encoding="utf-8")
    tables = re.findall(r'table\("(\w+\.toml)"\)', text)
    return "".join(
        [text, *((ROOT / areas.PARITY / name).read_text(encoding="utf-8") for name in tables)]
    )


@pytest.mark.parametrize("folder", TESTS)
def test_the_tests_that_may_notice_a_mutant_exist(folder):
    named = {name for table in TESTS[folder] for names in table.values() for name in names}
    missing = [name for name in named if not (ROOT / folder / f"test_{name}.py").is_file()]
    assert missing == []


@pytest.mark.parametrize(
    "path, names",
    [pytest.param(path, names, id=f"{file}, {Path(path).name}") for file, path, names in ROWS],
)
def test_a_named_test_runs_the_changed_file(path, names):
    assert re.search(names, _text(path))


@pytest.mark.parametrize("path", sorted({path for _, path, _ in ROWS}))
def test_no_named_test_skips_all_its_tests(path):
    """A test may still skip itself on macOS, where nobody searches for mutants."""
    assert not re.search(r"^pytestmark = .*\bskip", _text(path), re.MULTILINE)


@pytest.mark.parametrize(
    "table, folder, pattern",
    [
        (areas.OF_PYTHON, "patches/files/k2/python/k2/mps", "*.py"),
        (areas.OF_BINDINGS, "patches/files/k2/python/csrc/torch", "mps_*.h"),
        (areas.OF_K2_MAC, areas.K2_MAC, "*.py"),
    ],
)
def test_each_file_has_its_tests(table, folder, pattern):
    files = {path.stem for path in (ROOT / folder).glob(pattern)} - {"__init__"}
    assert files <= table.keys()


def test_each_package_of_the_tool_has_its_tests():
    packages = {path.parent.name for path in (ROOT / areas.TOOL).glob("*/__init__.py")}
    assert packages - {"macos"} == areas.OF_TOOL.keys()
