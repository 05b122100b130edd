"""The contents of a wheel, as a CycloneDX bill of materials.

The bill depends on the wheel alone.
"""

import datetime
import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from k2mps import __version__
from k2mps.core.pins import sha256
from k2mps.wheel.archive import WheelFile, refusal

_LICENSE = [{"expression": "Apache-2.0"}]
_TOLD = ("built", "compiler", "device", "dirty", "patched_tree", "series", "torch")


def write(path: Path) -> Path:
    """Writes the bill of a wheel of k2-mps beside it; returns the bill's path."""
    bill = path.with_name(f"{path.name}.cdx.json")
    bill.write_text(text(path), encoding="utf-8")
    return bill


def text(path: Path) -> str:
    """The bill of a wheel: CycloneDX 1.6, as JSON."""
    wheel = WheelFile(path)
    digest = sha256(path.read_bytes())
    # The bill's time is that of the newest file.
    newest = max(entry.date_time for entry in wheel.entries.values())
    try:
        time = datetime.datetime(*newest, tzinfo=datetime.timezone.utc)
    except ValueError as error:
        raise refusal(path, f"the time of a file: {error}") from None
    packages = list(_packages(wheel))
    needs = {"ref": path.name, "dependsOn": [one["bom-ref"] for one in packages]}
    tool = {"type": "application", "name": "k2mps", "version": __version__}
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, f"sha256:{digest}").urn,
        "metadata": {
            "timestamp": time.isoformat(),
            "tools": {"components": [tool]},
            "component": _subject(wheel, digest),
        },
        "components": [*packages, *_files(wheel)],
        "dependencies": [needs],
    }
    return json.dumps(bill, indent=2) + "\n"


def _subject(wheel: WheelFile, digest: str) -> dict:
    origin, name, version = wheel.origin, wheel.path.name, str(wheel.version)
    commit = origin["upstream"]["commit"]
    upstream = {
        "type": "library",
        "name": "k2",
        "version": commit,
        "licenses": _LICENSE,
        "externalReferences": [{"type": "vcs", "url": origin["upstream"]["url"]}],
    }
    return {
        "type": "library",
        "bom-ref": name,
        "name": "k2",
        "version": version,
        "purl": f"{_purl('k2', version)}?file_name={quote(name)}",
        "hashes": _hashes(digest),
        "licenses": _LICENSE,
        "pedigree": {
            "ancestors": [upstream],
            "commits": [{"uid": commit}],
            "notes": "The ancestor with the patches of k2-mps, git's tree"
            f" {origin['series']}; git's id of the result is {origin['patched_tree']}.",
        },
        "properties": [{"name": f"k2mps:{key}", "value": str(origin.get(key))} for key in _TOLD],
    }


def _packages(wheel: WheelFile) -> Iterator[dict]:
    """The packages that pip installs with the wheel, and packages whose headers it contains."""
    needed = {one.name: str(one.specifier) for one in wheel.metadata.requires_dist or []}
    for how, packages in (("required", needed), ("compiled-in", wheel.origin["headers"])):
        for name, version in sorted(packages.items()):
            exact = re.fullmatch(r"(?:==)?(\w[\w.+-]*)", version)
            yield {
                "type": "library",
                "bom-ref": f"{how}-{name}",
                "name": name,
                **({"version": exact[1]} if exact else {}),
                "purl": _purl(name, exact[1] if exact else ""),
                "description": "required, not contained" if how == "required" else "its headers",
            }


def _files(wheel: WheelFile) -> Iterator[dict]:
    """The libraries of the wheel and the kernels in them."""
    libraries = {
        name: sha256(content)
        for name, content in wheel.files.items()
        if name.endswith((".so", ".dylib"))
    }
    for kind, files in (("library", libraries), ("Metal kernels", wheel.origin["kernels"])):
        for name, digest in sorted(files.items()):
            yield {"type": "file", "name": name, "hashes": _hashes(digest), "description": kind}


def _hashes(digest: str) -> list[dict]:
    return [{"alg": "SHA-256", "content": digest}]


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{quote(name)}" + (f"@{quote(version)}" if version else "")
