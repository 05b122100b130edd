"""`python -m k2_mac.run` without k2, with CUDA, and with a torch for CUDA."""

import importlib.util
import json
import os

import pytest

from k2_mac import run
from k2_mac.tests.programs import ROOT, SAYS, write
from k2_mps_tests.running import ran


def test_a_program_can_set_variables_before_torch_is_imported(command):
    program = "import sys\nprint('torch' in sys.modules)\nimport torch\ntorch.ones(2).cuda()\n"
    assert command({"main.py": program}, "main.py").stdout == "False\n"


def test_a_program_may_run_without_k2(command):
    program = """import sys
sys.modules["k2"] = None  # k2 is not installed
import torch
try:
    import k2
except ImportError:
    k2 = None
x = torch.ones(2).cuda()
print(k2, x.device, torch.cuda.is_available(), torch.cuda.amp.autocast().device)
"""
    assert command({"main.py": program}, "main.py").stdout == "None mps:0 True mps\n"


def test_python_does_not_import_k2_mac_without_the_variable(python):
    program = "import sys; print([one for one in sys.modules if one.startswith('k2_mac')])"
    assert ran(python, "-c", program).stdout == "[]\n"


CUDA = {
    "torch/__init__.py": "class cuda:\n    is_available = staticmethod(lambda: {})\n",
    "torch/version.py": "cuda = '12.8'\nhip = None\n",
}
UNCHANGED = """import os, sys
import torch
print(torch.cuda.is_available(), *sys.argv, *sys.flags[6:7], *sys.orig_argv[1:])
print(any(name.startswith("k2_mac") for name in sys.modules), "K2_MAC_RUN" in os.environ)
"""


def test_with_cuda_python_runs_the_program_itself(project):
    files = {path: text.format(True) for path, text in CUDA.items()} | {"main.py": UNCHANGED}
    for program in (["main.py"], ["-m", "main"]):
        plain = project("project", files, "-X", "utf8", "-O", *program, "--show")
        for words in ("-O -m k2_mac.run", "-O -mk2_mac.run", "-Om k2_mac.run", "-Omk2_mac.run"):
            command = ["-X", "utf8", *words.split(), "--quiet", *program, "--show"]
            out = project("project", files, *command).stdout.splitlines()
            assert out == plain.stdout.splitlines(), words
            assert out[0].startswith("True ") and out[1] == "False False"


def test_a_process_of_a_changed_program_changes_even_if_it_finds_cuda(project, tmp_path):
    files = {path: text.format(True) for path, text in CUDA.items()}
    files["main.py"] = f"{SAYS}print(count)\n"
    of_parent = json.dumps({"roots": []})
    how = ("-m", "k2_mac.run", "main.py")
    assert project("project", files, *how, K2_MAC_RUN=of_parent).stdout == "1\n"


def test_a_torch_for_rocm_has_cuda(project):
    files = {path: text.format(True) for path, text in CUDA.items()}
    files["torch/version.py"] = "cuda = None\nhip = '6.4'\n"
    program = "from k2_mac import run; print(run.has_cuda())"
    assert project("project", files, "-c", program).stdout == "True\n"


# -S leaves out the folders of installed packages.
@pytest.mark.parametrize(
    "program, told",
    [
        (SAYS, "k2_mac.run: k2_mac_run.pth is not installed, so other processes run unchanged"),
        ("x = 1", None),
    ],
)
def test_a_python_without_our_pth_file_says_so_if_a_program_changes(project, program, told):
    how = ("-S", "-m", "k2_mac.run", "main.py")
    lines = project("project", {"main.py": program}, *how, PYTHONPATH=str(ROOT)).stderr.splitlines()
    assert lines[-1:] == ([told] if told else [])


def test_a_program_may_run_without_torch(project):
    program = "try:\n    import torch\nexcept ImportError:\n    print('none')\n"
    how = ("-S", "-m", "k2_mac.run", "main.py")
    out = project("project", {"main.py": program}, *how, PYTHONPATH=str(ROOT)).stdout
    assert out == "none\n"


def test_a_torch_that_was_imported_before_takes_devices_of_cuda(python):
    program = "import torch; from k2_mac.hook import Hook; Hook([]).install()"
    out = ran(python, "-c", f"{program}; print(torch.ones(1).cuda().device)").stdout
    assert out == "mps:0\n"


def test_the_project_of_a_folder(tmp_path):
    inner = tmp_path / "one/two"
    inner.mkdir(parents=True)
    assert run._project(str(inner)) == str(inner)
    assert run._project(os.sep) == os.sep
    (tmp_path / "one/.git").touch()
    assert run._project(str(inner)) == str(tmp_path / "one")


def test_a_torch_for_cuda_on_a_machine_without_cuda(project, tmp_path, monkeypatch):
    root = tmp_path / "project"
    write(root, {path: text.format(False) for path, text in CUDA.items()})
    program = "from k2_mac import run; print(run.has_cuda())"
    assert project("project", {}, "-c", program).stdout == "False\n"
    assert not run.has_cuda()  # a torch without CUDA
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not run.has_cuda()  # no torch
