"""The origin of this k2.

A packager may record values in a file ``k2mps.json`` beside the library ``_k2`` or in the package's
``.dist-info``.  Values that the file lacks come from the library, or are None.
"""

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import _k2

_FILE = "k2mps.json"


def build_info() -> dict[str, Any]:
    """Returns the origin of this k2 and how it was built.

    Returns:
      A dict with these keys.  An unknown value is None.

        - version: the version of k2's package.
        - git_sha1: the commit that was compiled, which includes the patches.
        - upstream: the URL of upstream's repository.
        - upstream_commit: the commit of upstream that the patches apply to.
        - patched_tree: git's id of the source tree after the patches.
        - series: git's id of the folder that contains the patches.
        - dirty: whether the source tree had uncommitted edits.
        - torch: the version of torch that the library was built for.
        - python: the version of Python that the library was built for.
        - compiler: the name and the version of the compiler.
        - built: "native" if the library was built on the kind of machine that it is for, else how
          it was built and checked.
        - device: the device that the library supports besides the CPU.
        - with_mps, with_cuda: whether the library supports mps; whether the library supports CUDA.
    """
    version = _k2.version
    record = _record()
    upstream = record.get("upstream", {})
    return {
        "version": record.get("version", version.__version__),
        "git_sha1": version.git_sha1,
        "upstream": upstream.get("url"),
        "upstream_commit": upstream.get("commit"),
        "patched_tree": record.get("patched_tree"),
        "series": record.get("series"),
        "dirty": record.get("dirty"),
        "torch": version.torch_version,
        "python": version.python_version,
        "compiler": record.get("compiler", version.gcc_version),
        "built": record.get("built"),
        "device": record.get("device"),
        "with_mps": bool(version.with_mps),
        "with_cuda": bool(version.with_cuda),
    }


def describe() -> str:
    """Returns `build_info` as text, one line for each value."""
    return "\n".join(
        f"{name}: {'unknown' if value is None else value}" for name, value in build_info().items()
    )


def _record() -> dict[str, Any]:
    """Returns the content of the packager's file, or an empty dict."""
    folder = Path(_k2.__file__).parent
    text = None
    if (folder / _FILE).is_file():
        text = (folder / _FILE).read_text(encoding="utf-8")
    # Another k2 may be installed too, so read only the package in the folder of this library.
    for package in importlib.metadata.distributions(name="k2", path=[str(folder)]):
        text = text or package.read_text(_FILE)
    return json.loads(text) if text else {}


if __name__ == "__main__":
    print(describe())
