"""Prints the facts of this machine that need neither torch nor k2.

    python -m k2_mps_tests.report.facts

The facts name no user, host or serial number.
"""

import os
import platform
import re
import sys

from k2_mps_tests.report import items, running

# {name: command}.  The programs are macOS's own, and need no password.
_COMMANDS = {
    "macos": ("sw_vers",),
    "chip": ("sysctl", "-n", "machdep.cpu.brand_string"),
    # "1" in a virtual machine, whose GPU is paravirtual.
    "virtual_machine": ("sysctl", "-n", "kern.hv_vmm_present"),
    "cores": ("sysctl", "hw.ncpu", "hw.perflevel0.physicalcpu", "hw.perflevel1.physicalcpu"),
    "memory": ("sysctl", "-n", "hw.memsize"),
    "memory_now": ("vm_stat",),
    "memory_pressure": ("sysctl", "-n", "kern.memorystatus_vm_pressure_level"),
    "wired_limit": ("sysctl", "-n", "iogpu.wired_limit_mb"),
    "hardware": ("system_profiler", "-detailLevel", "mini", "SPHardwareDataType"),
    # The GPU, its number of cores, its Metal family, and the displays.
    "displays": ("system_profiler", "-detailLevel", "mini", "SPDisplaysDataType"),
    "power": ("pmset", "-g", "ps"),
    "power_settings": ("pmset", "-g", "custom"),
    "thermal_state": ("pmset", "-g", "therm"),
    "load": ("uptime",),
    "disk": ("df", "-h", "."),
    "xcode": ("xcodebuild", "-version"),
    "developer_folder": ("xcode-select", "-p"),
    "sdk": ("xcrun", "--sdk", "macosx", "--show-sdk-version"),
    "compiler": ("clang++", "--version"),
    "metal_compiler": ("xcrun", "-sdk", "macosx", "metal", "--version"),
}
# Lines of these programs that identify the machine.
_IDENTIFYING = re.compile(r"serial|uuid|udid|provisioning|activation", re.IGNORECASE)


def _said(command: tuple[str, ...]) -> str:
    _, said = running.output(*command)
    lines = [line.rstrip() for line in said.splitlines() if not _IDENTIFYING.search(line)]
    return "\n".join(line for line in lines if line)


def main() -> None:
    items.measured(
        emulated=sys.platform != "darwin",
        system=platform.system(),
        release=platform.release(),
        macos=platform.mac_ver()[0],
        processor=platform.machine(),
        cores=os.cpu_count(),
        python=platform.python_version(),
    )
    if sys.platform == "darwin":
        for name, command in _COMMANDS.items():
            said = _said(command)
            print(f"{name}: {said}", flush=True)
            items.measured(**{name: said})
    else:
        print("this machine is no Mac: mps is emulated")
    for command in (("git", "log", "-1", "--format=%H %cI"), ("git", "status", "--short")):
        print(f"{' '.join(command)}: {_said(command)}", flush=True)


if __name__ == "__main__":
    main()
