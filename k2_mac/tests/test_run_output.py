"""What `python -m k2_mac.run` prints."""

import re
import subprocess

from k2_mac.tests.programs import RECIPE
from k2_mps_tests.running import ran


def test_the_changes_can_be_shown_and_made_by_patch(command, python, tmp_path):
    shown = command(RECIPE, "--show", ".")
    assert "asr/model.py:30: torch.ones: float64" in shown.stderr
    diff = shown.stdout
    assert "-    torch.cuda.set_device(rank)\n+    _gpu.set_device(rank)\n" in diff
    root = tmp_path / "project"
    subprocess.run(["patch", "-p0", "-s"], cwd=root, input=diff, text=True, check=True)
    assert "_gpu.set_device(rank)" in (root / "asr/dist.py").read_text()
    one = ran(python, "-m", "k2_mac.run", "--show", root / "asr/dist.py").stdout
    assert one == ""


def test_the_summary_names_what_stays_with_its_line(command):
    files = {
        # The program imports no package of this name.
        "__init__.py": "import torch\ntorch.cuda.Event()\n",
        "main.py": "from pack import (  # several\n    one,\n)\nimport pack.two\n",
        "pack/__init__.py": "",
        "pack/one.py": "def f():\n    import torch\n    return torch.cuda.Stream()\n",
        "pack/two.py": "from . import three\n",
        "pack/three.py": "def f(x):\n    return torch.nn.CTCLoss(x.double())\n",
        "pack/unused.py": "import torch\ntorch.cuda.Event()\n",
    }
    told = command(files, "main.py").stderr.splitlines()
    assert told == [
        "k2_mac.run: needs CUDA and stays: pack/one.py:3 torch.cuda.Stream",
        "k2_mac.run: float64, which mps lacks; tensors on mps become float32:"
        " pack/three.py:2 .double",
        "k2_mac.run: CTC of torch, which k2 computes on mps before torch 2.14:"
        " pack/three.py:2 torch.nn.CTCLoss",
    ]
    assert command(files, "--quiet", "main.py").stderr == ""


def test_wrong_arguments(python):
    def told(*arguments):
        result = ran(python, "-m", "k2_mac.run", *arguments)
        assert result.returncode == 2 and re.search("^usage: python -m k2_mac.run", result.stderr)
        return result.stderr.splitlines()[-1]

    assert told().endswith("which program, or which module?")
    assert told("-m").endswith("which program, or which module?")
    assert told("--shw", "x").endswith("unrecognized arguments: --shw")
    missing = ran(python, "-m", "k2_mac.run", "missing.py")
    assert missing.returncode == 1 and "can't open file" in missing.stderr
    assert ran(python, "-m", "k2_mac.run", "-h").stdout.startswith("usage: ")
