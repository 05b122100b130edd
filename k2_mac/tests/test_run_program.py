"""Under `python -m k2_mac.run`, a program sees itself as Python would run it."""

import sys

import pytest

from k2_mac.tests.programs import SAYS

HOLDS = """import inspect
import os
import pickle
import sys

import torch


class Kept:
    value = 3


@torch.jit.script
def scripted(x: torch.Tensor):
    return x * 2 if x.is_cuda else x * 3


def compiled(x, device: str):
    if x.is_cuda:
        x = x.to(device) + torch.ones(2, device=device)
    return x * 2


assert "x.is_cuda" in inspect.getsource(compiled)
x = torch.ones(2, device="cuda")
function = torch.compile(compiled, backend="aot_eager", fullgraph=True)
assert function(x, "cuda:1").tolist() == [4.0, 4.0]
assert scripted(torch.ones(1)).item() == 3.0
assert pickle.loads(pickle.dumps(Kept())).value == 3
assert sys.modules["__main__"].Kept is Kept
assert __builtins__.len is len  # a module, as in each main program
assert os.path.abspath(__loader__.path) == __file__
print(__name__, __spec__ and __spec__.name, __package__, *sys.argv)
print(__file__ == os.path.abspath(__file__), sys.path[0])
"""


def test_a_program_can_read_pickle_script_and_compile_itself(command, tmp_path):
    root = tmp_path / "project"
    out = command({"main/program.py": HOLDS}, "main/program.py", "--show", "-m").stdout
    assert out == f"__main__ None None main/program.py --show -m\nTrue {root}/main\n"


def test_a_module_and_a_package_run_as_main_program(command, tmp_path):
    root = tmp_path / "project"
    files = {"pack/__init__.py": "", "pack/program.py": HOLDS, "pack/__main__.py": HOLDS}
    for name, main in (("pack.program", "program"), ("pack", "__main__")):
        out = command(files, "-m", name, "--also", "x").stdout
        argv = f"{root}/pack/{main}.py --also x"
        assert out == f"__main__ pack.{main} pack {argv}\nTrue {root}\n"


def test_a_package_without_init_has_modules_that_run(command):
    program = "print(__name__, __package__, int('mps'.startswith('cuda')))\n"
    out = command({"pack/program.py": program}, "-m", "pack.program").stdout
    assert out == "__main__ pack 1\n"


# These programs change, but neither they nor the changes import torch, so they start quickly.
FAILS = """from helper import fail


def main():
    if "mps".startswith("cuda") >= 0: fail(  # in a line that changes
        "cpu")


main()
"""
HELPER = """def fail(device):
    "mps".startswith("cuda"), 1 / (device != "cpu")
"""


def test_modules_are_searched_where_python_searches_them(project):
    files = {"asr/main.py": "import sys\nprint(sys.path)\n"}
    for options in ([], *([["-P"]] if sys.version_info >= (3, 11) else [])):
        plain = project("project", files, *options, "asr/main.py").stdout
        ours = project("project", files, *options, "-m", "k2_mac.run", "asr/main.py").stdout
        assert ours == plain


def test_modules_are_searched_in_the_folder_that_a_link_leads_to(project, tmp_path):
    files = {"asr/main.py": "import sys\nprint(sys.path)\n"}
    project("project", files, "asr/main.py")
    (tmp_path / "project/link.py").symlink_to("asr/main.py")
    plain = project("project", files, "link.py").stdout
    assert project("project", files, "-m", "k2_mac.run", "link.py").stdout == plain


@pytest.mark.parametrize(
    "name, told",
    [
        ("pack.missing", "No module named pack.missing, or it is not a program"),
        ("pack.missing.module", "finding module specification for 'pack.missing.module'"),
        ("sys", "No module named sys, or it is not a program"),
        ("missing", "error: Python finds no package missing"),
    ],
)
def test_a_module_that_cannot_run_is_an_error(command, name, told):
    assert told in command({"pack/__init__.py": ""}, "-m", name, status=1).stderr


def test_a_program_may_show_errors_without_a_traceback(project):
    files = {"main.py": "import sys\nsys.excepthook(ValueError, ValueError('wrong'), None)\n"}
    plain = project("project", files, "main.py").stderr
    assert project("project", files, "-m", "k2_mac.run", "main.py").stderr == plain
    assert plain == "ValueError: wrong\n"


def test_a_traceback_shows_the_lines_of_the_file_and_no_line_of_ours(project):
    files = {"main.py": FAILS, "helper.py": HELPER}
    plain = project("project", files, "main.py", status=1)
    ours = project("project", files, "-m", "k2_mac.run", "--quiet", "main.py", status=1)
    assert ours.stderr == plain.stderr
    assert "line 5, in main" in ours.stderr and "ZeroDivisionError" in ours.stderr


def test_a_traceback_of_an_import_has_no_line_of_ours(project):
    files = {"main.py": "import says\nimport helper\n", "says.py": SAYS, "helper.py": "1 / 0\n"}
    plain = project("project", files, "main.py", status=1)
    ours = project("project", files, "-m", "k2_mac.run", "--quiet", "main.py", status=1)
    assert ours.stderr == plain.stderr and "ZeroDivisionError" in ours.stderr


def test_the_debugger_shows_the_lines_of_the_file(command):
    program = "x = 'mps'.startswith('cuda')\nbreakpoint()\ny = x\n"
    out = command({"main.py": program}, "main.py", input="list\np x\ncontinue\n").stdout
    assert "main.py(3)<module>()\n-> y = x" in out and "1  \tx = 'mps'.startswith('cuda')" in out
    assert "(Pdb) True\n" in out


def test_the_status_of_the_program_is_that_of_the_command(command):
    command({"main.py": "import sys; sys.exit(7)\n"}, "main.py", status=7)


@pytest.mark.parametrize("text", ["import torch\ntorch.cuda.x(\n", "\x00cuda", b"cuda = '\xff'"])
def test_a_program_that_python_cannot_read_fails_as_without_us(project, text):
    (plain, ours) = (
        project("project", {"main.py": "import other\n", "other.py": text}, *how, status=1)
        for how in (("main.py",), ("-m", "k2_mac.run", "main.py"))
    )
    assert ours.stderr == plain.stderr and "Error" in ours.stderr
