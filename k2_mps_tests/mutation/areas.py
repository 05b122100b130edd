"""Lists the files to mutate in each area, and the tests of each file."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

KERNELS = "patches/files/k2/csrc/mps/kernels"
# The folder to which the checkout's Python is copied.
K2 = "k2-python"
PYTHON = f"{K2}/k2/mps"
# The folder to which the bindings' C++ headers are copied.
BINDINGS = f"{K2}/bindings"
TOOL = "tools/k2mps"
K2_MAC = "k2_mac"
PARITY, TOOLING = "k2_mps_tests/parity", "k2_mps_tests/tooling"

# {file of k2.mps: the tests that are most likely to notice a mutant of the file}
OF_PYTHON = {
    "counting": ["counters"],
    "ctc": ["ctc", "losses", "graph_index"],
    "dense": ["lattice", "gradients"],
    "double_scores": ["scores", "gradients"],
    "graph_index": ["graph_index"],
    "joiner": ["operations", "gradients", "budgets"],
    "lattice": ["lattice", "placement"],
    "not_taken": ["explain", "pruned_streams"],
    "placement": ["explain", "pruned_streams"],
    "pruned": ["pruned", "after_lattice", "pruned_streams"],
    "rnnt_boundary": ["budgets", "mutual_information"],
    "rnnt_pruned": ["operations", "gradients", "losses"],
    "rnnt_pruning": ["operations", "gradients", "budgets"],
    "rnnt_smoothed": ["rnnt_smoothed", "gradients"],
    "scores": ["scores"],
    "streams": ["pruned_streams", "decoding"],
    "sums": ["budgets", "gradients"],
}
# {file of k2_mac: the tests that are most likely to notice a mutant of the file}
OF_K2_MAC = {
    "calibrate": ["calibrate"],
    "check": ["check"],
    "check_operations": ["check"],
    "check_page": ["check"],
    "distributed": ["distributed"],
    "faults": ["faults", "check"],
    "gpu": ["gpu", "translate"],
    "hook": ["run_scope", "run_program", "run_surroundings"],
    "names": ["rules"],
    "patched": ["translate", "run_recipes", "run_surroundings"],
    "provenance": ["provenance"],
    "rewriter": ["rules"],
    "rules": ["rules"],
    "run": ["run_program", "run_output", "run_scope", "run_surroundings"],
    "summary": ["run_output", "run_recipes"],
    "syntax": ["rules"],
    "torch_ctc": ["torch_ctc"],
    "translate": ["translate"],
}
# {header of the bindings: the tests that are most likely to notice a mutant of the header}
OF_BINDINGS = {
    "mps_ctc": ["ctc"],
    "mps_dense_fsa_vec": ["lattice", "ctc"],
    "mps_double_scores": ["scores"],
    "mps_graph_index": ["graph_index", "ctc"],
    "mps_labels": ["graph_index", "ctc"],
    "mps_lattice": ["lattice", "placement"],
    "mps_metal": ["swoosh"],
    "mps_placement": ["placement"],
    "mps_pruned": ["pruned"],
    "mps_pruned_stream": ["pruned_streams"],
    "mps_rnnt_pruned": ["losses", "gradients"],
    "mps_rnnt_pruning": ["gradients", "budgets"],
    "mps_rnnt_smoothed": ["rnnt_smoothed"],
    "scores": ["scores", "operations", "odd_inputs"],
}
_OF_APPLY = ["apply", "apply_refused", "apply_meanwhile", "apply_exchanged"]
_OF_REBASE = ["rebase", "rebase_refused", "rebase_interrupted", "rebase_by_git"]
_OF_BUILD = ["build", "build_errors", "build_interrupted", "build_locks", "build_needs"]
# {package of the tool: the tests that are most likely to notice a mutant of its files}
OF_TOOL = {
    "series": ["series", "lint", "groups"],
    "stack": [*_OF_APPLY, "authoring", "export", "names_and_order", "status", "clone"],
    "carry": [*_OF_REBASE, "carrying", "submission", "upstream_check"],
    "core": ["cli", *_OF_APPLY, "clone", "hostile_config", *_OF_REBASE],
    "build": [*_OF_BUILD, "environment", "interpreter"],
    "run": ["suites"],
    "wheel": ["wheel_verification", "wheel_tools", "wheel", "wheel_archive"],
    "cli": ["cli", "authoring", "status"],
}


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
        own, folder = OF_BINDINGS.get(name, []), PARITY
    elif area == "k2.mps":
        own, folder = OF_PYTHON.get(name, []), PARITY
    elif area == "k2_mac":
        own, folder = OF_K2_MAC.get(name, []), f"{K2_MAC}/tests"
    else:
        own, folder = OF_TOOL.get(Path(path).parent.name, []), TOOLING
    quick = [f"{folder}/test_{test}.py" for test in own]
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
