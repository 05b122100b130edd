"""What users of k2 on mps get beside k2: programs, and functions for recipes.

    python -m k2_mac.check        compares mps with the CPU on this machine
    python -m k2_mac.calibrate    measures the times of operations on this machine
    python -m k2_mac.provenance   prints the origin of this k2

``k2_mac.gpu`` has the functions of ``torch.cuda`` that recipes call, for example for the device and
its memory.  ``k2_mac.install_ctc_loss()`` makes k2 compute torch's ``ctc_loss`` on mps.  From 2.14
on, torch can do so itself.  ``k2_mac.distributed`` lets torch.distributed train with tensors on
mps, in several processes on one Mac or on several.

The import warns of known faults of this release of torch on this release of macOS.
"""

import platform

import torch

from . import distributed, faults, gpu
from .gpu import pick_device
from .torch_ctc import install_ctc_loss, uninstall_ctc_loss

__all__ = ["distributed", "gpu", "install_ctc_loss", "pick_device", "uninstall_ctc_loss"]

if torch.backends.mps.is_available():
    faults.warn_of_faults(torch.__version__, platform.mac_ver()[0])
