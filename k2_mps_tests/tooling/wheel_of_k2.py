"""Makes small wheels with the metadata of a wheel of k2-mps."""

import dataclasses
import hashlib
from pathlib import Path

from k2mps.build import provenance
from k2mps.wheel import contents

COMMIT, TREE, SERIES = "a" * 40, "b" * 40, "c" * 64
KERNEL = "k2/csrc/mps/kernels/add.metal"


@dataclasses.dataclass
class Case:
    """A wheel that can be installed everywhere, with the metadata of a wheel of k2-mps."""

    description: contents.Description
    files: dict[str, bytes]

    def written(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.description.file_name
        files = {**self.files, **contents.metadata_files(self.description)}
        contents.pack(path, self.description, files)
        return path


def case(torch: str = "2.13.0", version: str = "", **values: object) -> Case:
    """Returns a wheel.

    Args:
      torch: the version of torch that the wheel needs.
      version: the wheel's version; empty for one with the version of torch.
      values: replace values of the wheel's origin, see provenance.py of the tool.
    """
    version = version or f"1.0.dev20231114+mps.cpu.torch{torch}"
    origin = {
        "built": provenance.NATIVE,
        "compiler": "Clang 19.1.7",
        "device": "mps",
        "dirty": False,
        "patched_tree": TREE,
        "series": SERIES,
        "torch": torch,
        "version": version,
        "headers": {"pybind11": "3.1.0", "ziglang": "0.14.1"},
        "kernels": {KERNEL: hashlib.sha256(b"").hexdigest()},
        "upstream": {"url": "https://example.org/k2.git", "commit": COMMIT},
        **values,
    }
    description = contents.Description(version, "py3-none-any", origin, 1700000000)
    return Case(description, {"k2/__init__.py": b"answer = 42\n"})
