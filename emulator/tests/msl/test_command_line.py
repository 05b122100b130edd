"""Tests the command line of python -m mps_emulator.msl."""

import pathlib
import shutil
import subprocess
import sys

MAIN = pathlib.Path(__file__).parents[2] / "mps_emulator/msl/__main__.py"


def test_includes(front_end, tmp_path):
    header = tmp_path / "parts" / "params.h"
    header.parent.mkdir()
    header.write_text("struct Params { int n; };\nint broken() { return WHAT; }\n")
    text = '#include "params.h"\nkernel void k(device Params *p) {}\n'
    done = front_end("build", text, "-I", "parts")
    assert done.returncode != 0 and not (tmp_path / "output").exists()
    assert "parts/params.h:2:23: error: use of undeclared" in done.stdout
    assert "int broken() { return WHAT; }" in done.stdout
    header.write_text("struct Params { int n; };\n")
    done = front_end("build", text, "-I", "parts")
    assert done.returncode == 0 and (tmp_path / "output").exists(), done.stdout


def test_missing_file(front_end):
    done = front_end("build", None)
    assert done.returncode != 0
    assert "No such file or directory: 'kernels.metal'" in done.stdout


def test_a_folder_runs_its_own_package(tmp_path):
    """Another version of the package may be installed."""
    folder = tmp_path / "mps_emulator/msl"
    folder.mkdir(parents=True)
    for empty in (folder.parent / "__init__.py", folder / "__init__.py"):
        empty.touch()
    (folder / "cli.py").write_text("def main():\n    print(__file__)\n")
    shutil.copy(MAIN, folder)
    done = subprocess.run([sys.executable, folder], capture_output=True, text=True)
    assert done.stdout == f"{folder / 'cli.py'}\n", done.stderr
