"""What `python -m k2_mac.run` prints."""

import re
import subprocess

import pytest

from k2_mac import summary
from k2_mac.hook import Hook
from k2_mac.tests.programs import RECIPE, SAYS, write
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


def test_the_programs_of_a_folder_are_shown(command, tmp_path):
    files = {
        "b.py": SAYS,
        "a/c.py": SAYS.strip(),
        ".hidden/d.py": SAYS,
        "e.txt": SAYS,
        "f.py/g.py": SAYS,
        "bad.py": "torch.cuda(",
    }
    write(tmp_path / "project", files)
    (tmp_path / "project/link.py").symlink_to("b.py")
    shown = command(files, "--show", "missing.py", "./b.py", ".", status=1)
    heads = [line for line in shown.stdout.splitlines() if line.startswith("--- ")]
    assert heads == ["--- b.py", "--- ./b.py", "--- ./a/c.py", "--- ./f.py/g.py"]
    assert shown.stdout.count("\\ No newline at end of file\n") == 2
    assert "missing.py: " in shown.stderr and "bad.py: " in shown.stderr


def test_losses_in_place_are_shown(command):
    program = "def f():\n    y = joiner(x)\n    k2.rnnt_loss_pruned(y)\n"
    for options, shown in (((), False), (("--in-place",), True)):
        out = command({"main.py": program}, *options, "--show", "main.py").stdout
        assert ("+    k2.mps.rnnt_loss_pruned_in_place(y)" in out) == shown


IMPORTS = """from ..one import two
from . import three as four, five  # six
import seven as eight, nine.ten
from .eleven import (
    twelve,  # thirteen
    fourteen as fifteen,
)
from .. import link
import os, missing
"""
IMPORTED = {
    *("pack/one.py", "pack/sub/three.py", "pack/sub/five.py", "seven.py", "nine/ten.py"),
    *("nine/__init__.py", "pack/sub/eleven/twelve.py", "pack/sub/eleven/fourteen.py"),
}
OTHERS = {
    *("one.py", "four.py", "pack/sub/four.py", "pack/sub/six.py", "eight.py", "ten.py"),
    *("pack/sub/eleven/thirteen.py", "pack/sub/eleven/fifteen.py", "pack/three.py"),
}


def test_the_summary_has_the_files_that_a_program_imports(tmp_path, monkeypatch):
    write(tmp_path, {path: "x.double()\n" for path in IMPORTED | OTHERS})
    write(tmp_path, {"pack/sub/main.py": IMPORTS})
    (tmp_path / "pack/link.py").symlink_to("one.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(summary, "_SHOWN", 99)
    [line] = summary.lines(Hook([str(tmp_path)]), str(tmp_path / "pack/sub/main.py"))
    assert sorted(re.findall(r"(\S+):1 \.double", line)) == sorted(IMPORTED)


@pytest.mark.parametrize(
    "number, told", [(1, "main.py use"), (2, "main.py and 1 other file use"), (3, "2 other files")]
)
def test_the_summary_counts_files(tmp_path, monkeypatch, number, told):
    names = ["main", "one", "two"][:number]
    text = SAYS + "".join(f"import {name}\n" for name in names[1:])
    write(tmp_path, {f"{name}.py": text for name in names})
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    [first, second] = summary.lines(Hook([str(tmp_path)]), str(tmp_path / "main.py"))
    assert f"{number} expressions in " in first and told in first
    assert first.endswith(f'in memory only: {number} startswith("cuda")')
    assert second == "`python -m k2_mac.run --show main.py` prints the changes"
    # A path outside of the current folder is shown as a whole.
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert (
        f" in {tmp_path}/main.py"
        in summary.lines(Hook([str(tmp_path)]), str(tmp_path / "main.py"))[0]
    )


@pytest.mark.parametrize("number, more", [(6, ""), (7, ", and 1 more")])
def test_the_summary_lists_six_places(tmp_path, monkeypatch, number, more):
    write(tmp_path, {"main.py": "x.double()\n" * number})
    monkeypatch.chdir(tmp_path)
    [line] = summary.lines(Hook([str(tmp_path)]), str(tmp_path / "main.py"))
    assert line.endswith(f"main.py:6 .double{more}")


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
    assert told("--show=x.py", "y.py").endswith("unrecognized arguments: y.py")
    assert told("--shw", "x").endswith("unrecognized arguments: --shw")
    missing = ran(python, "-m", "k2_mac.run", "missing.py")
    assert missing.returncode == 1 and "can't open file" in missing.stderr
    assert ran(python, "-m", "k2_mac.run", "-h").stdout.startswith("usage: ")
