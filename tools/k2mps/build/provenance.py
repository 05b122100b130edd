"""The origin of a build of k2: its patches and tools, and whether it was edited.

The file is lib/k2mps.json in a build tree, and in .dist-info in a wheel; `k2.mps.build_info()`
reads either.
"""

import json
from collections.abc import Mapping

FILE = "k2mps.json"
NATIVE = "native"


def as_bytes(origin: Mapping[str, object]) -> bytes:
    return (json.dumps(origin, indent=2, sort_keys=True) + "\n").encode()
