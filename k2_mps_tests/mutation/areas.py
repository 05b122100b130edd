"""Lists the files to mutate in each area, and the tests of each file."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

KERNELS = "patches/files/k2/csrc/mps/kernels"
# The folder to which the checkout's Python is copied.
K2 = "k2-python"
PYTHON = f"{K2}/k2/mps"
# The folder to which the bindings' C++ headers are copied.
BINDINGS = f"{K2}/bindings"
TOOL = "tools/k2mps"
K2_MAC = "k2_mac"
PARITY, TOOLING = "k2_mps_tests/parity", "k2_mps_tests/tooling"


class Chosen(NamedTuple):
    """The tests that are most likely to notice a mutant of a file, and why.

    Attributes:
      tests: the files of the tests, without "test_" and ".py".
      through: the names by which the tests reach the file's code.  Each test uses at least one of
        the names; tooling/test_mutation.py checks this.
    """

    tests: Sequence[str]
    through: Sequence[str] = ()


_CTC = ["k2.ctc_loss", "k2.CtcLoss"]
_SCORES = ["get_tot_scores", "get_forward_scores", "get_backward_scores", "get_arc_post"]
_PRUNED = ["k2.intersect_dense_pruned", "k2.get_lattice"]
_STREAMS = ["k2.OnlineDenseIntersecter"]
_PRUNING = ["k2.do_rnnt_pruning", "k2.get_rnnt_prune_ranges"]

# {file of k2.mps: tests of the parity suite}.  A test calls a function or method of `through`, or
# reads a table of calls that has one.
PYTHON_TESTS = {
    "counting": Chosen(["counters"], through=["k2.mps.counters"]),
    "ctc": Chosen(
        ["taken_by_metal", "ctc", "losses", "graph_index"], through=[*_CTC, "ctc._rows_for_metal"]
    ),
    "dense": Chosen(["lattice", "gradients"], through=["k2.DenseFsaVec"]),
    "double_scores": Chosen(["scores", "gradients"], through=_SCORES),
    "graph_index": Chosen(["graph_index"], through=["k2.mps.graph_index"]),
    "joiner": Chosen(
        ["taken_by_metal", "operations", "gradients", "budgets"], through=["k2.mps.joiner_input"]
    ),
    "lattice": Chosen(
        ["taken_by_metal", "lattice", "placement"], through=["k2.intersect_dense", "lattice._make"]
    ),
    # k2.mps.explain() is in placement.py, and prints the reasons that not_taken.py keeps.
    "not_taken": Chosen(["explain", "pruned_streams"], through=["k2.mps.explain"]),
    "placement": Chosen(["explain", "pruned_streams"], through=["k2.mps.explain"]),
    # The lattice of a stream gets its attributes from pruned.py.
    "pruned": Chosen(["pruned", "after_lattice", "pruned_streams"], through=[*_PRUNED, *_STREAMS]),
    # The recursion reads the rows of its boundary with rnnt_boundary.py.
    "rnnt_boundary": Chosen(
        ["taken_by_metal", "budgets", "mutual_information"],
        through=["k2.mps.know_boundary", "k2.mutual_information_recursion"],
    ),
    "rnnt_pruned": Chosen(
        ["taken_by_metal", "operations", "gradients", "losses"], through=["k2.rnnt_loss_pruned"]
    ),
    "rnnt_pruning": Chosen(
        ["taken_by_metal", "operations", "gradients", "budgets"],
        through=[*_PRUNING, "rnnt_pruning.in_metal"],
    ),
    "rnnt_smoothed": Chosen(
        ["taken_by_metal", "rnnt_smoothed", "gradients"],
        through=["k2.rnnt_loss_smoothed", "rnnt_smoothed.in_metal"],
    ),
    "scores": Chosen(["scores"], through=_SCORES),
    "streams": Chosen(["pruned_streams", "decoding"], through=_STREAMS),
    # The gradient of index_select() is a sum.
    "sums": Chosen(["budgets", "gradients"], through=["k2.index_select"]),
}
# {header of the bindings: tests of the parity suite}.  `through` is as in PYTHON_TESTS.
BINDINGS_TESTS = {
    "mps_ctc": Chosen(["ctc"], through=_CTC),
    "mps_dense_fsa_vec": Chosen(["lattice", "ctc"], through=["k2.DenseFsaVec"]),
    "mps_double_scores": Chosen(["scores"], through=_SCORES),
    # k2 makes the index of a graph in the first loss of the graph.
    "mps_graph_index": Chosen(["graph_index", "ctc"], through=_CTC),
    # The property Fsa.labels copies the labels with this header.
    "mps_labels": Chosen(["graph_index", "ctc"], through=[".labels"]),
    "mps_lattice": Chosen(["lattice", "placement"], through=["k2.intersect_dense"]),
    # After each parity test, conftest.py reads the arguments of the kernels that the test launched.
    "mps_metal": Chosen(["swoosh"], through=["k2.swoosh_l"]),
    "mps_placement": Chosen(["placement"], through=["_k2.mps_placements", "_k2.mps_set_costs"]),
    "mps_pruned": Chosen(["pruned"], through=_PRUNED),
    "mps_pruned_stream": Chosen(["pruned_streams"], through=_STREAMS),
    "mps_rnnt_pruned": Chosen(["losses", "gradients"], through=["k2.rnnt_loss_pruned"]),
    "mps_rnnt_pruning": Chosen(["gradients", "budgets"], through=_PRUNING),
    "mps_rnnt_smoothed": Chosen(["rnnt_smoothed"], through=["k2.rnnt_loss_smoothed"]),
    "scores": Chosen(["scores", "operations", "odd_inputs"], through=_SCORES),
}
# {file of k2_mac: tests of k2_mac}.  `through` has modules and functions of k2_mac that a test
# imports or runs; without `through`, a test imports or runs the file itself.
K2_MAC_TESTS = {
    "calibrate": Chosen(["calibrate"]),
    "check": Chosen(["check"]),
    "check_operations": Chosen(["check"], through=["check"]),
    "check_page": Chosen(["check"]),
    "distributed": Chosen(["distributed"]),
    "faults": Chosen(["faults", "check"], through=["faults", "check"]),
    "gpu": Chosen(["gpu", "translate"]),
    "hook": Chosen(["run_scope", "run_program", "run_surroundings"], through=["hook", "run"]),
    "names": Chosen(["rules"]),
    "patched": Chosen(["translate", "run_recipes", "run_surroundings"], through=["patched", "run"]),
    "provenance": Chosen(["provenance"]),
    "rewriter": Chosen(["rules"], through=["rules"]),
    "rules": Chosen(["rules"]),
    "run": Chosen(["run_program", "run_output", "run_scope", "run_surroundings"]),
    "summary": Chosen(["run_output", "run_recipes"], through=["run"]),
    "syntax": Chosen(["rules"], through=["rules"]),
    "torch_ctc": Chosen(["torch_ctc"], through=["install_ctc_loss"]),
    "translate": Chosen(["translate"]),
}
_APPLY = ["apply", "apply_refused", "apply_meanwhile", "apply_exchanged"]
_REBASE = ["rebase", "rebase_refused", "rebase_interrupted", "rebase_by_git"]
_BUILD = ["build", "build_errors", "build_interrupted", "build_locks", "build_needs"]
# {package of the tool: tests of the tool}.  `through` has commands of k2mps that need the package;
# a test runs such a command, or imports the package.
TOOL_TESTS = {
    "series": Chosen(["series", "lint", "groups"], through=["lint", "export", "upstream"]),
    "stack": Chosen(
        ["checkout", *_APPLY, "authoring", "export", "names_and_order", "status", "clone"],
        through=["apply", "export", "fold", "new", "status"],
    ),
    "carry": Chosen(
        [*_REBASE, "carrying", "submission", "upstream_check"], through=["rebase", "upstream"]
    ),
    "core": Chosen(
        ["core", "cli", *_APPLY, "clone", "hostile_config", *_REBASE],
        through=["apply", "rebase", "status"],
    ),
    "build": Chosen([*_BUILD, "environment", "interpreter"], through=["build", "doctor"]),
    "run": Chosen(["suites"], through=["test"]),
    "wheel": Chosen(
        ["wheel_verification", "wheel_tools", "wheel", "wheel_archive"], through=["wheel"]
    ),
    "cli": Chosen(["cli", "authoring", "status"], through=["status", "fold"]),
}
_NONE = Chosen([])


def files(area: str, tree: Path) -> list[str]:
    """Returns the paths of an area's files, relative to the tree."""
    folder, endings = {
        "kernels": (KERNELS, (".metal", ".h")),
        "bindings": (BINDINGS, (".h",)),
        "k2.mps": (PYTHON, (".py",)),
        "k2_mac": (K2_MAC, (".py",)),
        "tool": (TOOL, (".py",)),
    }[area]
    every = (tree / folder).glob("*") if area == "k2_mac" else (tree / folder).rglob("*")
    found = sorted(path for path in every if path.suffix in endings)
    return [str(path.relative_to(tree)) for path in found if path.name != "__init__.py"]


def commands(area: str, path: str, tree: Path, whole: bool) -> list[list[str]]:
    """Returns the commands that can notice a mutant of a file, the quick ones first.

    Args:
      whole: whether to add a command for the rest of the suite.
    """
    name = Path(path).stem
    if area == "kernels":
        check = [sys.executable, "-m", "k2_mps_tests.kernels", "--device", "cpu"]
        check_races = ["env", "MPS_EMULATOR_CHECK_RACES=1", *check, "--runs", "1"]
        names = _kernels_with(Path(path).name, tree)
        return [[*program, name] for program in (check, check_races) for name in names]
    if area == "bindings":
        chosen, folder = BINDINGS_TESTS.get(name, _NONE), PARITY
    elif area == "k2.mps":
        chosen, folder = PYTHON_TESTS.get(name, _NONE), PARITY
    elif area == "k2_mac":
        chosen, folder = K2_MAC_TESTS.get(name, _NONE), f"{K2_MAC}/tests"
    else:
        chosen, folder = TOOL_TESTS.get(Path(path).parent.name, _NONE), TOOLING
    quick = [f"{folder}/test_{test}.py" for test in chosen.tests]
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    found = [[*pytest, *quick]] if quick else []
    if whole or not quick:
        found.append([*pytest, folder, *(f"--ignore={file}" for file in quick)])
    return found


def _kernels_with(name: str, tree: Path) -> Sequence[str]:
    """Returns the names of the files of kernels that include a header, directly or indirectly.

    For a file of kernels, returns its own name.
    """
    if name.endswith(".metal"):
        return [name.removesuffix(".metal")]
    checks = tree / "k2_mps_tests/kernels/checks"
    sources = [*(tree / KERNELS).glob("*.[mh]*"), *checks.glob("*.metal")]
    texts = {source.name: source.read_text(encoding="utf-8") for source in sources}
    found, before = {name}, set()
    while found != before:
        before = set(found)
        for source, text in texts.items():
            if found & set(re.findall(r'#include "k2/csrc/mps/kernels/(.*?)"', text)):
                found.add(source)
    return sorted(source[: -len(".metal")] for source in found if source.endswith(".metal"))


def tracked(root: Path) -> list[str]:
    """Returns the paths of the files that git tracks in a repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True
    ).stdout
    return [name for name in listed.split("\0") if name]
