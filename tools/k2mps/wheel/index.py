"""A page of links to wheels that `pip --find-links` reads, beside k2's own cpu.html."""

import html
import urllib.parse
from pathlib import Path

from k2mps.core import errors, replacement
from k2mps.wheel.archive import WheelFile, refusal

NAME = "mps.html"
_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Wheels of k2 with mps</title></head>
<body>
<h1>Wheels of k2 with mps</h1>
<p>Each is for the torch in its name:
<code>pip install --find-links THIS_PAGE 'k2==VERSION'</code></p>
<ul>
{}</ul>
</body>
</html>
"""
_ITEM = '<li><a href="{}#sha256={}" data-requires-python="{}">{}</a> {}</li>\n'


def write(directory: Path, base_url: str = "") -> Path:
    """Writes a directory's mps.html; the same wheels give the same page.

    Args:
      base_url: the URL of the wheels; default beside the page.
    """
    # As on k2's own pages, the newest is the first.
    wheels = sorted(directory.glob("*.whl"), reverse=True)
    if not wheels:
        raise errors.CheckFailedError(
            f"there is no wheel in {directory}",
            next_command="k2mps wheel makes one in build/wheels",
        )
    base = base_url and base_url.rstrip("/") + "/"
    page = directory / NAME
    replacement.rewrite(page, _PAGE.format("".join(_item(path, base) for path in wheels)))
    return page


def _item(path: Path, base: str) -> str:
    wheel = WheelFile(path)
    python = wheel.metadata.requires_python
    if python is None:
        raise refusal(path, "its METADATA has no Requires-Python")
    # Some servers read "+" as a space.
    link = base + urllib.parse.quote(path.name)
    facts = (link, wheel.sha256, str(python), path.name, wheel.origin["built"])
    return _ITEM.format(*map(html.escape, facts))
