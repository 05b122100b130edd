"""The origin of a build of k2: its patches, its tools, and whether the checkout had edits.

The origin is a JSON file: lib/k2mps.json in a build tree, and k2mps.json in the folder .dist-info
of a wheel.  `k2_mac.provenance` reads it.
"""

import json
from collections.abc import Mapping

FILE = "k2mps.json"
NATIVE = "native"


def as_bytes(origin: Mapping[str, object]) -> bytes:
    return (json.dumps(origin, indent=2, sort_keys=True) + "\n").encode()
