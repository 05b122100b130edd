"""Writes mps.html, a page of links to wheels for `pip --find-links`, like k2's own cpu.html."""

import html
import urllib.parse
from pathlib import Path

from k2mps.core import errors, replacement
from k2mps.wheel.archive import WheelFile

NAME = "mps.html"
_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Wheels of k2 with mps</title></head>
<body>
<h1>Wheels of k2 with mps</h1>
<p>Each wheel is for the version of torch in its name.  With one of these commands, pip or
<code>uv pip</code> installs a version with its torch; THIS_PAGE is the address of this page:</p>
<ul>
{}</ul>
<ul>
{}</ul>
</body>
</html>
"""
# Without a version, pip may choose an older k2 of the package index.
_COMMAND = "<li><code>pip install 'k2=={}' -f THIS_PAGE</code></li>\n"
_ITEM = '<li><a href="{}#sha256={}">{}</a> {}</li>\n'


def write(directory: Path, base_url: str = "") -> Path:
    """Writes mps.html for the wheels of a directory; returns the page's path.

    The page depends only on the wheels and the URL.

    Args:
      base_url: the URL of the wheels' folder; empty if the wheels are in the page's folder.
    Raises:
      CheckFailedError: there is no wheel, or a file is not a wheel of k2-mps.
    """
    # The newest wheel comes first, as on k2's own pages.
    wheels = sorted(directory.glob("*.whl"), reverse=True)
    if not wheels:
        raise errors.CheckFailedError(
            f"there is no wheel in {directory}",
            next_command="k2mps wheel makes one in build/wheels",
        )
    base = base_url and base_url.rstrip("/") + "/"
    page = directory / NAME
    versions = {path.name.split("-")[1]: None for path in wheels}
    commands = "".join(_COMMAND.format(html.escape(version)) for version in versions)
    replacement.rewrite(page, _PAGE.format(commands, "".join(_item(path, base) for path in wheels)))
    return page


def _item(path: Path, base: str) -> str:
    wheel = WheelFile(path)
    # The name is quoted, because some servers treat "+" as a space.
    link = base + urllib.parse.quote(path.name)
    fields = (link, wheel.sha256, path.name, wheel.origin["built"])
    return _ITEM.format(*map(html.escape, fields))
