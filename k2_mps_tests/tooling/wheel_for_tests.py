"""Makes a small wheel, for a build backend that the tests write."""

import zipfile
from pathlib import Path


def make(folder: str, version: str, flavour: str) -> str:
    """Writes the wheel; returns its file name, as the backend interface requires."""
    info = f"small_package-{version}.dist-info"
    name = f"small_package-{version}-py3-none-any.whl"
    with zipfile.ZipFile(Path(folder, name), "w") as wheel:
        wheel.writestr("small_package.py", f"flavour = {flavour!r}\n")
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: small-package\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{info}/RECORD", "")
    return name
