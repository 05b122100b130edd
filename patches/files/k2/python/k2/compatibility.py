# Copyright      2026  The k2-mps authors
#
# See ../../../LICENSE for clarification regarding multiple authors
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
'''Tells whether this k2 can run on this system, and what to do if it cannot.

``import k2`` calls this module before k2's libraries are loaded, so this module
does not import them.  system_problem() and mps_problem() depend on their
arguments alone.
'''
import dataclasses
import platform
import re
import subprocess
import warnings
from typing import Optional
from typing import Tuple

# The first release of torch for which the host can read tensors on mps.
MIN_TORCH = '2.12'
# The first release of torch that is newer than this k2.  From this release on,
# k2 checks what the data pointer of a tensor on mps means.
UNKNOWN_TORCH = '2.16'
# The first release of macOS that torch for Apple Silicon supports.
MIN_MACOS = '14.0'


@dataclasses.dataclass(frozen=True)
class System:
    '''The system that this process runs on.

    Attributes:
      name:
        E.g. ``'Darwin'``, which is macOS, or ``'Linux'``.
      version:
        The version of macOS, e.g. ``'14.5'``; empty on other systems.
      machine:
        The processor that Python was built for, e.g. ``'arm64'``.
      translated:
        Whether Python was built for Intel processors and runs under Rosetta.
    '''
    name: str
    version: str
    machine: str
    translated: bool


@dataclasses.dataclass(frozen=True)
class Facts:
    '''The facts that decide whether a loaded k2 can use mps.

    Attributes:
      system:
        The system that this process runs on.
      torch:
        The version of torch, e.g. ``'2.13.0+cpu'``.
      k2_has_mps, torch_has_mps:
        Whether k2 was built with mps; whether torch was built with mps.
      device:
        Whether torch finds an mps device.
      pointers:
        Why k2 cannot find the memory of torch's tensors on mps.  Empty if k2
        can find the memory, or if k2 was tested with this torch.
    '''
    system: System
    torch: str
    k2_has_mps: bool
    torch_has_mps: bool
    device: bool
    pointers: str = ''


def system_problem(system: System) -> Optional[str]:
    '''Return why a system cannot have the device mps.

    Returns:
      What is wrong and what to do; None if nothing is known to be wrong.
    '''
    if system.name != 'Darwin':
        return None
    if system.machine != 'arm64':
        how = ', run by Rosetta' if system.translated else ''
        return (
            f'This Python is for Intel processors{how}; k2 uses mps on '
            'Apple Silicon only.\n'
            'On Apple Silicon, make an environment with a Python for arm64, '
            'such as Homebrew\'s in /opt/homebrew, and install torch and k2 '
            'in it. "import platform; platform.machine()" tells which '
            'processor a Python is for.')
    # Newer releases of macOS report 10.16 to programs that were built for an
    # older release.
    version = '' if system.version == '10.16' else system.version
    if version and _numbers(version) < _numbers(MIN_MACOS):
        return (
            f'This is macOS {version}; k2 uses mps from macOS {MIN_MACOS} '
            'on.\nUpdate macOS: System Settings, General, Software Update.')
    return None


def mps_problem(facts: Facts) -> Optional[str]:
    '''Return why k2 cannot use the device mps.

    Returns:
      What is wrong and what to do; None if k2 can use the device.
    '''
    problem = system_problem(facts.system)
    if problem:
        return problem
    if _numbers(facts.torch) < _numbers(MIN_TORCH):
        return (
            f'This is torch {facts.torch}; k2 uses mps from torch {MIN_TORCH} '
            'on.\nInstall a newer torch and a k2 that was built for it.')
    if not facts.k2_has_mps:
        return (
            'This k2 was built without mps.\n'
            'For a Mac, take a k2 with +mps in its version, or build k2 '
            'with -DK2_WITH_MPS=ON.')
    if facts.system.name != 'Darwin' and not facts.torch_has_mps:
        return (
            f'This is {facts.system.name}; mps is the GPU of Apple Silicon.\n'
            'Choose another device, e.g. torch.device("cpu").')
    if not facts.torch_has_mps:
        return (
            'This torch was built without mps.\n'
            'Install the torch that PyPI has for macOS: pip install '
            f'--force-reinstall torch=={facts.torch.split("+")[0]}')
    if not facts.device:
        return (
            'torch finds no mps device.\n'
            'A virtual machine may have no such device. Otherwise '
            '"python3 -m torch.utils.collect_env" may show the reason.')
    if facts.pointers:
        return (
            f'{facts.pointers}\n'
            'Install a torch that this version of k2 supports, and the k2 '
            'that was built for it.')
    return None


def check_import() -> None:
    '''Load the libraries of k2.

    Raises:
      ImportError:
        The libraries do not load on this system; the message says what to do.
    '''
    try:
        import _k2  # noqa
    except ImportError as error:
        problem = system_problem(this_system())
        if problem is None and isinstance(error, ModuleNotFoundError):
            raise
        problem = problem or _linker_problem()
        raise ImportError(f'{problem}\nThe cause: {error}') from error


def this_system() -> System:
    '''Return the system of this process.'''
    name, machine = platform.system(), platform.machine()
    translated = name == 'Darwin' and machine != 'arm64' and _translated()
    return System(name, platform.mac_ver()[0], machine, translated)


def facts() -> Facts:
    '''Return the facts about this process; k2's libraries must be loaded.'''
    import torch
    import _k2
    mps = torch.backends.mps
    device = mps.is_available()
    return Facts(this_system(), str(torch.__version__),
                 bool(_k2.version.with_mps), mps.is_built(), device,
                 _pointer_problem() if device else '')


def _pointer_problem() -> str:
    import torch
    import _k2
    # mps_pointer_problem() allocates memory, so call it only if torch is newer
    # than this k2.
    if _numbers(torch.__version__) < _numbers(UNKNOWN_TORCH):
        return ''
    return _k2.version.mps_pointer_problem()


def warn_without_mps() -> None:
    '''Warn if this k2 was built with mps but cannot use it.'''
    found = facts()
    problem = mps_problem(found) if found.k2_has_mps else None
    if problem:
        warnings.warn(f'{problem}\nk2 works on the CPU.', stacklevel=2)


def _linker_problem() -> str:
    '''Return what to do if the dynamic linker cannot load k2's libraries.'''
    import torch
    from .torch_version import k2_torch_version
    version = k2_torch_version.split('+')[0]
    return (
        f'k2 was built using PyTorch {k2_torch_version}; its libraries do not '
        f'load beside PyTorch {torch.__version__}.\n'
        'If parts of torch or of k2 are missing, install both again: '
        f'"pip install --force-reinstall torch=={version}", and the same for '
        'the wheel of k2.')


def _numbers(version: str) -> Tuple[int, ...]:
    '''Return the first two numbers of a version, to compare versions.'''
    return tuple(map(int, re.findall(r'\d+', version.split('+')[0])[:2]))


def _translated() -> bool:
    '''Return whether Rosetta runs this process.'''
    answer = subprocess.run(['sysctl', '-n', 'sysctl.proc_translated'],
                            capture_output=True, text=True)
    return answer.stdout.strip() == '1'
