"""Which files and processes `python -m k2_mac.run` changes; no file on the disk changes."""

import ast
import json
import os

import pytest

from k2_mac import rules
from k2_mac.hook import Hook
from k2_mac.tests.programs import SAYS, write

PRINTS = "import says\nprint(says.count)\n"


def test_changed_code_stays_out_of_pycache(project, tmp_path):
    files = {"main.py": PRINTS, "says.py": SAYS}
    assert project("project", files, "-m", "k2_mac.run", "main.py").stdout == "1\n"
    assert not (tmp_path / "project/__pycache__").exists()
    assert project("project", files, "main.py").stdout == "0\n"


def test_pycache_is_not_used_for_changed_code(project, tmp_path):
    files = {"main.py": PRINTS, "says.py": SAYS}
    cache = tmp_path / "project/__pycache__"
    assert project("project", files, "main.py").stdout == "0\n"
    [cached] = cache.iterdir()
    before = cached.read_bytes()
    assert project("project", files, "-m", "k2_mac.run", "main.py").stdout == "1\n"
    assert [one.read_bytes() for one in cache.iterdir()] == [before]
    assert project("project", files, "main.py").stdout == "0\n"


CHILDREN = """import multiprocessing
import subprocess
import sys

import says


def show(how):
    print(how, says.count, int("mps".startswith("cuda")), flush=True)


if __name__ == "__main__":
    for how in ("fork", "spawn", "forkserver"):
        process = multiprocessing.get_context(how).Process(target=show, args=(how,))
        process.start()
        process.join()
        assert process.exitcode == 0
    for options in ([], ["-E"], ["-u", "-X", "utf8"], ["-I"]):
        subprocess.run([sys.executable, *options, "child.py", *options], check=True)
    subprocess.run([sys.executable, "-c", "import says; print(says.count)"], check=True)
"""
CHILD = """import sys
print(*sys.argv, int("mps".startswith("cuda")), flush=True)
"""


def test_processes_that_the_program_starts_change_too(command):
    files = {"main.py": CHILDREN, "says.py": SAYS, "child.py": CHILD}
    result = command(files, "main.py")
    assert result.stderr.count("there is no CUDA") == 1
    assert result.stdout.splitlines() == [
        "fork 1 1",
        "spawn 1 1",
        "forkserver 1 1",
        "child.py 1",
        "child.py -E 1",
        "child.py -u -X utf8 1",
        "child.py -I 1",
        "1",
    ]


def test_a_process_with_other_arguments_than_its_programs_goes_on(project, tmp_path):
    """A program that embeds Python can give it such arguments."""
    program = "sys.argv = ['child.py']; from k2_mac import hook; hook.child(); print('goes on')"
    told = json.dumps({"roots": [os.path.realpath(tmp_path / "project")]})
    out = project(
        "project", {"child.py": CHILD}, "-c", f"import sys; {program}", K2_MAC_RUN=told
    ).stdout
    assert out == "goes on\n"


# The program is in a folder of the project.  `installed` is in the project's site-packages, and
# `elsewhere` is in another folder.
PACKAGES = {
    "main/main.py": (
        "import sys\n"
        "sys.path += ['lib/site-packages', '../other']\n"
        "import elsewhere, installed.deep, says\n"
        "print(says.count, installed.deep.count, elsewhere.count)\n"
    ),
    "says.py": SAYS,
    "lib/site-packages/installed/__init__.py": "",
    "lib/site-packages/installed/deep.py": SAYS,
}


@pytest.fixture
def other(tmp_path):
    """The folder of `elsewhere`."""
    write(tmp_path / "other", {"elsewhere.py": SAYS})
    return tmp_path / "other"


def test_only_the_project_changes(command, other):
    assert command(PACKAGES, "main/main.py").stdout == "1 0 0\n"


def test_packages_that_the_user_names_change_too(command, other, tmp_path):
    packages = f"{tmp_path}/project:{tmp_path}/project/lib/site-packages:{other}"
    also = ("--also", "installed", "--also", "elsewhere")
    out = command(PACKAGES, *also, "main/main.py", PYTHONPATH=packages).stdout
    assert out == "1 1 1\n"


def test_packages_that_the_user_names_change_for_a_module_too(command, tmp_path):
    packages = f"{tmp_path}/project:{tmp_path}/project/lib/site-packages"
    files = {**PACKAGES, "main.py": "import installed.deep\nprint(installed.deep.count)\n"}
    out = command(files, "--also", "installed", "-m", "main", PYTHONPATH=packages).stdout
    assert out == "1\n"


@pytest.mark.parametrize("name", ["missing", "missing.module"])
def test_a_package_that_does_not_exist_is_an_error(command, name):
    told = command(PACKAGES, "--also", name, "main/main.py", status=1).stderr
    assert told == f"error: Python finds no package {name}\n"


def test_a_package_without_init_that_the_user_names_changes_too(command, other, tmp_path):
    files = {**PACKAGES, "main/main.py": "import space.deep\nprint(space.deep.count)\n"}
    write(other, {"space/deep.py": SAYS})
    out = command(files, "--also", "space", "main/main.py", PYTHONPATH=str(other)).stdout
    assert out == "1\n"


IN_PLACE = """def loss(joiner, x):
    logits = joiner(x)
    return k2.rnnt_loss_pruned(logits=logits)
"""


def test_a_process_of_a_changed_program_may_ask_for_losses_in_place(command, tmp_path):
    """The process has the variable, whose value says that no loss is in place."""
    variable = json.dumps({"roots": [os.path.realpath(tmp_path / "project")]})
    told = command({"main.py": IN_PLACE}, "--in-place", "main.py", K2_MAC_RUN=variable).stderr
    assert "1 k2.rnnt_loss_pruned" in told


def test_losses_stay_in_place_in_a_process_of_a_changed_program(command):
    of_parent = json.dumps({"roots": [], "in_place": True})
    told = command({"main.py": IN_PLACE}, "main.py", K2_MAC_RUN=of_parent).stderr
    assert "1 k2.rnnt_loss_pruned" in told


def test_the_files_of_a_root():
    hook = Hook(["/one/two"])
    assert hook.owns("/one/two/a.py") and hook.owns("/one/two/three/a.py")
    for path in ("/one/two/a.txt", "/one/two3/a.py", "/one/two/dist-packages/three/a.py"):
        assert not hook.owns(path)
    assert not hook.owns("/four/a.py")


def test_a_root_may_be_added_later(monkeypatch):
    monkeypatch.setenv("K2_MAC_RUN", "")
    hook = Hook(["/one"])
    assert not hook.owns("/two/a.py")
    hook.add(["/two", "/one"])
    assert hook.owns("/two/a.py")
    assert json.loads(os.environ["K2_MAC_RUN"]) == {"roots": ["/one", "/two"], "in_place": False}


def test_a_file_that_changes_is_read_again(tmp_path):
    write(tmp_path, {"says.py": SAYS})
    hook, path = Hook([str(tmp_path)]), str(tmp_path / "says.py")
    assert hook.code(path) is hook.code(path)
    write(tmp_path, {"says.py": "count = 0\n"})
    assert hook.code(path) is None
    assert hook.code(str(tmp_path / "missing.py")) is None


def test_only_changed_files_are_parsed_with_their_changes(tmp_path):
    write(tmp_path, {"says.py": SAYS})
    hook = Hook([str(tmp_path)])
    assert ast.unparse(hook.tree(SAYS)) == SAYS.strip()
    hook.code(str(tmp_path / "says.py"))
    assert "('cuda', 'mps')" in ast.unparse(hook.tree(SAYS))


LIBRARY = os.path.dirname(os.path.realpath(os.__file__))


def test_pythons_library_below_a_root_does_not_change():
    assert not Hook([os.path.dirname(LIBRARY)]).owns(os.path.join(LIBRARY, "random.py"))


def test_a_package_of_pythons_library_that_the_user_names_changes():
    package = os.path.join(LIBRARY, "json")
    assert Hook([package]).owns(os.path.join(package, "tool.py"))


def _with_broken_rules(monkeypatch):
    """Lets the rules end each program with a `return` outside of a function."""
    change = rules.change

    def broken(source, in_place):
        changed = change(source, in_place)
        changed.tree.body += ast.parse("return").body
        return changed

    monkeypatch.setattr(rules, "change", broken)


def test_a_changed_file_that_does_not_compile_is_an_error(tmp_path, monkeypatch):
    write(tmp_path, {"says.py": SAYS})
    path = str(tmp_path / "says.py")
    assert Hook([str(tmp_path)]).code(path)
    _with_broken_rules(monkeypatch)
    with pytest.raises(RuntimeError, match=f"changed {path}, and the result does not compile"):
        Hook([str(tmp_path)]).code(path)


def test_python_raises_the_error_of_a_file_that_does_not_compile(tmp_path):
    write(tmp_path, {"says.py": SAYS + "\nreturn\n"})
    assert Hook([str(tmp_path)]).code(str(tmp_path / "says.py")) is None


# As typeguard does, this decorator compiles a function again, from the text of the file.
TYPEGUARD = """import ast
import inspect
import sys
import types


def typechecked(f):
    tree = ast.parse(inspect.getsource(sys.modules[f.__module__]))
    first = f.__code__.co_firstlineno
    code = compile(tree, f.__code__.co_filename, "exec", dont_inherit=True)
    codes = [one for one in code.co_consts if isinstance(one, types.CodeType)]
    [found] = [one for one in codes if one.co_firstlineno == first]
    return types.FunctionType(found, f.__globals__)
"""


def test_functions_that_typeguard_checks_change_too(command):
    files = {
        "main.py": (
            "import sys\nsys.path.insert(0, 'lib/site-packages')\nimport checked\nchecked.show()\n"
        ),
        "checked.py": (
            "import inspect\n"
            "import torch\n"
            "from typeguard import typechecked\n"
            "\n"
            "@typechecked\n"
            "def show():\n"
            "    print(torch.cuda.device_count(), inspect.currentframe().f_lineno)\n"
        ),
        "lib/site-packages/typeguard/__init__.py": "from ._decorators import typechecked\n",
        "lib/site-packages/typeguard/_decorators.py": TYPEGUARD,
    }
    assert command(files, "main.py").stdout == "1 7\n"
