"""Builds the patched k2 for pip: `pip install "k2 @ git+URL#subdirectory=wheel"`.

`k2mps wheel` makes the wheel.  The wheel is for this machine, for the Python that runs pip, and
for the torch that is installed in that Python.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_PYTHON = "import sys; print(sys.version_info[:2])"
# pip sets environment variables with these prefixes for this build.  The builds that this build
# starts must not see these variables.
_OURS = ("PYTHON", "PEP517_", "_PYPROJECT_HOOKS_", "PIP_BUILD_TRACKER")
_TORCH = "import importlib.metadata as m; print(m.version('torch').split('+')[0])"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Makes a wheel in a folder; returns the name of the wheel's file.

    Args:
      config_settings: options of `k2mps wheel` by their names, from pip's options like
        `-C torch=2.14.1` or `-C quick=`.
    """
    settings = dict(config_settings or {})
    # pip sets PYTHONPATH so that a build does not see the installed packages.  With -I, Python
    # ignores PYTHONPATH.
    if torch := _asked([sys.executable, "-I", "-c", _TORCH]):
        settings.setdefault("torch", torch)
    options = [f"--{name}={value}" if value else f"--{name}" for name, value in settings.items()]
    _run(["make", ".venv/bin/k2mps", f"PYTHON={sys.executable}"])
    theirs = _asked([_ROOT / ".venv/bin/python", "-c", _PYTHON])
    if theirs != str(sys.version_info[:2]):
        sys.exit(
            f"error: {_ROOT}/.venv is for Python {theirs}: install with that Python, or remove it"
        )
    _run([".venv/bin/k2mps", "wheel", *options])
    made = (_ROOT / "build/wheels").rglob("k2-*.whl")
    newest = max(made, key=lambda path: path.stat().st_mtime_ns)
    return Path(shutil.copy(newest, wheel_directory)).name


def _environment():
    return {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}


def _run(command):
    status = subprocess.run(command, cwd=_ROOT, env=_environment()).returncode
    if status:
        sys.exit(status)


def _asked(command):
    found = subprocess.run(command, env=_environment(), capture_output=True, text=True)
    return found.stdout.strip()
