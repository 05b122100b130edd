"""Prints the facts of this machine as JSON.

The facts name no user, host, directory or serial number.

    python -m k2_mps_tests.machine
"""

import json
import platform
import subprocess
import sys

import k2
import torch


def _first_line(*command: str) -> str | None:
    """Returns the first line that a command of macOS prints; None on other systems."""
    if sys.platform != "darwin":
        return None
    asked = subprocess.run(command, capture_output=True, text=True)
    return asked.stdout.split("\n")[0] or None


def _sysctl(name: str) -> str | None:
    return _first_line("sysctl", "-n", name)


def facts() -> dict:
    """Returns the facts of this machine, {name: value}; an unknown value is None."""
    found = {
        "emulated": sys.platform != "darwin",
        "system": platform.system(),
        "macos": platform.mac_ver()[0] or None,
        "processor": _sysctl("machdep.cpu.brand_string") or platform.machine(),
        "cores": _sysctl("hw.ncpu"),
        "memory": _sysctl("hw.memsize"),
        # The value is "1" in a virtual machine.  A virtual machine has a paravirtual GPU.
        "virtual_machine": _sysctl("kern.hv_vmm_present"),
        "metal_compiler": _first_line("xcrun", "metal", "--version"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "k2": k2.mps.build_info(),
        "unavailable": k2.mps.unavailable_reason(),
    }
    if torch.backends.mps.is_available():
        found["gpu"] = torch.backends.mps.get_name()
        found["gpu_cores"] = torch.backends.mps.get_core_count()
        found["recommended_memory"] = torch.mps.recommended_max_memory()
    return found


if __name__ == "__main__":
    print(json.dumps(facts(), indent=1))
