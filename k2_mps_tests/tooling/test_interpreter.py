"""The tool finds the Python that a wheel is for, and refuses a Python that can have no wheel."""

import ctypes
import dataclasses
import sys
from pathlib import Path

import pytest
from k2mps.build import interpreter, toolchain
from k2mps.core import errors

from k2_mps_tests.tooling import support

ROOT = support.TOOLS.parent
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"

# A program that runs this Python, but pretends to be another.  It runs {lines}, which change the
# interpreter's facts, before the code that follows `-I -c`.
STAND_IN = """\
#!/bin/sh
exec {program} "$1" "$2" "import sys, sysconfig
sysconfig.get_config_vars()  # read before the changes
{lines}
$3"
"""


@pytest.fixture
def stand_in(tmp_path):
    def make(*lines: str) -> str:
        path = tmp_path / "python-of-another-kind"
        path.write_text(STAND_IN.format(program=sys.executable, lines="\n".join(lines)))
        path.chmod(0o755)
        return str(path)

    return make


def test_facts_of_the_running_python():
    found = interpreter.find()
    assert found.version == HERE
    assert found.tag == "cp" + HERE.replace(".", "")
    assert found.number.startswith(f"{HERE}.")
    assert Path(found.library).exists()
    found.check_headers()
    assert found == interpreter.find(sys.executable)
    symbols = found.symbols()
    assert {"PyLong_FromLong", "_Py_NoneStruct"} < symbols
    assert "PyNo_SuchThing" not in symbols and "malloc" not in symbols
    # The running Python exports each of these symbols.
    assert all(hasattr(ctypes.pythonapi, name) for name in symbols)


def test_another_version_needs_its_headers(stand_in, tmp_path):
    program = stand_in(
        "sys.version_info = (3, 14, 2, 'final', 0)",
        f"sysconfig.get_path = lambda name: '{tmp_path / 'include'}'",
    )
    found = interpreter.find(program)
    assert (found.version, found.tag) == ("3.14", "cp314")
    with pytest.raises(errors.RequirementMissingError) as caught:
        found.check_headers()
    text = str(caught.value)
    assert f"{tmp_path / 'include/Python.h'} does not exist" in text
    assert "libpython3.14-dev" in text and program in text
    (tmp_path / "include").mkdir()
    (tmp_path / "include/Python.h").write_text("")
    found.check_headers()


@pytest.mark.parametrize(
    "lines, why",
    [
        (["sys.version_info = (3, 9, 2, 'final', 0)"], "its output: cpython"),
        (["sys.implementation.name = 'pypy'"], "its output: pypy"),
        (["sys.abiflags = 't'"], "flags 't'"),
        (["sys.abiflags = 'd'"], "flags 'd'"),
        (["sys.exit(1)"], "its output: nothing"),
        (["print('1')", "sys.exit()"], "its output: 1"),
    ],
)
def test_a_python_that_can_have_no_wheel_is_refused(stand_in, lines, why):
    with pytest.raises(errors.RequirementMissingError) as caught:
        interpreter.find(stand_in(*lines))
    assert why in str(caught.value)


def test_a_toolchain_names_extensions_for_its_python(tmp_path):
    settings = toolchain.Toolchain(tmp_path, "cp314", "").settings()
    assert settings["PYTHON_MODULE_EXTENSION"] == ".cpython-314-darwin.so"


@pytest.mark.parametrize(
    "torch, tag",
    [
        ("2.9.1", "macosx_14_0_arm64"),
        ("2.14.1", "macosx_14_0_arm64"),
        ("2.15.0", "macosx_15_0_arm64"),
    ],
)
def test_the_oldest_macos_of_a_torch_is_in_the_tag_of_a_wheel(torch, tag):
    assert toolchain.platform(torch) == tag


def test_a_toolchain_runs_this_python(tmp_path):
    """CMake asks the toolchain's bin/python about a torch that only the toolchain's site/ has."""
    support.write(tmp_path, {"site/torch/__init__.py": "version = '2.99.0'\n", "bin/python": ""})
    toolchain.write_python(tmp_path / "bin/python")
    code = "import sys, torch; print(torch.version, *sys.version_info[:2])"
    found = support.output(tmp_path / "bin/python", "-c", code)
    assert found == f"2.99.0 {HERE.replace('.', ' ')}\n"


@pytest.mark.parametrize("library", ["/nowhere/libpython3.so", "/bin/true", "/etc/passwd"])
def test_a_library_without_pythons_symbols_is_refused(library):
    found = dataclasses.replace(interpreter.find(), library=library)
    with pytest.raises(errors.RequirementMissingError, match=f"{library} exports nothing of"):
        found.symbols()
