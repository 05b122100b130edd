"""Hooks of mkdocs: put the timeline of emulated signposts into its page.

k2_mps_tests.timeline draws the picture for each build of the site.  The page has no
picture if k2 is not built, or on a Mac, which has no emulator.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from mkdocs.structure.files import File

MARK = "<!-- timeline -->"
NAME = "images/timeline.svg"
_CAPTION = "Signposts of k2 and its dispatches, emulated"


def on_files(files, config):
    """Adds the picture to the files of the site."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "timeline.svg")
        outcome = subprocess.run(
            [sys.executable, "-m", "k2_mps_tests.timeline", str(path)], capture_output=True
        )
        if outcome.returncode == 0:
            files.append(File.generated(config, NAME, content=path.read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    """Puts the picture in place of the mark."""
    if files.get_file_from_path(NAME) is None:
        return markdown.replace(MARK, "")
    return markdown.replace(MARK, f"![{_CAPTION}]({NAME})")
