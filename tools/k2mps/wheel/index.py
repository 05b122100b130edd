"""Writes mps.html, a page of links to wheels for `pip --find-links`, like k2's own cpu.html."""

import html
import urllib.parse
from pathlib import Path
from typing import NamedTuple

from packaging.version import Version

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
    base = base_url and base_url.rstrip("/") + "/"
    links = [_link(path, base) for path in sorted(directory.glob("*.whl"))]
    if not links:
        raise errors.CheckFailedError(
            f"there is no wheel in {directory}",
            next_command="k2mps wheel makes one in build/wheels",
        )
    page = directory / NAME
    # The newest version comes first, as on k2's own pages.
    links.sort(key=lambda link: link.version, reverse=True)
    versions = dict.fromkeys(str(link.version) for link in links)
    commands = "".join(_COMMAND.format(html.escape(version)) for version in versions)
    replacement.rewrite(page, _PAGE.format(commands, "".join(link.item for link in links)))
    return page


class _Link(NamedTuple):
    version: Version
    item: str  # the item of the page's list


def _link(path: Path, base: str) -> _Link:
    """Returns the link to a wheel.

    Args:
      base: the URL of the wheels' folder, with a slash at the end; or empty.
    """
    wheel = WheelFile(path)
    # The name is quoted, because some servers treat "+" as a space.
    url = base + urllib.parse.quote(path.name)
    item = _ITEM.format(
        html.escape(url), wheel.sha256, html.escape(path.name), html.escape(wheel.origin["built"])
    )
    return _Link(wheel.version, item)
