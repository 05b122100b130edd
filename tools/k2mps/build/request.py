"""What a caller asks of a build, and what the build returns."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from k2mps.build.doctor import Device


@dataclasses.dataclass(frozen=True)
class Request:
    """The options of a build of k2."""

    device: Device = Device.MPS
    torch: str | None = None  # one of the supported versions, or None for the default
    jobs: int | None = None  # how many compilers run at once; None for `fitting_jobs`
    cmake_arguments: tuple[str, ...] = ()  # further arguments for cmake
    # Whether the libraries go into a wheel.  Such libraries contain no paths of this machine.  They
    # find torch's libraries by a path relative to their own folder.
    for_wheel: bool = False
    crossed: bool = False  # whether this Linux machine builds for macOS
    # Whether the build is only a check.  Such a build optimizes little, and compiles several source
    # files as one.
    quick: bool = False
    metallib: bool = False  # whether a crossed build also compiles the kernels
    sdk: Path | None = None  # Apple's SDK, for a crossed build that is only a check
    as_is: bool = False  # whether to build the checkout without applying the series
    tests: bool = False  # whether to build k2's C++ tests instead of its Python module
    keep_going: bool = False  # whether ninja runs all other steps after a step has failed

    @property
    def emulated(self) -> bool:
        """Whether the built k2 runs on the emulated device."""
        return self.device.emulated and not self.crossed

    @property
    def label(self) -> str:
        """The first part of the name of the build tree."""
        label = f"{self.device.value}-macos-arm64" if self.crossed else self.device.label
        if self.tests:
            label += "-cpp"
        if self.for_wheel:
            label += "-wheel"
        if self.metallib:
            label += "-metallib"
        return f"{label}-quick" if self.quick else label


@dataclasses.dataclass(frozen=True)
class Built:
    checkout: Path  # the directory of the checkout that was built
    directory: Path  # the build tree
    python_path: tuple[Path, Path]  # the entries of sys.path that `import k2` needs, in order
    steps: int  # how many steps ninja ran; 0 if nothing had changed
    version: str = "0"  # the version that pip lists
    python_tag: str = ""  # the Python that the build is for, as a tag of wheels: "cp311"
    origin: Mapping[str, object] = dataclasses.field(default_factory=dict)  # see provenance.py
