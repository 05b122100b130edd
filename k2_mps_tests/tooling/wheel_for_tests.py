"""Makes small wheels of packages other than k2."""

import zipfile
from collections.abc import Mapping
from pathlib import Path


def make(
    folder: Path | str,
    version: str,
    name: str = "small_package",
    tag: str = "py3-none-any",
    files: Mapping[str, bytes] = {},
    needs: str = "",
) -> str:
    """Writes a wheel; returns its file name, as the interface of build backends requires."""
    info = f"{name}-{version}.dist-info"
    contents = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + (f"Requires-Dist: {needs}\n" if needs else ""),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(Path(folder, f"{name}-{version}-{tag}.whl"), "w") as wheel:
        for path, content in contents.items():
            wheel.writestr(path, content)
    return f"{name}-{version}-{tag}.whl"
