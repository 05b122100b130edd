"""Prints the facts of torch and k2, and fails if Python imports a k2 of another build.

.venv/bin/python -m k2_mps_tests.report.library
"""

import hashlib
import json
import subprocess
from pathlib import Path

import _k2
import k2
import torch

from k2_mac import provenance
from k2_mps_tests import ending
from k2_mps_tests.kernels import sources
from k2_mps_tests.report import items


def _differences(origin):
    """Yields the reasons why the imported k2 is not a build of the files of this project.

    Args:
      origin: the origin of the build, see tools/k2mps/build/provenance.py.
    """
    in_build = origin["kernels"]
    in_sources = {
        f"k2/csrc/mps/kernels/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sources.KERNELS.glob("*.metal")
    }
    for name in sorted(in_sources.keys() | in_build.keys()):
        if in_sources.get(name) != in_build.get(name):
            yield f"{name} differs from the file that was built"
    asked = ("git", "-C", str(Path(k2.__file__).parent), "rev-parse", "HEAD^{tree}")
    tree = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    if origin["patched_tree"] not in (None, tree):
        yield f"the checkout has the tree {tree[:12]}, the build has {origin['patched_tree'][:12]}"
    if origin["torch"] != torch.__version__.split("+")[0]:
        yield f"torch is {torch.__version__}, the build is for torch {origin['torch']}"


def main():
    origin = json.loads(Path(_k2.__file__).with_name("k2mps.json").read_text())
    print(json.dumps(provenance.build_info(), indent=1))
    if reason := k2.mps.unavailable_reason():
        print(f"k2 cannot use mps: {reason}")
    items.measured(torch=torch.__version__, mps=torch.backends.mps.is_available())
    if torch.backends.mps.is_available():
        items.measured(
            gpu=torch.backends.mps.get_name(),
            gpu_cores=torch.backends.mps.get_core_count(),
            recommended_memory=torch.mps.recommended_max_memory(),
        )
    different = list(_differences(origin))
    for reason in different:
        print(f"this k2 is of another build: {reason}")
    if k2.mps.is_available():
        k2.swoosh_l_forward(torch.zeros(1, device="mps"))
        [passed] = _k2.mps_passed_arguments()
        compiled = "when k2 was built" if passed.is_precompiled else "in each process"
        items.measured(kernels=f"compiled {compiled}")
    return 1 if different else 0


if __name__ == "__main__":
    ending.run(main)
