"""What users of k2 on mps get beside k2: programs, and functions for recipes.

    python -m k2_mac.run          runs a program that was written for CUDA
    python -m k2_mac.check        compares mps with the CPU on this machine
    python -m k2_mac.calibrate    measures the times of operations on this machine
    python -m k2_mac.provenance   prints the origin of this k2

``k2_mac.gpu`` has the functions of ``torch.cuda`` that recipes call, for example for the device and
its memory.  ``k2_mac.install_ctc_loss()`` makes k2 compute torch's ``ctc_loss`` on mps.  From 2.14
on, torch can do so itself.  ``k2_mac.distributed`` lets torch.distributed train with tensors on
mps, in several processes on one Mac or on several.

``import k2_mac`` alone imports neither torch nor k2.  The first use of ``k2_mac.gpu`` warns of
known faults of this release of torch on this release of macOS.
"""

import importlib
from typing import Any

# {name: the module of k2_mac that has the function}
_FUNCTIONS = {
    "install_ctc_loss": "torch_ctc",
    "pick_device": "gpu",
    "uninstall_ctc_loss": "torch_ctc",
}
_MODULES = ("distributed", "gpu")

__all__ = [*_MODULES, *_FUNCTIONS]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(f"{__name__}.{_FUNCTIONS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
